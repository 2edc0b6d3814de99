package storetest

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/chatgateway/gateway/limiter"
)

// limitsWorld runs a store beside the model and remembers what was granted.
// passed is the sum of the clock's steps forward.
type limitsWorld struct {
	store, model limiter.Store
	scope        string
	now          time.Time
	passed       time.Duration
	slots        []*limitsSlot
	ends         map[limiter.Bucket]time.Duration // of penalties
}

type limitsSlot struct {
	ask       limiter.Ask
	ticket    limiter.Ticket
	use       time.Duration
	cancelled bool
}

// limitsMachine does the same with the store and the model, and looks at what was granted.
func limitsMachine(t *rapid.T, store limiter.Store, n int) {
	w := &limitsWorld{store: store, model: NewLimits(), scope: fmt.Sprint(n), now: start.Truncate(time.Millisecond), ends: map[limiter.Bucket]time.Duration{}}
	t.Repeat(map[string]func(*rapid.T){
		"reserve": w.reserve, "reserve again": w.reserve, "reserve once more": w.reserve,
		"cancel": w.cancel, "penalise": w.penalise,
		"forward": func(t *rapid.T) { w.step(rapid.Int64Range(0, 4000).Draw(t, "ms")) },
		"back":    func(t *rapid.T) { w.step(-rapid.Int64Range(0, 1e7).Draw(t, "ms")) },
	})
	w.check(t)
}

func (w *limitsWorld) step(ms int64) {
	w.now = w.now.Add(time.Duration(ms) * time.Millisecond)
	w.passed += max(time.Duration(ms)*time.Millisecond, 0)
}

func (w *limitsWorld) ask(t *rapid.T) limiter.Ask {
	return limiter.Ask{
		Scope: w.scope, At: w.now,
		Mode: rapid.SampledFrom([]limiter.Mode{limiter.Try, limiter.Ahead, limiter.Ahead, limiter.Take}).Draw(t, "mode"),
		Call: limiter.Call{
			Channel: rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "channel"),
			Method:  rapid.SampledFrom([]string{"", "m"}).Draw(t, "method"),
			Cost:    rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "cost"),
		},
		Token:   limiter.Rule{Every: 500 * time.Millisecond, Burst: 4},
		Ceiling: limiter.Rule{Every: 650 * time.Millisecond, Burst: 3},
		Delay:   limiter.Rule{Every: 300 * time.Millisecond, Burst: 1},
		Rule:    limiter.Rule{Every: 1700 * time.Millisecond, Burst: 2},
	}
}

func (w *limitsWorld) reserve(t *rapid.T) {
	a := w.ask(t)
	got, err := w.store.Reserve(t.Context(), a)
	want, _ := w.model.Reserve(t.Context(), a)
	if err != nil || got != want {
		t.Fatalf("Reserve(%+v) = %+v, %v; the model says %+v", a, got, err, want)
	}
	if !got.Granted || a.Mode == limiter.Take {
		return
	}
	use := w.passed + got.Wait
	for _, b := range []limiter.Bucket{{}, {Channel: a.Call.Channel}, {Method: a.Call.Method}, {Channel: a.Call.Channel, Method: a.Call.Method}} {
		if use < w.ends[b] {
			t.Fatalf("Reserve(%+v) grants %v before the penalty on %+v ends", a.Call, w.ends[b]-use, b)
		}
	}
	w.slots = append(w.slots, &limitsSlot{ask: a, ticket: got.Ticket, use: use})
}

func (w *limitsWorld) cancel(t *rapid.T) {
	if len(w.slots) == 0 {
		return
	}
	s := w.slots[rapid.IntRange(0, len(w.slots)-1).Draw(t, "which")]
	if s.cancelled {
		return
	}
	s.cancelled, s.ask.At = true, w.now
	if err := w.store.Cancel(t.Context(), s.ask, s.ticket); err != nil {
		t.Fatalf("Cancel() failed: %v", err)
	}
	_ = w.model.Cancel(t.Context(), s.ask, s.ticket)
}

func (w *limitsWorld) penalise(t *rapid.T) {
	a := w.ask(t)
	b, d := limiter.Bucket{Channel: a.Call.Channel, Method: a.Call.Method}, time.Duration(rapid.Int64Range(50, 3000).Draw(t, "ms"))*time.Millisecond
	if err := w.store.Penalise(t.Context(), a, b, d); err != nil {
		t.Fatalf("Penalise() failed: %v", err)
	}
	_ = w.model.Penalise(t.Context(), a, b, d)
	w.ends[b] = max(w.ends[b], w.passed+d)
}

// check looks at every run of slots, in the order of their use: a bucket lets
// through its burst and one more for each every that passed.
func (w *limitsWorld) check(t *rapid.T) {
	slots := slices.DeleteFunc(slices.Clone(w.slots), func(s *limitsSlot) bool { return s.cancelled })
	slices.SortStableFunc(slots, func(a, b *limitsSlot) int { return int(a.use - b.use) })
	for i, first := range slots {
		used := map[string]int{}
		for _, s := range slots[i:] {
			c := s.ask.Call
			used["token"] += c.Cost
			w.within(t, "token", used["token"], s.use-first.use, s.ask.Token)
			w.within(t, "ceiling", used["token"], s.use-first.use, s.ask.Ceiling)
			if c.Channel == "" || c.Channel != first.ask.Call.Channel {
				continue
			}
			used["calls"]++
			used["rule"] += c.Cost
			w.within(t, "delay", used["calls"], s.use-first.use, s.ask.Delay)
			w.within(t, "rule", used["rule"], s.use-first.use, s.ask.Rule)
		}
	}
}

func (w *limitsWorld) within(t *rapid.T, name string, used int, passed time.Duration, r limiter.Rule) {
	if time.Duration(used-r.Burst)*r.Every > passed {
		t.Fatalf("%s: %d slots in %v, want at most %d and one per %v", name, used, passed, r.Burst, r.Every)
	}
}
