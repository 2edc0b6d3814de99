package policy_test

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/chatgateway/gateway/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return start.Add(time.Duration(math.Round(seconds * float64(time.Second))))
}

// failer is a testing.TB or a rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func newPolicy(tb failer, cfg policy.SlidingWindowConfig) *policy.SlidingWindowRateLimitPolicy {
	tb.Helper()
	p, err := policy.NewSlidingWindowRateLimitPolicy(cfg)
	if err != nil {
		tb.Fatalf("NewSlidingWindowRateLimitPolicy(%+v) = %v", cfg, err)
	}
	return p
}

func check(tb failer, p policy.RateLimitPolicy, identity string, now time.Time) policy.Decision {
	tb.Helper()
	d, err := p.Check(nil, policy.Query{Identity: identity, Scope: "bot", Now: now}) //nolint:staticcheck // no context is needed
	if err != nil {
		tb.Fatalf("Check() = %v", err)
	}
	if d.Allowed && d.RetryAfter != 0 || !d.Allowed && d.RetryAfter <= 0 {
		tb.Fatalf("Check() = %+v, want a wait if refused and none if allowed", d)
	}
	return d
}

func TestNewSlidingWindow_namesTheBadField(t *testing.T) {
	good := policy.DefaultSlidingWindowConfig()
	if good != (policy.SlidingWindowConfig{MaxRequests: 0, Window: time.Minute, Lockout: 0, Algorithm: policy.AlgorithmWindow}) {
		t.Errorf("DefaultSlidingWindowConfig() = %+v", good)
	}
	tests := []struct {
		name  string
		edit  func(*policy.SlidingWindowConfig)
		field string
	}{
		{"negative maximum", func(c *policy.SlidingWindowConfig) { c.MaxRequests = -1 }, "MaxRequests"},
		{"absurd maximum", func(c *policy.SlidingWindowConfig) { c.MaxRequests = math.MaxInt }, "MaxRequests"},
		{"a log too long", func(c *policy.SlidingWindowConfig) { c.MaxRequests, c.Algorithm = 10_001, policy.AlgorithmSlidingLog }, "MaxRequests"},
		{"no window", func(c *policy.SlidingWindowConfig) { c.Window = 0 }, "Window"},
		{"negative window", func(c *policy.SlidingWindowConfig) { c.Window = -1 }, "Window"},
		{"negative lockout", func(c *policy.SlidingWindowConfig) { c.Lockout = -1 }, "Lockout"},
		{"absurd lockout", func(c *policy.SlidingWindowConfig) { c.Lockout = math.MaxInt64 }, "Lockout"},
		{"unknown algorithm", func(c *policy.SlidingWindowConfig) { c.Algorithm = 7 }, "Algorithm"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := good
			tt.edit(&cfg)
			if _, err := policy.NewSlidingWindowRateLimitPolicy(cfg); err == nil || !strings.Contains(err.Error(), tt.field+":") {
				t.Errorf("New(%+v) = %v, want an error that names %s", cfg, err, tt.field)
			}
		})
	}
	for _, name := range []string{"window", "sliding_log"} {
		if a, err := policy.ParseAlgorithm(name); err != nil || a.String() != name {
			t.Errorf("ParseAlgorithm(%q) = %v, %v", name, a, err)
		}
	}
	if _, err := policy.ParseAlgorithm(""); err == nil {
		t.Error("ParseAlgorithm() of nothing = nil error")
	}
}

func TestCheck_offAllowsEverything(t *testing.T) {
	p := newPolicy(t, policy.DefaultSlidingWindowConfig())
	if p.Enabled() || !p.ConcurrentSafe() {
		t.Errorf("Enabled() = %v, ConcurrentSafe() = %v, want false, true", p.Enabled(), p.ConcurrentSafe())
	}
	for range 1000 {
		if d := check(t, p, "a", start); !d.Allowed {
			t.Fatal("a policy that is off refuses")
		}
	}
	if (policy.Decision{}).Allowed {
		t.Error("the zero Decision allows")
	}
}

