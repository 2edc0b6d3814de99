package policy_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/policy"
)

// checkFunc is a policy made of a function.
type checkFunc func(ctx context.Context, q policy.Query) (policy.Decision, error)

func (f checkFunc) Check(ctx context.Context, q policy.Query) (policy.Decision, error) {
	return f(ctx, q)
}

// concurrent is one that says that it is safe.
type concurrent struct{ checkFunc }

func (concurrent) ConcurrentSafe() bool { return true }

var errDown = errors.New("redis is down")

func newGuard(tb testing.TB, p policy.RateLimitPolicy, o policy.OnError, log *slog.Logger) *policy.Guard {
	tb.Helper()
	g, err := policy.NewGuard(p, o, log)
	if err != nil {
		tb.Fatalf("NewGuard() = %v", err)
	}
	return g
}

func TestGuard_answersForAFailedPolicy(t *testing.T) {
	tests := []struct {
		name string
		p    checkFunc
		log  string
	}{
		{"an error", func(context.Context, policy.Query) (policy.Decision, error) {
			return policy.Decision{Allowed: true}, errDown
		}, "redis is down"},
		{"a panic", func(context.Context, policy.Query) (policy.Decision, error) { panic("out of cheese") }, "out of cheese"},
		{"a runtime error", func(_ context.Context, q policy.Query) (policy.Decision, error) {
			return policy.Decision{RetryAfter: time.Duration(q.Scope[7])}, nil
		}, "index out of range"},
	}
	for _, tt := range tests {
		for _, o := range []policy.OnError{policy.Deny, policy.Allow} {
			t.Run(tt.name+", "+o.String(), func(t *testing.T) {
				var buf bytes.Buffer
				g := newGuard(t, tt.p, o, slog.New(slog.NewTextHandler(&buf, nil)))
				for i := range 3 { // a second call shows that the first released its turn
					d, err := g.Check(t.Context(), policy.Query{Identity: "a", Now: at(float64(i) * 0.6)})
					if err != nil || d.Allowed != (o == policy.Allow) || d.RetryAfter != 0 {
						t.Errorf("Check() = %+v, %v, want allowed %v", d, err, o == policy.Allow)
					}
				}
				if got := g.Failures(); got != 3 {
					t.Errorf("Failures() = %d, want 3", got)
				}
				if got := strings.Count(buf.String(), tt.log); got != 2 {
					t.Errorf("logged %d times, want 2 in 1.2 s: %s", got, buf.String())
				}
			})
		}
	}
}

func TestGuard_callsOneAtATimeUnlessSafe(t *testing.T) {
	for _, safe := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var inside, most atomic.Int64
			f := checkFunc(func(context.Context, policy.Query) (policy.Decision, error) {
				most.Store(max(most.Load(), inside.Add(1)))
				time.Sleep(time.Second)
				inside.Add(-1)
				return policy.Decision{Allowed: true}, nil
			})
			var p policy.RateLimitPolicy = f
			if safe {
				p = concurrent{f}
			}
			g := newGuard(t, p, policy.Deny, nil)
			begin := time.Now()
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					if d, err := g.Check(t.Context(), policy.Query{Now: begin}); err != nil || !d.Allowed {
						t.Errorf("Check() = %+v, %v", d, err)
					}
				})
			}
			wg.Wait()
			want := 4 * time.Second
			if safe {
				want = time.Second
			}
			if got := time.Since(begin); got != want {
				t.Errorf("safe %v: four calls took %v, want %v", safe, got, want)
			}
		})
	}
}

func TestGuard_contextEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := newGuard(t, checkFunc(func(ctx context.Context, _ policy.Query) (policy.Decision, error) {
			select {
			case <-release:
				return policy.Decision{Allowed: true}, nil
			case <-ctx.Done():
				return policy.Decision{}, ctx.Err()
			}
		}), policy.Allow, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			if d, err := g.Check(t.Context(), policy.Query{Now: start}); err != nil || !d.Allowed {
				t.Errorf("Check() = %+v, %v", d, err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if d, err := g.Check(ctx, policy.Query{Now: start}); !errors.Is(err, context.DeadlineExceeded) || d.Allowed {
			t.Errorf("Check() = %+v, %v, want the deadline and no decision", d, err)
		}
		close(release)
		wg.Wait()
		if got := g.Failures(); got != 0 {
			t.Errorf("Failures() = %d, want 0: the policy didn't fail", got)
		}
	})
}

func TestNewGuard_refusesNonsense(t *testing.T) {
	if _, err := policy.NewGuard(nil, policy.Deny, nil); err == nil {
		t.Error("NewGuard(nil) = nil error")
	}
	if _, err := policy.NewGuard(concurrent{}, 7, nil); err == nil {
		t.Error("NewGuard() with an unknown decision = nil error")
	}
	for _, o := range []policy.OnError{policy.Deny, policy.Allow} {
		if got, err := policy.ParseOnError(o.String()); err != nil || got != o {
			t.Errorf("ParseOnError(%v) = %v, %v", o, got, err)
		}
	}
	if _, err := policy.ParseOnError("maybe"); err == nil {
		t.Error("ParseOnError(maybe) = nil error")
	}
}

func TestNotices_oncePerWindow(t *testing.T) {
	n, err := policy.NewNotices(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	q := func(id string, s float64) policy.Query { return policy.Query{Identity: id, Scope: "bot", Now: at(s)} }
	for i, tt := range []struct {
		q    policy.Query
		want bool
	}{
		{q("a", 0), true},
		{q("a", 1), false},
		{q("b", 1), true},
		{q("a", 9.999), false},
		{q("a", 10), true},
		{q("a", -86400), false},
		{q("a", -86391), false},
		{q("a", -86390), true},
		{policy.Query{Identity: "c"}, false},
	} {
		if got := n.Due(tt.q); got != tt.want {
			t.Errorf("step %d: Due() = %v, want %v", i, got, tt.want)
		}
	}
	n.SetBound(3)
	for i, id := range []string{"a", "b", "c"} {
		if !n.Due(q(id, float64(i))) {
			t.Errorf("%s is not told", id)
		}
	}
	if n.Due(q("d", 3)) {
		t.Error("one more than the bound is told")
	}
	if !n.Due(q("d", 10)) || n.Due(q("b", 10)) {
		t.Error("want d in the place of a, whose window is over, and b told already")
	}
	for _, bad := range []time.Duration{0, -1, 1<<63 - 1} {
		if _, err := policy.NewNotices(bad); err == nil {
			t.Errorf("NewNotices(%v) = nil error", bad)
		}
	}
}
