package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

const (
	staleSlot  = 100 * time.Millisecond // after a commit that took longer, a slot is taken anew
	diskPause  = time.Second            // between two tries to store what must be stored
	bodyBudget = 4 << 20                // bytes of bodies a bot keeps in memory
	minFlights = 64
	maxFlights = 4096
)

// bot is one bot's outbox in memory: its lanes, what waits for what, and the
// calls in flight.
type bot struct {
	name    chat.BotName
	adapter adapters.Adapter
	limiter *limiter.RateLimiter
	box     outbox.Outbox
	opts    Options
	log     *slog.Logger
	restore func(*limiter.RateLimiter, []limiter.Anchors, time.Time)
	flights int           // calls in flight, at most: so many seats there are
	wake    chan struct{} // holds a token when the loop has something to look at

	mu       sync.Mutex
	owner    outbox.Owner
	owned    bool      // the backlog is loaded; entries may be sent
	stopping bool      // no new call is made
	early    []arrival // stored before the backlog was loaded
	lanes    map[chat.Target]*lane
	ready    [4]readyList // by priority
	parked   parkedHeap
	opens    time.Time // the bot's bucket refused until then
	passed   int       // slots given since a lower priority had one
	pending  int
	inFlight int
	seats    []int     // that no flight has
	active   int       // commits and flights that must end before the bot has stopped
	launch   []*flight // committed as sending; the loop starts them
	bodies   int       // bytes of bodies in memory
	paused   error     // why the login is refused; nil if it is not
	down     outage
	dead     map[chat.ChatID]*deadChat
	moved    map[chat.ChatID]chat.ChatID
}

// arrival is an entry that was stored before the backlog was loaded.
type arrival struct {
	target chat.Target
	item   item
}

// flight is one call on its way: from its slot to the commit that settles it.
type flight struct {
	lane   *lane
	target chat.Target // the lane's when the slot was taken
	id     outbox.ID
	entry  *outbox.Entry // nil until read
	slot   limiter.Reservation
	at     time.Time // when the slot was taken
	seat   int       // under which the call is noted
}

func newBot(a adapters.Adapter, lim *limiter.RateLimiter, r *DeliveryRouter) *bot {
	cfg := lim.Config()
	room := int(cfg.MessagesPerSecond*r.opts.SendTimeout.Seconds()) + cfg.BurstSize
	b := &bot{
		name: a.Bot(), adapter: a, limiter: lim, box: r.box, opts: r.opts,
		log:     r.opts.Log.With("bot", string(a.Bot())),
		restore: r.restore,
		flights: min(max(room, minFlights), maxFlights),
		wake:    make(chan struct{}, 1),
		lanes:   map[chat.Target]*lane{},
		dead:    map[chat.ChatID]*deadChat{},
		moved:   map[chat.ChatID]chat.ChatID{},
	}
	for seat := b.flights - 1; seat >= 0; seat-- {
		b.seats = append(b.seats, seat)
	}
	return b
}

// board counts a new flight and gives it a seat. The caller holds the mutex.
func (b *bot) board(f *flight) *flight {
	b.inFlight++
	f.seat = b.seats[len(b.seats)-1]
	b.seats = b.seats[:len(b.seats)-1]
	return f
}

// leaveSeat lets another flight have the seat: not before the end of this one
// is stored, since its note is all that tells of it until then. The caller
// holds the mutex.
func (b *bot) leaveSeat(f *flight) { b.seats = append(b.seats, f.seat) }

// run owns the bot until ctx ends: see DeliveryRouter.Run.
func (b *bot) run(ctx context.Context, grace time.Duration) error {
	if err := b.takeOver(ctx); err != nil {
		return err
	}
	calls, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var group sync.WaitGroup
	err := b.loop(ctx, calls, cancel, &group)
	b.stop()
	b.drain(calls, cancel, &group, grace)
	group.Wait()
	return errors.Join(err, b.leave(context.WithoutCancel(ctx)))
}

// takeOver becomes the owner and loads the backlog.
func (b *bot) takeOver(ctx context.Context) error {
	owner, err := b.box.Acquire(ctx, b.name)
	if err != nil {
		return err
	}
	backlog, err := b.box.Load(ctx, owner)
	if err != nil {
		return err
	}
	now := time.Now()
	settled, err := b.interrupted(ctx, backlog.Heads, now)
	if err != nil {
		return err
	}
	b.restore(b.limiter, backlog.Anchors, now)
	// From here on the stored buckets are those of a run that has not ended.
	anchors := b.limiter.Snapshot(now)
	_, err = b.box.Apply(ctx, outbox.Batch{Owner: owner, At: now, Settled: settled, Anchors: []limiter.Anchors{anchors}})
	if err != nil {
		return err
	}
	// The former owner's calls are settled: from here on only ours count.
	if err := b.box.Note(b.name, 0, outbox.Call{}); err != nil {
		return err
	}
	b.fill(owner, backlog, settled)
	b.opts.OnLoad(b.name)
	return nil
}