func TestCheck_wantsATime(t *testing.T) {
	p := newPolicy(t, policy.SlidingWindowConfig{MaxRequests: 1, Window: time.Second})
	if d, err := p.Check(t.Context(), policy.Query{Identity: "a"}); !errors.Is(err, policy.ErrNoTime) || d.Allowed {
		t.Errorf("Check() = %+v, %v, want ErrNoTime", d, err)
	}
}

func TestCheck_table(t *testing.T) {
	type step struct {
		at      float64
		allowed bool
		retry   float64 // seconds
	}
	const w, l = policy.AlgorithmWindow, policy.AlgorithmSlidingLog
	tests := []struct {
		name    string
		most    int
		window  time.Duration
		lockout time.Duration
		only    []policy.Algorithm
		steps   []step
	}{
		{
			name: "the window's end is outside", most: 1, window: 10 * time.Second, only: []policy.Algorithm{w, l},
			steps: []step{{0, true, 0}, {9.999, false, 0.001}, {10, true, 0}, {10, false, 10}, {20, true, 0}},
		},
		{
			name: "one per tenth of a second", most: 1, window: 100 * time.Millisecond, only: []policy.Algorithm{w, l},
			steps: []step{{0, true, 0}, {0, false, 0.1}, {0.1, true, 0}, {0.15, false, 0.05}, {0.2, true, 0}},
		},
		{
			name: "a denial keeps the window", most: 2, window: 10 * time.Second, only: []policy.Algorithm{w, l},
			steps: []step{{0, true, 0}, {1, true, 0}, {2, false, 8}, {5, false, 5}, {9.5, false, 0.5}, {10, true, 0}},
		},
		{
			name: "two windows meet at the seam", most: 2, window: 10 * time.Second, only: []policy.Algorithm{w},
			steps: []step{{0, true, 0}, {9, true, 0}, {10, true, 0}, {10, true, 0}, {10, false, 10}},
		},
		{
			name: "a log has no seam", most: 2, window: 10 * time.Second, only: []policy.Algorithm{l},
			steps: []step{{0, true, 0}, {9, true, 0}, {10, true, 0}, {10, false, 9}, {19, true, 0}, {19, false, 1}},
		},
		{
			name: "a lock lasts its time and then a new window starts", most: 1, window: 10 * time.Second, lockout: 60 * time.Second, only: []policy.Algorithm{w, l},
			steps: []step{{0, true, 0}, {5, false, 60}, {5, false, 60}, {30, false, 35}, {64.999, false, 0.001}, {65, true, 0}, {66, false, 60}},
		},
		{
			name: "a lock shorter than the window drops the window", most: 1, window: time.Hour, lockout: time.Second, only: []policy.Algorithm{w, l},
			steps: []step{{0, true, 0}, {1, false, 1}, {1.5, false, 0.5}, {2, true, 0}},
		},
		{
			name: "a step back lengthens nothing", most: 1, window: 10 * time.Second, only: []policy.Algorithm{w, l},
			steps: []step{{0, true, 0}, {4, false, 6}, {-86400, false, 6}, {-86395, false, 1}, {-86394, true, 0}},
		},
		{
			name: "a step back lengthens no lock", most: 1, window: 10 * time.Second, lockout: 20 * time.Second, only: []policy.Algorithm{w, l},
			steps: []step{{0, true, 0}, {0, false, 20}, {-5e9, false, 20}, {-5e9 + 20, true, 0}, {5e9, true, 0}},
		},
	}
	for _, tt := range tests {
		for _, a := range tt.only {
			t.Run(tt.name+", "+a.String(), func(t *testing.T) {
				p := newPolicy(t, policy.SlidingWindowConfig{MaxRequests: tt.most, Window: tt.window, Lockout: tt.lockout, Algorithm: a})
				for i, s := range tt.steps {
					want := policy.Decision{Allowed: s.allowed, RetryAfter: time.Duration(math.Round(s.retry * 1e9))}
					if got := check(t, p, "a", at(s.at)); got != want {
						t.Fatalf("step %d at %v s: Check() = %+v, want %+v", i, s.at, got, want)
					}
				}
			})
		}
	}
}

func TestCheck_persistentIdentityGetsItsShare(t *testing.T) {
	for _, a := range []policy.Algorithm{policy.AlgorithmWindow, policy.AlgorithmSlidingLog} {
		p := newPolicy(t, policy.SlidingWindowConfig{MaxRequests: 10, Window: time.Minute, Algorithm: a})
		n := 0
		for s := 0; s < 600; s += 3 {
			if check(t, p, "a", at(float64(s))).Allowed {
				n++
			}
		}
		if n != 100 {
			t.Errorf("%v: %d of 200 pass in ten minutes, want 100", a, n)
		}
	}
}

func TestCheck_scopesAndIdentitiesAreApart(t *testing.T) {
	p := newPolicy(t, policy.SlidingWindowConfig{MaxRequests: 1, Window: time.Minute})
	for _, q := range []policy.Query{
		{Identity: "a", Scope: "b", Now: start},
		{Identity: "b", Scope: "a", Now: start},
		{Identity: "ab", Scope: "", Now: start},
		{Identity: "", Scope: "ab", Now: start},
		{Identity: "", Scope: "", Now: start},
	} {
		for i, want := range []bool{true, false} {
			if d, err := p.Check(t.Context(), q); err != nil || d.Allowed != want {
				t.Errorf("Check(%+v) number %d = %+v, %v, want allowed %v", q, i, d, err, want)
			}
		}
	}
}

func TestCheck_admitsExactlyTheMaximumConcurrently(t *testing.T) {
	for _, a := range []policy.Algorithm{policy.AlgorithmWindow, policy.AlgorithmSlidingLog} {
		p := newPolicy(t, policy.SlidingWindowConfig{MaxRequests: 100, Window: time.Hour, Algorithm: a})
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 200 {
					if d, err := p.Check(t.Context(), policy.Query{Identity: "a", Now: start}); err == nil && d.Allowed {
						allowed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if got := allowed.Load(); got != 100 {
			t.Errorf("%v: %d admitted, want 100", a, got)
		}
	}
}

func TestCheck_churnDoesNotFreeTheLocked(t *testing.T) {
	for _, a := range []policy.Algorithm{policy.AlgorithmWindow, policy.AlgorithmSlidingLog} {
		for _, lockout := range []time.Duration{0, time.Hour} {
			p := newPolicy(t, policy.SlidingWindowConfig{MaxRequests: 2, Window: time.Hour, Lockout: lockout, Algorithm: a})
			p.SetBounds(1000, 1<<20)
			for range 3 {
				check(t, p, "attacker", start)
			}
			check(t, p, "at the ceiling", start)
			check(t, p, "at the ceiling", start)
			for i := range 20_000 {
				if !check(t, p, strconv.Itoa(i), at(float64(i)/1000)).Allowed {
					t.Fatalf("%v: newcomer %d is refused", a, i)
				}
			}
			if check(t, p, "attacker", at(30)).Allowed {
				t.Errorf("%v, lockout %v: churn freed the attacker", a, lockout)
			}
			if check(t, p, "at the ceiling", at(30)).Allowed {
				t.Errorf("%v, lockout %v: churn freed who used all requests", a, lockout)
			}
		}
	}
}

func TestCheck_logsAreBounded(t *testing.T) {
	p := newPolicy(t, policy.SlidingWindowConfig{MaxRequests: 64, Window: time.Hour, Algorithm: policy.AlgorithmSlidingLog})
	p.SetBounds(1000, 4096)
	for range 65 {
		check(t, p, "attacker", start)
	}
	for i := range 500 {
		for range 64 {
			check(t, p, strconv.Itoa(i), at(float64(i)/1000))
		}
		if got := p.Stamps(); got > 4096+64 {
			t.Fatalf("%d requests are remembered, want 4096 and one log at most", got)
		}
	}
	if check(t, p, "attacker", at(1)).Allowed {
		t.Error("full logs freed the attacker")
	}
}

// TestProperty_neverMoreThanTheMaximum compares with a model that keeps the
// whole history: the same decision each time, whatever the clock does.
func TestProperty_neverMoreThanTheMaximum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := policy.SlidingWindowConfig{
			MaxRequests: rapid.IntRange(1, 6).Draw(t, "max"),
			Window:      time.Duration(rapid.Int64Range(1, 2e9).Draw(t, "window")),
			Lockout:     time.Duration(rapid.SampledFrom([]int64{0, 0, 1, 5e8, 3e9}).Draw(t, "lockout")),
			Algorithm:   rapid.SampledFrom([]policy.Algorithm{policy.AlgorithmWindow, policy.AlgorithmSlidingLog}).Draw(t, "algorithm"),
		}
		p := newPolicy(t, cfg)
		now, passed := start, time.Duration(0)
		type state struct {
			log    []time.Duration // allowed, since the lock before
			window time.Duration   // its start
			locked time.Duration   // until
		}
		ids := map[string]*state{"a": {locked: -1}, "b": {locked: -1}}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch d := rapid.Int64Range(-1, 6e8).Draw(t, "forward"); {
			case d < 0:
				now = now.Add(-time.Duration(rapid.Int64Range(2e7, 1e15).Draw(t, "back")))
			default:
				d *= rapid.Int64Range(0, 1).Draw(t, "moves")
				now, passed = now.Add(time.Duration(d)), passed+time.Duration(d)
			}
			id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id")
			s, got := ids[id], check(t, p, id, now)
			want := policy.Decision{Allowed: true}
			var inside []time.Duration
			for _, x := range s.log {
				if cfg.Algorithm == policy.AlgorithmSlidingLog && passed-x < cfg.Window || cfg.Algorithm == policy.AlgorithmWindow && x >= s.window && passed-s.window < cfg.Window {
					inside = append(inside, x)
				}
			}
			switch {
			case passed < s.locked:
				want = policy.Decision{RetryAfter: s.locked - passed}
			case len(inside) < cfg.MaxRequests:
				if len(inside) == 0 {
					s.window = passed
				}
				s.log = append(inside, passed)
			case cfg.Lockout > 0:
				s.locked, s.log = passed+cfg.Lockout, nil
				want = policy.Decision{RetryAfter: cfg.Lockout}
			default:
				want = policy.Decision{RetryAfter: cfg.Window - (passed - inside[0])}
			}
			if got != want {
				t.Fatalf("Check(%s) after %v = %+v, want %+v", id, passed, got, want)
			}
		}
	})
}

// TestProperty_boundedStoreForgetsNoLock drives a tiny store with many
// identities: whoever was locked stays so while others can be forgotten.
func TestProperty_boundedStoreForgetsNoLock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPolicy(t, policy.SlidingWindowConfig{MaxRequests: 1, Window: time.Hour, Lockout: time.Hour})
		p.SetBounds(8, 0)
		locked := map[string]bool{}
		for i := range rapid.IntRange(1, 200).Draw(t, "steps") {
			id := fmt.Sprint(rapid.IntRange(0, 30).Draw(t, "id"))
			if len(locked) == 6 && !locked[id] {
				check(t, p, fmt.Sprint("new", i), start)
				continue
			}
			allowed := check(t, p, id, start).Allowed
			if allowed && locked[id] {
				t.Fatalf("%s was locked and is allowed", id)
			}
			if !allowed {
				locked[id] = true
			}
		}
		for id := range locked {
			if check(t, p, id, start).Allowed {
				t.Fatalf("%s was locked and is allowed", id)
			}
		}
	})
}
