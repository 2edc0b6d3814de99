// Package adaptertest holds the suite that every platform's adapter passes,
// and a working fake adapter for the tests of everything above adapters.
package adaptertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
)

// patience is longer than any wait that a platform can ask for, so that in a
// synctest bubble a delivery that never comes fails the test by name.
const patience = 8 * 24 * time.Hour

// Delivery is one part that the fake took.
type Delivery struct {
	Target  chat.Target
	Part    chat.Part
	Receipt chat.Receipt
	At      time.Time
}

// Attempt is one call of Send, successful or not.
type Attempt struct {
	Target chat.Target
	Part   chat.Part
	At     time.Time // when it began
	Err    error     // nil for a delivery
}

// Fake is an in-memory adapter that behaves like a platform and fails on
// demand. Everything about it is safe for concurrent use. It opens no socket,
// so that it works inside a synctest bubble, if it is made there.
type Fake struct {
	bot     chat.BotName
	limiter *limiter.RateLimiter
	emitted chan emission
	wake    chan struct{} // has one value while unread holds something

	mu           sync.Mutex
	capabilities chat.Capabilities
	next         []error               // for the coming calls, in order
	chats        map[chat.ChatID]error // until healed
	gate         chan struct{}         // nil, or closed when the hang ends
	gates        map[chat.ChatID]chan struct{}
	attempts     []Attempt
	deliveries   []Delivery
	unread       []Delivery
	probe, run   error
	running      chan error // what makes Run return, while it runs
}

var (
	_ adapters.Adapter = (*Fake)(nil)
	_ adapters.Prober  = (*Fake)(nil)
)

type emission struct {
	events []chat.Event
	done   chan error
}

// Option changes how a fake is built.
type Option func(*Fake)

// WithBot names the bot; the default is "fake".
func WithBot(name chat.BotName) Option { return func(f *Fake) { f.bot = name } }

// WithLimiter sets what Limiter gives; the default is nil.
func WithLimiter(l *limiter.RateLimiter) Option { return func(f *Fake) { f.limiter = l } }

// WithCapabilities replaces 4,096 code points with threads.
func WithCapabilities(c chat.Capabilities) Option {
	return func(f *Fake) { f.capabilities = c }
}

// NewFake makes a fake that takes everything.
func NewFake(tb testing.TB, opts ...Option) *Fake {
	tb.Helper()
	f := &Fake{
		bot:          "fake",
		emitted:      make(chan emission),
		wake:         make(chan struct{}, 1),
		capabilities: chat.Capabilities{MaxText: 4096, TextUnit: chat.CodePoints, Threads: true},
		chats:        make(map[chat.ChatID]error),
		gates:        make(map[chat.ChatID]chan struct{}),
	}
	for _, o := range opts {
		o(f)
	}
	return f
}

// Bot is the fake's name.
func (f *Fake) Bot() chat.BotName { return f.bot }

// Capabilities is the same for every target.
func (f *Fake) Capabilities(chat.Target) chat.Capabilities { return f.capabilities }

// Limiter is what WithLimiter set.
func (f *Fake) Limiter() *limiter.RateLimiter { return f.limiter }

// Send takes p, fails as scripted, or hangs. A call that hangs when ctx ends
// is uncertain, like one whose answer never came.
func (f *Fake) Send(ctx context.Context, t chat.Target, p chat.Part) (chat.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	n := f.begin(t, p)
	for gate := f.closedGate(t.Chat); gate != nil; gate = f.closedGate(t.Chat) {
		select {
		case <-gate:
		case <-ctx.Done():
			err := &chat.SendError{Kind: chat.Uncertain, Err: fmt.Errorf("no answer: %w", ctx.Err())}
			return "", f.end(n, err)
		}
	}
	return f.take(n, t, p)
}

func (f *Fake) begin(t chat.Target, p chat.Part) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attempts = append(f.attempts, Attempt{Target: t, Part: p, At: time.Now()})
	return len(f.attempts) - 1
}

func (f *Fake) end(n int, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attempts[n].Err = err
	return err
}

func (f *Fake) closedGate(id chat.ChatID) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gate != nil {
		return f.gate
	}
	return f.gates[id]
}

func (f *Fake) take(n int, t chat.Target, p chat.Part) (chat.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.chats[t.Chat]
	if err == nil && len(f.next) > 0 {
		err, f.next = f.next[0], f.next[1:]
	}
	if err != nil {
		f.attempts[n].Err = err
		return "", err
	}
	d := Delivery{Target: t, Part: p, At: time.Now()}
	d.Receipt = chat.Receipt(fmt.Sprintf("r%d", len(f.deliveries)+1))
	f.deliveries = append(f.deliveries, d)
	f.unread = append(f.unread, d)
	f.signal()
	return d.Receipt, nil
}

// signal is called with the lock held.
func (f *Fake) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// FailOnce lets the next send fail. Several calls queue up; a nil err lets one
// pass in between.
func (f *Fake) FailOnce(err error) { f.FailNext(1, err) }

// FailNext lets the next n sends fail.
func (f *Fake) FailNext(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = append(f.next, slices.Repeat([]error{err}, n)...)
}

// FailChat lets all sends to one chat fail until HealChat.
func (f *Fake) FailChat(id chat.ChatID, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.chats[id] = err
}

// HealChat ends FailChat.
func (f *Fake) HealChat(id chat.ChatID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.chats, id)
}

// Block lets all sends hang until release is called, which may be done twice.
// Those that hang are taken then.
func (f *Fake) Block() (release func()) {
	gate := make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate = gate
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.gate == gate {
			f.gate = nil
		}
		close(gate)
	})
}

// BlockChat is Block for one chat.
func (f *Fake) BlockChat(id chat.ChatID) (release func()) {
	gate := make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gates[id] = gate
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.gates[id] == gate {
			delete(f.gates, id)
		}
		close(gate)
	})
}

// NextDelivery waits for the oldest delivery that it has not yet given. In a
// synctest bubble it waits in fake time.
func (f *Fake) NextDelivery(tb testing.TB) Delivery {
	tb.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		if d, ok := f.pop(); ok {
			return d
		}
		select {
		case <-f.wake:
		case <-timer.C:
			tb.Fatalf("no delivery within %v", patience)
		case <-tb.Context().Done():
			tb.Fatal("no delivery before the test ended")
		}
	}
}

func (f *Fake) pop() (Delivery, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.unread) == 0 {
		return Delivery{}, false
	}
	d := f.unread[0]
	f.unread = f.unread[1:]
	if len(f.unread) > 0 {
		f.signal() // for another reader
	}
	return d, true
}

// Deliveries gives all parts taken so far, in order.
func (f *Fake) Deliveries() []Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.deliveries)
}

// Attempts gives all calls of Send so far, in the order in which they began.
// One that still hangs has no error yet.
func (f *Fake) Attempts() []Attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.attempts)
}

// FailProbe lets Probe fail until it is called with nil.
func (f *Fake) FailProbe(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.probe = err
}

// Probe gives what FailProbe set.
func (f *Fake) Probe(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.probe
}

// FailRun ends a running Run with err, and every later one until FailRun(nil).
func (f *Fake) FailRun(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run = err
	if f.running != nil && err != nil {
		f.running <- err
		f.running = nil
	}
}

// Run hands emitted events to sink, one emission at a time.
func (f *Fake) Run(ctx context.Context, sink adapters.Sink) error {
	failed := make(chan error, 1)
	if err := f.start(failed); err != nil {
		return err
	}
	for {
		select {
		case e := <-f.emitted:
			e.done <- sink(ctx, e.events...)
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *Fake) start(failed chan error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.run == nil {
		f.running = failed
	}
	return f.run
}

// Emit gives events to the running Run as one batch, waits until Run runs if
// need be, and returns what the sink said. Events without a source bot get the
// fake's name.
func (f *Fake) Emit(ctx context.Context, events ...chat.Event) error {
	events = slices.Clone(events)
	for i := range events {
		if events[i].Source.Bot == "" {
			events[i].Source.Bot = f.bot
		}
	}
	e := emission{events: events, done: make(chan error, 1)}
	select {
	case f.emitted <- e:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-e.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