// interrupted settles what was being sent when the last owner died.
func (b *bot) interrupted(ctx context.Context, heads []outbox.Head, now time.Time) ([]outbox.Settlement, error) {
	var ids []outbox.ID
	called := map[outbox.ID]bool{}
	for _, h := range heads {
		if h.State == outbox.Sending {
			ids = append(ids, h.ID)
			called[h.ID] = h.Called
		}
	}
	entries, err := b.box.Read(ctx, ids...)
	if err != nil {
		return nil, err
	}
	var settled []outbox.Settlement
	for _, e := range entries {
		if !called[e.ID] {
			settled = append(settled, outbox.Untouched(e))
			continue
		}
		s := b.opts.Rules.Interrupted(e, now)
		b.log.WarnContext(ctx, "the last run ended during a call", "entry", e.ID.String(), "target", e.Target.String(), "state", s.State.String())
		settled = append(settled, s)
	}
	return settled, nil
}

// fill puts the backlog into lanes.
func (b *bot) fill(owner outbox.Owner, backlog outbox.Backlog, settled []outbox.Settlement) {
	ended := map[outbox.ID]bool{}
	for _, s := range settled {
		ended[s.ID] = !s.State.Pending()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owner, b.owned, b.stopping = owner, true, false
	for _, m := range backlog.Moves {
		b.addMove(m)
	}
	for _, d := range backlog.Dead {
		b.dead[d.Chat] = &deadChat{DeadTarget: d}
	}
	known := map[outbox.ID]bool{}
	for _, early := range b.early {
		known[early.item.id] = true
	}
	b.pending = len(b.early)
	for _, h := range backlog.Heads {
		if ended[h.ID] || known[h.ID] {
			continue
		}
		l := b.lane(chat.Target{Bot: b.name, Chat: h.Chat, Thread: h.Thread})
		it := item{id: h.ID, due: micros(h.NotBefore), expires: micros(h.ExpiresAt), priority: h.Priority}
		if h.State == outbox.Queued {
			b.add(l, it)
		} else { // it was the first of its lane
			l.pushFirst(it)
			l.until = h.Due
		}
		b.pending++
	}
	for _, early := range b.early {
		b.add(b.lane(early.target), early.item)
	}
	b.early = nil
	now := time.Now()
	for _, l := range b.lanes {
		b.place(l, now)
	}
}

// add puts an entry into its lane: among the due ones, or aside until it is.
func (b *bot) add(l *lane, it item) {
	if it.due > time.Now().UnixMicro() {
		l.future.add(it)
		return
	}
	l.push(it)
}

// loop looks for lanes that can send, whenever something changed or the time
// has come, until ctx ends or the bot is lost.
func (b *bot) loop(ctx, calls context.Context, cancel context.CancelCauseFunc, group *sync.WaitGroup) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := b.limiter.Changed()
		b.mu.Lock()
		now := time.Now()
		picked := b.pick(now)
		next := b.nextLook(now)
		b.mu.Unlock()
		if len(picked) > 0 {
			group.Go(func() { b.send(calls, cancel, picked) })
		}
		b.start(calls, cancel, group)

		timer.Reset(next)
		select {
		case <-ctx.Done():
			return nil
		case <-calls.Done():
			return context.Cause(calls)
		case <-b.wake:
		case <-changed:
		case <-timer.C:
		}
	}
}

// start gives a goroutine to each flight that others have committed.
func (b *bot) start(calls context.Context, cancel context.CancelCauseFunc, group *sync.WaitGroup) {
	b.mu.Lock()
	launch := b.launch
	b.launch = nil
	b.mu.Unlock()
	for _, f := range launch {
		group.Go(func() { b.fly(calls, cancel, f) })
	}
}

func (b *bot) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopping = true
}

// drain waits for the commits and calls under way. After grace the calls are
// cancelled; what they leave unknown is settled as uncertain.
func (b *bot) drain(calls context.Context, cancel context.CancelCauseFunc, group *sync.WaitGroup, grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for {
		b.start(calls, cancel, group)
		b.mu.Lock()
		active := b.active
		b.mu.Unlock()
		if active == 0 {
			return
		}
		select {
		case <-b.wake:
		case <-timer.C:
			cancel(context.DeadlineExceeded)
			timer.Reset(time.Second)
		}
	}
}

// leave stores the limiter's state as that of a clean end and forgets the
// lanes, which are on disk.
func (b *bot) leave(ctx context.Context) error {
	b.mu.Lock()
	owner := b.owner
	b.owner, b.owned = outbox.Owner{}, false
	b.lanes, b.parked, b.ready, b.pending = map[chat.Target]*lane{}, nil, [4]readyList{}, 0
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	anchors := b.limiter.Snapshot(time.Now())
	anchors.Clean = true
	_, err := b.box.Apply(ctx, outbox.Batch{Owner: owner, Anchors: []limiter.Anchors{anchors}})
	if errors.Is(err, outbox.ErrNotOwner) {
		return nil // the new owner keeps its own
	}
	if err != nil {
		return fmt.Errorf("store the limiter's state: %w", err)
	}
	return nil
}

// notify makes the loop look again. It never blocks.
func (b *bot) notify() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// finished ends a commit or a flight that was counted in active. The caller
// holds the mutex.
func (b *bot) finished() {
	b.active--
	b.notify()
}

func (b *bot) resume() {
	b.mu.Lock()
	b.paused = nil
	b.mu.Unlock()
	b.notify()
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// random is in [0, 1), for jitter.
func random() float64 {
	return rand.Float64() //nolint:gosec // jitter is no secret
}
