package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
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
	verbose bool // the log takes debug records
	restore func(*limiter.RateLimiter, []limiter.Anchors, time.Time)
	total   *atomic.Int64 // pending of all bots
	wake    chan struct{} // holds a token when the loop has something to look at

	mu       sync.Mutex
	owner    outbox.Owner
	owned    bool                    // the backlog is loaded; entries may be sent
	abort    context.CancelCauseFunc // ends a run that has lost the bot
	stopping bool                    // no new call is made
	loading  bool                    // the backlog is being read
	loadedTo outbox.ID               // what is stored up to here was in the backlog
	early    []*outbox.Entry         // stored while the backlog was being read
	storing  int                     // entries whose commit is under way
	lanes    map[chat.Target]*lane
	ready    [4]readyList // by priority
	parked   parkedHeap
	opens    time.Time       // the bot's bucket refused until then
	refused  []refusal       // by the limiter, for the debug log
	passed   int             // slots given since a lower priority had one
	lower    outbox.Priority // that had it
	limited  int             // answers in a row, to any chat, that closed more than the chat and did not say how long
	pending  int
	inFlight int
	seats    []int     // those that are free: so many more calls can be in flight
	active   int       // commits and flights that must end before the bot has stopped
	launch   []*flight // committed as sending; the loop starts them
	bodies   int       // bytes of bodies in memory
	paused   error     // why the login is refused; nil if it is not
	down     outage
	dead     map[chat.ChatID]*deadChat
	moved    map[chat.ChatID]chat.ChatID
}

// arrival is an entry on its way into the store.
type arrival struct {
	lane   *lane
	entry  *outbox.Entry
	flight *flight // nil unless it got a slot
}

func newBot(a adapters.Adapter, lim *limiter.RateLimiter, r *DeliveryRouter) *bot {
	cfg := lim.Config()
	room := int(cfg.MessagesPerSecond*r.opts.SendTimeout.Seconds()) + cfg.BurstSize
	return &bot{
		name: a.Bot(), adapter: a, limiter: lim, box: r.box, opts: r.opts,
		log:     r.opts.Log.With("bot", string(a.Bot())),
		verbose: r.opts.Log.Enabled(context.Background(), slog.LevelDebug), //nolint:forbidigo // a logger's level needs none
		restore: r.restore,
		seats:   newSeats(min(max(room, minFlights), maxFlights)),
		total:   &r.pending,
		wake:    make(chan struct{}, 1),
		lanes:   map[chat.Target]*lane{},
		dead:    map[chat.ChatID]*deadChat{},
		moved:   map[chat.ChatID]chat.ChatID{},
	}
}

// run owns the bot until ctx ends: see DeliveryRouter.Run.
func (b *bot) run(ctx context.Context, grace time.Duration) error {
	calls, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	b.load(abort)
	if err := b.takeOver(ctx); err != nil {
		b.forget()
		return err
	}
	var group sync.WaitGroup
	err := b.loop(ctx, calls, &group)
	b.stop()
	b.drain(calls, &group, grace)
	group.Wait()
	return errors.Join(err, b.leave(context.WithoutCancel(ctx)))
}

// load begins a run: what is stored from here on may or may not be in the
// backlog.
func (b *bot) load(abort context.CancelCauseFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.abort, b.loading = abort, true
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
	moves := b.learn(backlog)
	settled = append(settled, b.hopeless(backlog.Heads, now)...)
	// From here on the stored buckets are those of a run that has not ended.
	anchors := b.limiter.Snapshot(now)
	_, err = b.box.Apply(ctx, outbox.Batch{
		Owner: owner, At: now, Settled: settled, Moves: moves, Anchors: []limiter.Anchors{anchors},
	})
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

// learn takes in where chats are and which are dead. It gives the moves again
// of chats that still have entries under an older id: those were being stored
// while their chat moved.
func (b *bot) learn(backlog outbox.Backlog) []outbox.Move {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.moved)
	for _, m := range backlog.Moves {
		b.addMove(m)
	}
	clear(b.dead)
	for _, d := range backlog.Dead {
		b.dead[d.Chat] = &deadChat{DeadTarget: d}
	}
	var again []outbox.Move
	for _, h := range backlog.Heads {
		m := outbox.Move{From: h.Chat, To: b.resolve(chat.Target{Chat: h.Chat}).Chat}
		if m.From != m.To && !slices.Contains(again, m) {
			again = append(again, m)
		}
	}
	return again
}

