package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// OnError is the decision about an event whose policy failed.
type OnError int

// The decisions. The zero value is the default.
const (
	// Deny refuses the event.
	Deny OnError = iota
	// Allow lets the event through.
	Allow
)

// String returns the decision's name in the configuration.
func (o OnError) String() string {
	switch o {
	case Deny:
		return "deny"
	case Allow:
		return "allow"
	}
	return fmt.Sprintf("OnError(%d)", int(o))
}

// ParseOnError returns the decision of that name.
func ParseOnError(name string) (OnError, error) {
	for o := Deny; o <= Allow; o++ {
		if o.String() == name {
			return o, nil
		}
	}
	return 0, fmt.Errorf("on_error %q is not one of allow, deny", name)
}

// logPause is how long a Guard says nothing after it logged a failure.
const logPause = time.Second

// Guard makes a policy safe to call: one call at a time unless the policy says
// ConcurrentSafe, and an error or a panic becomes a decision. It is itself
// safe for concurrent use.
type Guard struct {
	policy  RateLimitPolicy
	onError OnError
	log     *slog.Logger
	turn    chan struct{} // holds one token; nil if the policy is safe for concurrent use

	failures atomic.Uint64

	mu     sync.Mutex
	logged time.Time // the query's time of the failure logged last
}

var _ ConcurrentPolicy = (*Guard)(nil)

// NewGuard returns a guard of p. A nil logger logs nothing.
func NewGuard(p RateLimitPolicy, onError OnError, log *slog.Logger) (*Guard, error) {
	if p == nil {
		return nil, errors.New("new guard: there is no policy")
	}
	if onError != Deny && onError != Allow {
		return nil, fmt.Errorf("new guard: unknown decision %v", onError)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	g := &Guard{policy: p, onError: onError, log: log}
	if c, ok := p.(ConcurrentPolicy); !ok || !c.ConcurrentSafe() {
		g.turn = make(chan struct{}, 1)
		g.turn <- struct{}{}
	}
	return g, nil
}

// ConcurrentSafe is true.
func (g *Guard) ConcurrentSafe() bool { return true }

// Failures returns how often the policy returned an error or panicked.
func (g *Guard) Failures() uint64 { return g.failures.Load() }

// Check asks the policy. If that fails, the failure is counted, logged (once a
// second at most) and answered as NewGuard was told. The only error is that
// of ctx, when it ended before the policy had answered: then nothing was decided.
func (g *Guard) Check(ctx context.Context, q Query) (Decision, error) {
	if g.turn != nil {
		select {
		case <-g.turn:
			defer func() { g.turn <- struct{}{} }()
		case <-ctx.Done():
			return Decision{}, fmt.Errorf("wait for the policy: %w", ctx.Err())
		}
	}
	d, err := g.ask(ctx, q)
	if err == nil {
		return d, nil
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return Decision{}, err
	}
	g.failures.Add(1)
	if g.mayLog(q.Now) {
		g.log.ErrorContext(ctx, "rate limit policy failed", "kind", g.onError, "err", err)
		if p, ok := errors.AsType[*PanicError](err); ok {
			g.log.DebugContext(ctx, "rate limit policy panicked", "err", string(p.Stack))
		}
	}
	return Decision{Allowed: g.onError == Allow}, nil
}

// mayLog is true if no failure was logged within the pause before now.
func (g *Guard) mayLog(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if since := now.Sub(g.logged); !g.logged.IsZero() && since >= 0 && since < logPause {
		return false
	}
	g.logged = now
	return true
}

// ask calls the policy and turns a panic into an error.
func (g *Guard) ask(ctx context.Context, q Query) (d Decision, err error) {
	defer func() {
		if v := recover(); v != nil {
			d, err = Decision{}, &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	d, err = g.policy.Check(ctx, q)
	if err != nil {
		return Decision{}, fmt.Errorf("check: %w", err)
	}
	return d, nil
}

// PanicError is the panic of a policy.
type PanicError struct {
	Value any    // what it panicked with
	Stack []byte // where
}

// Error returns the value that the policy panicked with.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }
