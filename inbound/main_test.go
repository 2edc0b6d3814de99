package inbound_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/adapters/adaptertest"
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/inbound"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/policy"
	"github.com/chatgateway/gateway/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testBot = chat.BotName("fake")

var errDisk = errors.New("no space left")

// process is the adapter of one run of the gateway.
type process struct {
	*adaptertest.Fake
	limiter *limiter.RateLimiter
}

func (p process) Limiter() *limiter.RateLimiter { return p.limiter }

// disk can fail, for the journal and for the outbox.
type disk struct {
	*sqlite.Store

	mu      sync.Mutex
	err     error
	readErr error
}

func (d *disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// failReads lets only the reading of turns fail.
func (d *disk) failReads(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readErr = err
}

func (d *disk) Unfinished(ctx context.Context, bot chat.BotName, after outbox.TurnID, limit int) ([]inbound.Turn, error) {
	d.mu.Lock()
	err := d.readErr
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return d.Store.Unfinished(ctx, bot, after, limit)
}

func (d *disk) fault() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (d *disk) Apply(ctx context.Context, b outbox.Batch) (outbox.Applied, error) {
	if err := d.fault(); err != nil {
		return outbox.Applied{}, err
	}
	return d.Store.Apply(ctx, b)
}

func (d *disk) Accept(ctx context.Context, in ...inbound.Intake) ([]inbound.Accepted, error) {
	if err := d.fault(); err != nil {
		return nil, err
	}
	return d.Store.Accept(ctx, in...)
}

// run is one run of a handler.
type run struct {
	text    string
	attempt int
	at      time.Time
}

// rig is a pipeline with its store, router and platform, in a bubble.
type rig struct {
	t      *testing.T
	fake   *adaptertest.Fake
	opts   inbound.Options
	grace  time.Duration
	handle func(ctx context.Context, t inbound.Turn) ([]chat.Message, error)

	path     string
	disk     *disk
	router   *delivery.DeliveryRouter
	pipeline *inbound.Pipeline
	ends     []func()

	mu   sync.Mutex
	runs []run
	next int
}

// newRig starts everything. Without a handler each text is answered by "re: "
// and itself.
func newRig(t *testing.T, opts inbound.Options, handle inbound.HandlerFunc) *rig {
	t.Helper()
	r := &rig{t: t, fake: adaptertest.NewFake(t), opts: opts, grace: 5 * time.Second, handle: handle, path: filepath.Join(t.TempDir(), "gateway.db")}
	if handle == nil {
		r.handle = func(_ context.Context, t inbound.Turn) ([]chat.Message, error) {
			return []chat.Message{{Text: "re: " + t.Event.Text}}, nil
		}
	}
	r.start()
	t.Cleanup(func() {
		if len(r.ends) > 0 {
			r.stop()
		}
	})
	return r
}

func (r *rig) Handle(ctx context.Context, t inbound.Turn) ([]chat.Message, error) {
	r.mu.Lock()
	r.runs = append(r.runs, run{text: t.Event.Text, attempt: t.Attempt, at: time.Now()})
	r.mu.Unlock()
	return r.handle(ctx, t)
}

func (r *rig) open() {
	r.t.Helper()
	store, err := sqlite.Open(r.t.Context(), r.path)
	if err != nil {
		r.t.Fatalf("Open() = %v", err)
	}
	l, err := limiter.New(limiter.Config{MessagesPerSecond: 10_000, BurstSize: 1000})
	if err != nil {
		r.t.Fatalf("limiter.New() = %v", err)
	}
	r.disk = &disk{Store: store}
	r.router = delivery.New(r.disk, delivery.Options{})
	if err := r.router.Add(process{Fake: r.fake, limiter: l}, "fake"); err != nil {
		r.t.Fatalf("Add() = %v", err)
	}
	r.pipeline = inbound.New(r.disk, r.router, r.opts)
	r.pipeline.Add(inbound.Bot{Name: testBot, Platform: "fake", Handler: r})
}

func (r *rig) start() {
	r.t.Helper()
	r.open()
	r.launch(func(ctx context.Context) error { return r.router.Run(ctx, testBot, r.grace) })
	r.launch(func(ctx context.Context) error { return r.pipeline.Run(ctx, r.grace) })
	if err := r.pipeline.Recover(r.t.Context(), testBot); err != nil {
		r.t.Fatalf("Recover() = %v", err)
	}
	r.launch(func(ctx context.Context) error { return r.fake.Run(ctx, adapters.Sink(r.pipeline.Accept)) })
}

func (r *rig) launch(f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	synctest.Wait()
	r.ends = append(r.ends, func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("Run() = %v, want nil after a stop", err)
		}
	})
}

// stop ends intake, turns and sends, in this order.
func (r *rig) stop() {
	r.t.Helper()
	for _, end := range slices.Backward(r.ends) {
		end()
	}
	r.ends = nil
	if err := r.disk.Close(); err != nil {
		r.t.Errorf("Close() = %v", err)
	}
}

func (r *rig) restart() {
	r.t.Helper()
	if len(r.ends) > 0 {
		r.stop()
	}
	r.start()
}

func (r *rig) event(id, text string) chat.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	return chat.Event{
		ID: fmt.Sprint("e", r.next), Kind: chat.EventMessage, Source: chat.Target{Bot: testBot, Chat: chat.ChatID(id)},
		Sender: chat.Identity("fake:" + id), Text: text, At: time.Now(),
	}
}

// say lets the platform deliver one event for each text, in one batch.
func (r *rig) say(id string, texts ...string) {
	r.t.Helper()
	events := make([]chat.Event, len(texts))
	for i, s := range texts {
		events[i] = r.event(id, s)
	}
	r.emit(events...)
}

func (r *rig) emit(events ...chat.Event) {
	r.t.Helper()
	if err := r.fake.Emit(r.t.Context(), events...); err != nil {
		r.t.Fatalf("the sink said %v, want nil", err)
	}
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) wantArrived(id string, want ...string) {
	r.t.Helper()
	var got []string
	for _, d := range r.fake.Deliveries() {
		if string(d.Target.Chat) == id {
			got = append(got, d.Part.Text)
		}
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("%s got %q, want %q", id, got, want)
	}
}

// wantRuns compares the handler's runs, written as text#attempt.
func (r *rig) wantRuns(want ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var got []string
	for _, run := range r.runs {
		got = append(got, fmt.Sprintf("%s#%d", run.text, run.attempt))
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("runs %q, want %q", got, want)
	}
}

// forget drops the runs of one text.
func (r *rig) forget(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = slices.DeleteFunc(r.runs, func(x run) bool { return x.text == text })
}

func (r *rig) wantUnfinished(want int) {
	r.t.Helper()
	turns, err := r.disk.Unfinished(r.t.Context(), testBot, 0, 1000)
	if err != nil || len(turns) != want {
		r.t.Errorf("%d turns are unfinished (%v), want %d", len(turns), err, want)
	}
}

// counting is a policy that lets so many through in all, and counts questions.
type counting struct {
	left, asked int
	retry       time.Duration
}

func (c *counting) Check(context.Context, policy.Query) (policy.Decision, error) {
	c.asked++
	c.left--
	if c.left < 0 {
		return policy.Decision{RetryAfter: c.retry}, nil
	}
	return policy.Decision{Allowed: true}, nil
}

func notices(t *testing.T, window time.Duration) *policy.Notices {
	t.Helper()
	n, err := policy.NewNotices(window)
	if err != nil {
		t.Fatalf("NewNotices() = %v", err)
	}
	return n
}