// hopeless gives up on what was stored for a dead chat by a process that could
// not know that it is dead.
func (b *bot) hopeless(heads []outbox.Head, now time.Time) []outbox.Settlement {
	b.mu.Lock()
	defer b.mu.Unlock()
	var settled []outbox.Settlement
	for _, h := range heads {
		d, ok := b.dead[b.resolve(chat.Target{Chat: h.Chat}).Chat]
		if ok && now.Before(d.ProbeAt) && h.State == outbox.Queued {
			settled = append(settled, outbox.Settlement{
				ID: h.ID, State: outbox.Dead, Reason: "dead target: " + d.Reason, MayBeDuplicate: h.MayBeDuplicate,
			})
		}
	}
	return settled
}

// fill puts the backlog into lanes.
func (b *bot) fill(owner outbox.Owner, backlog outbox.Backlog, settled []outbox.Settlement) {
	ended := map[outbox.ID]bool{}
	for _, s := range settled {
		ended[s.ID] = !s.State.Pending()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owner, b.owned, b.loading, b.stopping = owner, true, false, false
	var begun []outbox.Head // an attempt was made, so they are the first of their lanes
	for _, h := range backlog.Heads {
		b.loadedTo = max(b.loadedTo, h.ID)
		switch {
		case ended[h.ID]:
		case h.State == outbox.Queued:
			b.add(b.loaded(h))
		default:
			begun = append(begun, h)
		}
	}
	for _, h := range slices.Backward(begun) {
		l, it := b.loaded(h)
		l.pushFirst(it)
		if h.Due.After(l.until) {
			l.until, l.retrying = h.Due, true
		}
	}
	b.assumeOutage()
	for _, e := range b.early {
		if e.ID <= b.loadedTo {
			b.count(-1)
			continue
		}
		b.add(b.lane(b.resolve(e.Target)), newItem(e))
	}
	b.early = nil
	now := time.Now()
	for _, l := range b.lanes {
		b.place(l, now)
	}
}

// loaded gives the lane and the item of an entry of the backlog. One that waits
// for a dead chat is on its way to find out if that is still so.
func (b *bot) loaded(h outbox.Head) (*lane, item) {
	b.count(1)
	t := b.resolve(chat.Target{Bot: b.name, Chat: h.Chat, Thread: h.Thread})
	b.probing(t)
	return b.lane(t), item{id: h.ID, due: micros(h.NotBefore), priority: h.Priority}
}

// add puts an entry into its lane: among the due ones, or aside until it is.
func (b *bot) add(l *lane, it item) {
	if it.due > time.Now().UnixMicro() {
		l.future.add(it)
		return
	}
	l.push(it)
}

// count changes the number of pending entries. The caller holds the mutex.
func (b *bot) count(n int) {
	b.pending += n
	b.total.Add(int64(n))
}

// loop looks for lanes that can send, whenever something changed or the time
// has come, until ctx ends or the bot is lost.
func (b *bot) loop(ctx, calls context.Context, group *sync.WaitGroup) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := b.limiter.Changed()
		b.mu.Lock()
		now := time.Now()
		picked := b.pick(now)
		next := b.nextLook(now)
		b.mu.Unlock()
		b.logWaits(ctx)
		if len(picked) > 0 {
			group.Go(func() { b.send(calls, picked) })
		}
		b.start(calls, group)

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
func (b *bot) start(calls context.Context, group *sync.WaitGroup) {
	b.mu.Lock()
	launch := b.launch
	b.launch = nil
	b.mu.Unlock()
	for _, f := range launch {
		group.Go(func() { b.fly(calls, f) })
	}
}

func (b *bot) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopping = true
}

func (b *bot) isStopping() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopping
}

// lost ends the run: another process owns the bot, or what has to be stored
// can't be stored before the end. The caller holds the mutex.
func (b *bot) lost(err error) {
	b.owned = false
	b.abort(err)
}

// drain waits for the commits and calls under way. After grace the calls are
// cancelled; what they leave unknown is settled as uncertain.
func (b *bot) drain(calls context.Context, group *sync.WaitGroup, grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for {
		b.start(calls, group)
		b.mu.Lock()
		active, abort := b.active, b.abort
		b.mu.Unlock()
		if active == 0 {
			return
		}
		select {
		case <-b.wake:
		case <-timer.C:
			abort(context.DeadlineExceeded)
		}
	}
}

// leave stores the limiter's state as that of a clean end and forgets the
// lanes, which are on disk.
func (b *bot) leave(ctx context.Context) error {
	owner := b.forget()
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

// forget ends the ownership in memory, and gives what it was. Lanes stay only
// for entries that are being stored.
func (b *bot) forget() outbox.Owner {
	b.mu.Lock()
	defer b.mu.Unlock()
	owner := b.owner
	b.owner, b.owned, b.loading, b.early = outbox.Owner{}, false, false, nil
	for t, l := range b.lanes {
		b.unlist(l)
		l.reset()
		if l.arriving == 0 {
			delete(b.lanes, t)
		}
	}
	b.bodies = 0
	b.count(b.storing - b.pending)
	return owner
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
