package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	name      chat.BotName
	adapter   adapters.Adapter
	checker   adapters.TargetChecker // nil: every target may exist
	typer     adapters.Typer         // nil: the platform can't show it
	announces bool                   // the adapter tells when a call leaves
	limiter   *limiter.RateLimiter
	box       Store
	opts      Options
	log       *slog.Logger
	restore   func(*limiter.RateLimiter, []limiter.Anchors, time.Time)
	total     *atomic.Int64 // pending of all bots
	outside   backlogSize   // what is stored for the bot, while another process owns it
	wake      chan struct{} // holds a token when the loop has something to look at

	mu        sync.Mutex
	owner     outbox.Owner
	owned     bool                    // the backlog is loaded; entries may be sent
	abort     context.CancelCauseFunc // ends a run that has lost the bot
	stopping  bool                    // no new call is made
	onHold    bool                    // an operator lets nothing leave
	strange   bool                    // others have stored entries that are not adopted yet
	adopting  bool                    // they are being adopted
	adopted   bool                    // what came while the bot had no owner is in its lanes, before what came later
	outsiders int                     // commits under way of entries that are to be adopted
	storing   [4]int                  // entries whose commit is under way, by priority
	lanes     map[chat.Target]*lane
	threads   map[chat.ChatID][]*lane // those of lanes that have a thread
	latest    map[newest]outbox.ID    // pending entries with a supersede key
	ready     [4]readyList            // by priority
	parked    parkedHeap
	opens     time.Time       // the bot's bucket refused until then
	refused   []refusal       // by the limiter, for the debug log
	verbose   bool            // the log takes debug records
	passed    int             // slots given since a lower priority had one
	lower     outbox.Priority // that had it
	limited   int             // answers in a row, to any chat, that closed more than the chat and did not say how long
	pending   [4]int          // by priority
	room      chan struct{}   // closed when pending shrinks; nil while nobody listens
	inFlight  int
	seats     []int     // those that are free: so many more calls can be in flight
	active    int       // commits and flights that must end before the bot has stopped
	launch    []*flight // committed as sending; the loop starts them
	bodies    int       // bytes of bodies in memory
	paused    error     // why the login is refused; nil if it is not
	down      outage
	doubt     doubt
	hold      hold
	dead      map[chat.ChatID]*deadChat
	moved     map[chat.ChatID]chat.ChatID
}

// arrival is an entry on its way into the store.
type arrival struct {
	lane   *lane
	entry  *outbox.Entry
	flight *flight // nil unless it got a slot
	older  *item   // that it takes the place of; nil for none
}

func newBot(a adapters.Adapter, lim *limiter.RateLimiter, r *DeliveryRouter) *bot {
	cfg := lim.Config()
	room := int(cfg.MessagesPerSecond*r.opts.SendTimeout.Seconds()) + cfg.BurstSize
	prober, _ := a.(adapters.Prober)
	checker, _ := a.(adapters.TargetChecker)
	typer, _ := a.(adapters.Typer)
	_, announces := a.(adapters.Announcer)
	return &bot{
		name: a.Bot(), adapter: a, checker: checker, typer: typer, announces: announces, limiter: lim, box: r.box, opts: r.opts,
		log:     r.opts.Log.With("bot", string(a.Bot())),
		restore: r.restore,
		seats:   newSeats(min(max(room, minFlights), maxFlights)),
		total:   &r.pending,
		wake:    make(chan struct{}, 1),
		doubt:   doubt{prober: prober},
		lanes:   map[chat.Target]*lane{},
		threads: map[chat.ChatID][]*lane{},
		latest:  map[newest]outbox.ID{},
		onHold:  r.opts.Held,
		dead:    map[chat.ChatID]*deadChat{},
		moved:   map[chat.ChatID]chat.ChatID{},
	}
}

// run owns the bot until ctx ends: see DeliveryRouter.Run.
func (b *bot) run(ctx context.Context, grace time.Duration) error {
	calls, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	b.begin(abort, b.log.Enabled(ctx, slog.LevelDebug))
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

// add puts an entry into its lane: among the due ones, or aside until it is.
func (b *bot) add(l *lane, it item) {
	if it.due > time.Now().UnixMicro() {
		l.future.add(it)
		return
	}
	l.push(it)
}

// count changes the number of pending entries of a priority. The caller holds
// the mutex.
func (b *bot) count(p outbox.Priority, n int) {
	b.pending[p] += n
	b.total.Add(int64(n))
	if n < 0 && b.room != nil {
		close(b.room)
		b.room = nil
	}
}

// uncount takes items out of the pending ones, which have ended. The caller
// holds the mutex.
func (b *bot) uncount(items []item) {
	for _, it := range items {
		b.count(outbox.Priority(it.priority), -1)
		b.letGo(it)
	}
}

// waiting is how many entries have not ended. The caller holds the mutex.
func (b *bot) waiting() int {
	n := 0
	for _, of := range b.pending {
		n += of
	}
	return n
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
		ask, adopt := b.beginAsking(now), b.beginAdopting()
		picked := b.pick(now)
		next := b.nextLook(now)
		b.mu.Unlock()
		if ask {
			group.Go(func() { b.ask(calls) })
		}
		if adopt {
			group.Go(func() { b.adopt(calls) })
		}
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
	b.owner, b.owned = outbox.Owner{}, false
	for _, l := range b.lanes {
		b.unlist(l)
		l.reset()
		if l.arriving == 0 {
			b.dropLane(l)
		}
	}
	clear(b.latest)
	b.bodies, b.doubt.lanes, b.doubt.login, b.hold = 0, 0, nil, hold{}
	for p := range b.pending {
		b.count(outbox.Priority(p), b.storing[p]-b.pending[p])
	}
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
