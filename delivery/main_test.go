package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chatgateway/gateway/adapters/adaptertest"
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testBot = chat.BotName("fake")

// process is the adapter of one run of the gateway: the platform outlives it,
// the limiter does not.
type process struct {
	*adaptertest.Fake
	limiter *limiter.RateLimiter
}

func (p process) Limiter() *limiter.RateLimiter { return p.limiter }

// faultyBox is a store whose disk can be full, and whose process can die.
type faultyBox struct {
	delivery.Store

	mu    sync.Mutex
	err   error                   // of every Apply
	died  bool                    // nothing reaches the disk any more
	watch func(outbox.Batch) bool // true: the process dies before this batch is stored
	gate  chan struct{}           // nil, or closed when a slow disk is done
	calls int
}

var errDied = fmt.Errorf("the process died: %w", outbox.ErrNotOwner)

func (f *faultyBox) Apply(ctx context.Context, b outbox.Batch) (outbox.Applied, error) {
	f.mu.Lock()
	f.calls++
	if f.watch != nil && !f.died && f.watch(b) {
		f.died = true
	}
	err, gate := f.err, f.gate
	if f.died {
		err = errDied
	}
	f.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if err != nil {
		return outbox.Applied{}, err
	}
	return f.Store.Apply(ctx, b)
}

func (f *faultyBox) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// hold lets every commit wait until gate is closed.
func (f *faultyBox) hold(gate chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate = gate
}

func (f *faultyBox) applies() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// dieAt lets the process die right before a batch is stored.
func (f *faultyBox) dieAt(when func(outbox.Batch) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watch = when
}

// rig is a router over a real store and a fake platform, in a bubble.
type rig struct {
	t     *testing.T
	fake  *adaptertest.Fake
	cfg   limiter.Config
	opts  delivery.Options
	grace time.Duration

	store  delivery.Store
	box    *faultyBox
	router *delivery.DeliveryRouter
	cancel context.CancelFunc
	done   chan error
}

// fast is a limiter that hardly ever says no.
var fast = limiter.Config{MessagesPerSecond: 10_000, BurstSize: 1000}

type setup func(*rig)

func withLimits(c limiter.Config) setup { return func(r *rig) { r.cfg = c } }
func withOptions(o delivery.Options) setup {
	return func(r *rig) { r.opts = o }
}

func withRules(rules outbox.Rules) setup {
	return func(r *rig) { r.opts.Rules = rules }
}

// newRig opens everything and starts the router.
func newRig(t *testing.T, with ...setup) *rig {
	t.Helper()
	r := build(t, with...)
	r.start()
	return r
}

// build opens everything but Run.
func build(t *testing.T, with ...setup) *rig {
	t.Helper()
	r := &rig{t: t, fake: adaptertest.NewFake(t), cfg: fast, grace: 5 * time.Second}
	for _, f := range with {
		f(r)
	}
	r.open()
	t.Cleanup(r.close)
	return r
}

func (r *rig) open() {
	r.t.Helper()
	if r.store == nil {
		r.store = storetest.NewMemory()
	}
	l, err := limiter.New(r.cfg, limiter.WithScope("fake"))
	if err != nil {
		r.t.Fatalf("limiter.New() = %v", err)
	}
	r.box = &faultyBox{Store: r.store}
	r.router = delivery.New(r.box, r.opts)
	if err := r.router.Add(process{Fake: r.fake, limiter: l}, "fake"); err != nil {
		r.t.Fatalf("Add() = %v", err)
	}
}

// start runs the router and waits until it has loaded what waits.
func (r *rig) start() {
	r.t.Helper()
	r.start0()
	synctest.Wait()
}

// start0 is start without the wait, which needs a bubble.
func (r *rig) start0() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	router, grace := r.router, r.grace
	go func() { done <- router.Run(ctx, testBot, grace) }()
	r.cancel, r.done = cancel, done
}

// stop stops the router as a clean end does.
func (r *rig) stop() {
	r.t.Helper()
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	if err := <-r.done; err != nil {
		r.t.Errorf("Run() = %v, want nil after a stop", err)
	}
}

// kill ends the process without a word: nothing more reaches the disk.
func (r *rig) kill() {
	r.t.Helper()
	r.box.mu.Lock()
	r.box.died = true
	r.box.mu.Unlock()
	r.bury()
}

// bury waits for what is left of a process that died.
func (r *rig) bury() {
	r.t.Helper()
	r.cancel()
	r.cancel = nil
	<-r.done
}

