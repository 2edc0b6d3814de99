package limiter_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chatgateway/gateway/limiter"
)

const (
	propDelay = 300 * time.Millisecond
	propEvery = 250 * time.Millisecond // of the token's bucket
	propBurst = 5
)

var propRule = limiter.Rule{Every: 700 * time.Millisecond, Burst: 3}

func propLimiter(tb failer) *limiter.RateLimiter {
	return newLimiter(tb, float64(time.Second/propEvery), propBurst, propDelay, limiter.WithChannelRules(limiter.ChannelRules{Chat: propRule}))
}

// slot is one granted reservation.
type slot struct {
	r         limiter.Reservation
	c         limiter.Call
	v         time.Duration
	cancelled bool
}

// world drives a limiter and remembers what it granted. v is the time that has
// passed: the sum of the clock's steps forward, since a step back takes none away.
type world struct {
	l     *limiter.RateLimiter
	now   time.Time
	v     time.Duration
	slots []*slot
	ends  map[limiter.Bucket]time.Duration // of penalties
}

func newWorld(tb failer) *world {
	return &world{l: propLimiter(tb), now: start, ends: map[limiter.Bucket]time.Duration{}}
}

func (w *world) step(d time.Duration) {
	w.now = w.now.Add(d)
	w.v += max(d, 0)
}

func drawCall(t *rapid.T) limiter.Call {
	return limiter.Call{
		Channel: rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "channel"),
		Method:  rapid.SampledFrom([]string{"", "m"}).Draw(t, "method"),
		Cost:    rapid.SampledFrom([]int{0, 1, 1, 1, 2, 3}).Draw(t, "cost"),
	}
}

func cost(c limiter.Call) int { return max(c.Cost, 1) }

func (w *world) reserve(t *rapid.T) {
	c := drawCall(t)
	r, next, ok := w.l.TryReserve(w.now, c)
	if !ok {
		if !next.After(w.now) && !next.IsZero() {
			t.Fatalf("refused until %v, which is not after %v", next, w.now)
		}
		return
	}
	for _, b := range []limiter.Bucket{{}, {Channel: c.Channel}, {Method: c.Method}, {Channel: c.Channel, Method: c.Method}} {
		if w.v < w.ends[b] {
			t.Fatalf("%+v granted %v before the penalty on %+v ends", c, w.ends[b]-w.v, b)
		}
	}
	w.slots = append(w.slots, &slot{r: r, c: c, v: w.v})
}

func (w *world) cancel(t *rapid.T) {
	if len(w.slots) == 0 {
		return
	}
	s := w.slots[rapid.IntRange(0, len(w.slots)-1).Draw(t, "which")]
	s.r.Cancel(w.now)
	s.cancelled = true
}

func (w *world) penalise(t *rapid.T) {
	c := drawCall(t)
	b := limiter.Bucket{Channel: c.Channel, Method: c.Method}
	d := time.Duration(rapid.Int64Range(-1e9, 3e9).Draw(t, "penalty"))
	w.l.PenaliseAt(w.now, b, d)
	w.ends[b] = max(w.ends[b], w.v+max(d, 50*time.Millisecond))
}

func (w *world) forward(t *rapid.T) {
	w.step(time.Duration(rapid.OneOf(rapid.Int64Range(0, 1e9), rapid.Just(int64(propEvery)), rapid.Int64Range(0, 1e10)).Draw(t, "forward")))
}

func (w *world) back(t *rapid.T) {
	w.step(-time.Duration(rapid.OneOf(rapid.Int64Range(0, 5e6), rapid.Int64Range(2e7, 1e10), rapid.Int64Range(0, 1e17)).Draw(t, "back")))
}

// check looks at every run of grants: a bucket lets through burst slots and
// one more for each every that passed between the first and the last.
func (w *world) check(t *rapid.T, name string, every time.Duration, burst int, weight func(limiter.Call) int) {
	for i := range w.slots {
		sum := 0
		for _, s := range w.slots[i:] {
			if s.cancelled {
				continue
			}
			sum += weight(s.c)
			passed := s.v - w.slots[i].v
			if time.Duration(sum-burst)*every > passed && weight(s.c) > 0 {
				t.Fatalf("%s: %d slots in %v, want at most %d and one per %v", name, sum, passed, burst, every)
			}
		}
	}
}

func TestProperty_noIntervalHoldsMoreThanTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"reserve": w.reserve, "reserve again": w.reserve, "reserve once more": w.reserve,
			"cancel": w.cancel, "penalise": w.penalise, "forward": w.forward, "back": w.back,
		})
		w.check(t, "token", propEvery, propBurst, cost)
		for _, ch := range []string{"a", "b", "c"} {
			w.check(t, "delay of "+ch, propDelay, 1, func(c limiter.Call) int {
				if c.Channel == ch {
					return 1
				}
				return 0
			})
			w.check(t, "rule of "+ch, propRule.Every, propRule.Burst, func(c limiter.Call) int {
				if c.Channel == ch {
					return cost(c)
				}
				return 0
			})
		}
	})
}

// replayed returns the level of a bucket that was asked for those slots alone
// that were not cancelled.
func (w *world) replayed(every time.Duration, weight func(limiter.Call) int) time.Duration {
	var full time.Duration
	for _, s := range w.slots {
		if n := weight(s.c); n > 0 && !s.cancelled {
			full = max(full, s.v) + time.Duration(n)*every
		}
	}
	return max(full-w.v, 0)
}

// TestProperty_cancelGivesBackWhatWasTaken compares with a limiter that never
// saw the cancelled calls: a bucket then has exactly the same level.
func TestProperty_cancelGivesBackWhatWasTaken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"reserve": w.reserve, "reserve again": w.reserve, "cancel": w.cancel, "forward": w.forward,
			"back": func(t *rapid.T) { w.step(-time.Duration(rapid.Int64Range(2e7, 1e12).Draw(t, "back"))) },
			"": func(t *rapid.T) {
				a := w.l.Snapshot(w.now)
				want := propBurst - float64(w.replayed(propEvery, cost))/float64(propEvery)
				if d := a.Tokens - want; d > 1e-9 || d < -1e-9 {
					t.Fatalf("the bucket holds %v slots, want %v", a.Tokens, want)
				}
				got := map[string]limiter.ChannelAnchor{}
				for _, c := range a.Channels {
					got[c.Channel] = c
				}
				for _, ch := range []string{"a", "b", "c"} {
					of := func(n func(limiter.Call) int) func(limiter.Call) int {
						return func(c limiter.Call) int {
							if c.Channel != ch {
								return 0
							}
							return n(c)
						}
					}
					gap := w.replayed(propDelay, of(func(limiter.Call) int { return 1 }))
					rule := w.replayed(propRule.Every, of(cost))
					if g := max(got[ch].DelayUntil.Sub(w.now), 0); g != gap {
						t.Fatalf("delay of %s is over in %v, want %v", ch, g, gap)
					}
					if g := max(got[ch].RuleUntil.Sub(w.now), 0); g != rule {
						t.Fatalf("rule of %s is over in %v, want %v", ch, g, rule)
					}
				}
			},
		})
	})
}

func TestProperty_restoreNeverGrantsMoreThanGoingOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		stored := map[string]limiter.ChannelAnchor{}
		var last limiter.Anchors
		t.Repeat(map[string]func(*rapid.T){
			"reserve": w.reserve, "reserve again": w.reserve, "cancel": w.cancel, "penalise": w.penalise, "forward": w.forward,
			"store": func(t *rapid.T) {
				a, changed := w.l.TakeAnchors(w.now)
				if !changed {
					return
				}
				if rapid.Bool().Draw(t, "commit fails") {
					w.l.ReturnAnchors(a)
					return
				}
				for _, c := range a.Channels {
					stored[fmt.Sprintf("%q %q", c.Channel, c.Method)] = c
				}
				last = a
			},
		})
		clean := rapid.Bool().Draw(t, "clean")
		var a limiter.Anchors
		if clean {
			a = w.l.Snapshot(w.now)
			a.Clean = true
		} else {
			if extra, changed := w.l.TakeAnchors(w.now); changed {
				for _, c := range extra.Channels {
					stored[fmt.Sprintf("%q %q", c.Channel, c.Method)] = c
				}
				last = extra
			}
			a = last
			a.Channels = nil
			for _, c := range stored {
				a.Channels = append(a.Channels, c)
			}
		}
		if a.At.IsZero() {
			return // nothing happened
		}
		w.forward(t)
		restored := propLimiter(t)
		restored.Restore(w.now, a)
		w.forward(t)
		c := drawCall(t)
		c.Cost = 0
		if got, most := granted(restored, w.now, c), granted(w.l, w.now, c); got > most {
			t.Fatalf("restored grants %d for %+v, going on %d", got, c, most)
		}
	})
}