// restart opens the same store with a new router and a new limiter.
func (r *rig) restart() {
	r.t.Helper()
	r.restart0(func() {})
}

// restart0 does something between the opening and the start.
func (r *rig) restart0(prepare func()) {
	r.t.Helper()
	if r.cancel != nil {
		r.stop()
	}
	r.open()
	prepare()
	r.start()
}

func (r *rig) close() {
	if r.cancel != nil {
		r.stop()
	}
}

func to(id string) chat.Target {
	id, thread, _ := strings.Cut(id, "/")
	return chat.Target{Bot: testBot, Chat: chat.ChatID(id), Thread: chat.ThreadID(thread)}
}

func text(target, s string) delivery.Request {
	return delivery.Request{Target: to(target), Message: chat.Message{Text: s}}
}

// deliver stores a message and fails the test if it is not taken.
func (r *rig) deliver(q delivery.Request) outbox.ID {
	r.t.Helper()
	ticket, err := r.router.Deliver(r.t.Context(), q)
	if err != nil {
		r.t.Fatalf("Deliver(%s) = %v", q.Target, err)
	}
	return ticket.ID
}

func (r *rig) send(target string, texts ...string) (ids []outbox.ID) {
	r.t.Helper()
	for _, s := range texts {
		ids = append(ids, r.deliver(text(target, s)))
	}
	return ids
}

// flood delivers n messages to as many chats, many at once.
func (r *rig) flood(n int, request func(i int) delivery.Request) {
	r.t.Helper()
	const callers = 50
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			for i := c; i < n; i += callers {
				r.deliver(request(i))
			}
		})
	}
	group.Wait()
}

// refuse delivers and gives the error, which must be one.
func (r *rig) refuse(q delivery.Request) error {
	r.t.Helper()
	_, err := r.router.Deliver(r.t.Context(), q)
	if err == nil {
		r.t.Fatalf("Deliver(%s) = nil, want an error", q.Target)
	}
	return err
}

func (r *rig) entry(id outbox.ID) outbox.Entry {
	r.t.Helper()
	e, ok, err := r.router.Message(r.t.Context(), id)
	if err != nil || !ok {
		r.t.Fatalf("Message(%d) = %v, %v", id, ok, err)
	}
	return e
}

func (r *rig) wantState(id outbox.ID, want outbox.State) outbox.Entry {
	r.t.Helper()
	e := r.entry(id)
	if e.State != want {
		r.t.Errorf("entry %d is %v (%s), want %v", id, e.State, e.Reason, want)
	}
	return e
}

// pass lets fake time go by and everything settle.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// arrived gives the texts that the platform took, of one target or of all.
func (r *rig) arrived(target string) (texts []string) {
	for _, d := range r.fake.Deliveries() {
		if target == "" || d.Target == to(target) {
			texts = append(texts, d.Part.Text)
		}
	}
	return texts
}

func (r *rig) wantArrived(target string, want ...string) {
	r.t.Helper()
	if got := r.arrived(target); !slices.Equal(got, want) {
		r.t.Errorf("arrived in %q: %q, want %q", target, got, want)
	}
}

// calls gives when each call to a chat began, since the given time.
func (r *rig) calls(id string, since time.Time) (at []time.Duration) {
	for _, a := range r.fake.Attempts() {
		if string(a.Target.Chat) == id {
			at = append(at, a.At.Sub(since))
		}
	}
	return at
}

func (r *rig) wantCalls(want int) {
	r.t.Helper()
	if got := len(r.fake.Attempts()); got != want {
		r.t.Errorf("%d calls were made, want %d", got, want)
	}
}

func within(t *testing.T, what string, got, least, most time.Duration) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s after %v, want %v to %v", what, got, least, most)
	}
}

var (
	errWire      = errors.New("wire")
	errTemporary = &chat.SendError{Kind: chat.Temporary, Err: errWire}
	errUncertain = &chat.SendError{Kind: chat.Uncertain, Err: errWire}
	errGone      = &chat.SendError{Kind: chat.TargetGone, Code: "403", Err: errors.New("blocked")}
	errRejected  = &chat.SendError{Kind: chat.Rejected, Err: errWire}
	errLogin     = &chat.SendError{Kind: chat.Unauthorized, Err: errors.New("token revoked")}
)

func limited(scope chat.Scope, after time.Duration) error {
	return &chat.SendError{Kind: chat.RateLimited, Scope: scope, RetryAfter: after, Err: errWire}
}

func movedTo(id string) error {
	return &chat.SendError{Kind: chat.Moved, MovedTo: chat.ChatID(id), Err: errWire}
}
