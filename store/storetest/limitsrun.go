package storetest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/chatgateway/gateway/limiter"
)

// RunLimits holds a limiter's store to its contract. open gives a new, empty
// store each time and closes it when its test ends. The store counts with the
// times that the suite gives, in whole milliseconds.
func RunLimits(t *testing.T, open func(t *testing.T) limiter.Store) {
	t.Helper()
	for _, c := range slices.Concat(limitsBucketCases(), limitsPenaltyCases(), limitsStateCases(), limitsClockCases()) {
		t.Run(c.name, func(t *testing.T) {
			c.test(&limitsSuite{T: t, store: open(t), now: start})
		})
	}
	t.Run("does what the model does", func(t *testing.T) {
		store, n := open(t), 0
		rapid.Check(t, func(rt *rapid.T) {
			n++
			limitsMachine(rt, store, n)
		})
	})
}

type limitsCase struct {
	name string
	test func(s *limitsSuite)
}

// limitsSuite is one test with its store and its clock.
type limitsSuite struct {
	*testing.T
	store limiter.Store
	now   time.Time
}

// ask is a question with a burst of three, a slot a second, and a delay of two seconds.
func (s *limitsSuite) ask(c limiter.Call, m limiter.Mode) limiter.Ask {
	c.Cost = max(c.Cost, 1)
	return limiter.Ask{
		Scope: "s", Call: c, Mode: m, At: s.now,
		Token: limiter.Rule{Every: time.Second, Burst: 3},
		Delay: limiter.Rule{Every: 2 * time.Second, Burst: 1},
	}
}

func (s *limitsSuite) reserve(a limiter.Ask) limiter.Answer {
	s.Helper()
	answer, err := s.store.Reserve(s.Context(), a)
	if err != nil {
		s.Fatalf("Reserve() failed: %v", err)
	}
	return answer
}

// granted expects slots that open in so many seconds.
func (s *limitsSuite) granted(a limiter.Ask, seconds float64) limiter.Ticket {
	s.Helper()
	got := s.reserve(a)
	if want := time.Duration(seconds * float64(time.Second)); !got.Granted || got.Wait != want {
		s.Fatalf("Reserve(%+v) = %+v, want a slot in %v", a.Call, got, want)
	}
	return got.Ticket
}

// refused expects a refusal by the bucket for so many seconds.
func (s *limitsSuite) refused(a limiter.Ask, b limiter.Bucket, seconds float64) {
	s.Helper()
	got := s.reserve(a)
	if want := time.Duration(seconds * float64(time.Second)); got.Granted || got.Wait != want || got.Blocked != b {
		s.Fatalf("Reserve(%+v) = %+v, want a refusal by %+v for %v", a.Call, got, b, want)
	}
}

func (s *limitsSuite) penalise(b limiter.Bucket, d time.Duration) {
	s.Helper()
	if err := s.store.Penalise(s.Context(), s.ask(limiter.Call{Channel: b.Channel, Method: b.Method}, limiter.Try), b, d); err != nil {
		s.Fatalf("Penalise(%+v) failed: %v", b, err)
	}
}

func (s *limitsSuite) cancel(a limiter.Ask, ticket limiter.Ticket) {
	s.Helper()
	if err := s.store.Cancel(s.Context(), a, ticket); err != nil {
		s.Fatalf("Cancel() failed: %v", err)
	}
}

func (s *limitsSuite) pass(d time.Duration) { s.now = s.now.Add(d) }

// The buckets of the cases.
var (
	limitsNone = limiter.Bucket{}
	limitsA    = limiter.Bucket{Channel: "a"}
	limitsM    = limiter.Bucket{Method: "m"}
	limitsAM   = limiter.Bucket{Channel: "a", Method: "m"}
)

func limitsBucketCases() []limitsCase {
	return []limitsCase{
		{"grants a burst and then the rate", func(s *limitsSuite) {
			for range 3 {
				s.granted(s.ask(limiter.Call{}, limiter.Try), 0)
			}
			s.refused(s.ask(limiter.Call{}, limiter.Try), limitsNone, 1)
			s.pass(1500 * time.Millisecond)
			s.granted(s.ask(limiter.Call{}, limiter.Try), 0)
			s.refused(s.ask(limiter.Call{}, limiter.Try), limitsNone, 0.5)
			if got := s.reserve(s.ask(limiter.Call{Cost: 4}, limiter.Ahead)); got.Granted || got.Wait != limiter.Never {
				s.Errorf("Reserve() of more than a full bucket = %+v, want never", got)
			}
		}},
		{"gives slots ahead in the order of asking", func(s *limitsSuite) {
			for _, wait := range []float64{0, 0, 0, 1, 2, 3} {
				s.granted(s.ask(limiter.Call{}, limiter.Ahead), wait)
			}
			s.refused(s.ask(limiter.Call{}, limiter.Try), limitsNone, 4)
			s.granted(s.ask(limiter.Call{Cost: 3}, limiter.Ahead), 6)
		}},
		{"takes all slots or none", func(s *limitsSuite) {
			s.granted(s.ask(limiter.Call{Channel: "a"}, limiter.Try), 0)
			for range 5 {
				s.refused(s.ask(limiter.Call{Channel: "a"}, limiter.Ahead), limitsA, 2)
			}
			s.granted(s.ask(limiter.Call{Channel: "b"}, limiter.Ahead), 0)
			s.granted(s.ask(limiter.Call{Channel: "c"}, limiter.Ahead), 0)
			s.granted(s.ask(limiter.Call{Channel: "d"}, limiter.Ahead), 1)
			s.refused(s.ask(limiter.Call{Channel: "d"}, limiter.Ahead), limiter.Bucket{Channel: "d"}, 3)
		}},
		{"keeps the platform's limits too", func(s *limitsSuite) {
			ask := s.ask(limiter.Call{Channel: "a"}, limiter.Try)
			ask.Delay = limiter.Rule{}
			ask.Token, ask.Ceiling, ask.Rule = limiter.Rule{Every: time.Second, Burst: 9}, limiter.Rule{Every: 3 * time.Second, Burst: 2}, limiter.Rule{Every: 5 * time.Second, Burst: 1}
			s.granted(ask, 0)
			s.refused(ask, limitsA, 5)
			ask.Call.Channel = "b"
			s.granted(ask, 0)
			ask.Call.Channel = "c"
			s.refused(ask, limitsNone, 3)
			ask.Mode = limiter.Ahead
			s.granted(ask, 3)
			s.refused(ask, limiter.Bucket{Channel: "c"}, 8)
		}},
	}
}

func limitsPenaltyCases() []limitsCase {
	return []limitsCase{
		{"obeys penalties on what they are on", func(s *limitsSuite) {
			s.penalise(limitsAM, 5*time.Second)
			s.penalise(limitsM, 4*time.Second)
			s.refused(s.ask(limiter.Call{Channel: "a", Method: "m"}, limiter.Ahead), limitsAM, 5)
			s.refused(s.ask(limiter.Call{Channel: "b", Method: "m"}, limiter.Ahead), limitsM, 4)
			s.penalise(limitsA, 6*time.Second)
			s.pass(3 * time.Second)
			s.refused(s.ask(limiter.Call{Channel: "a"}, limiter.Ahead), limitsA, 3)
			s.penalise(limitsA, time.Second) // is not shortened
			s.refused(s.ask(limiter.Call{Channel: "a"}, limiter.Ahead), limitsA, 3)
			s.granted(s.ask(limiter.Call{Channel: "b"}, limiter.Ahead), 0)
			s.penalise(limitsNone, 7*time.Second)
			s.refused(s.ask(limiter.Call{Channel: "b"}, limiter.Ahead), limitsNone, 7)
			s.pass(7 * time.Second)
			s.granted(s.ask(limiter.Call{Channel: "a", Method: "m"}, limiter.Try), 0)
		}},
		{"takes a slot with a penalty, and owes one at most", func(s *limitsSuite) {
			s.penalise(limitsA, time.Second)
			s.granted(s.ask(limiter.Call{}, limiter.Try), 0)
			s.granted(s.ask(limiter.Call{}, limiter.Try), 0)
			for range 10 {
				s.penalise(limitsA, time.Second)
			}
			s.refused(s.ask(limiter.Call{}, limiter.Try), limitsNone, 2)
		}},
		{"counts what nobody asked for", func(s *limitsSuite) {
			for range 9 {
				s.granted(s.ask(limiter.Call{Channel: "a"}, limiter.Take), 0)
			}
			s.refused(s.ask(limiter.Call{Channel: "a"}, limiter.Try), limitsNone, 2)
		}},
	}
}

func limitsStateCases() []limitsCase {
	return []limitsCase{
		{"gives back what was taken and no more", testLimitsCancel},
		{"shows what a call would find", func(s *limitsSuite) {
			s.granted(s.ask(limiter.Call{Channel: "a"}, limiter.Try), 0)
			s.penalise(limitsAM, 5*time.Second)
			want := limiter.Standing{Token: 2 * time.Second, Delay: 2 * time.Second, ChannelMethod: 5 * time.Second}
			for range 2 {
				got, err := s.store.Peek(s.Context(), s.ask(limiter.Call{Channel: "a", Method: "m"}, limiter.Try))
				if diff := cmp.Diff(want, got); diff != "" || err != nil {
					s.Errorf("Peek() differs (-want +got), %v:\n%s", err, diff)
				}
			}
		}},
		{"forgets all of a scope by Reset", testLimitsReset},
	}
}

func limitsClockCases() []limitsCase {
	return []limitsCase{
		{"grants nothing extra when the clock steps back", func(s *limitsSuite) {
			for range 3 {
				s.granted(s.ask(limiter.Call{}, limiter.Try), 0)
			}
			s.penalise(limitsM, 3*time.Second)
			for range 10 {
				s.pass(-time.Hour)
				s.refused(s.ask(limiter.Call{}, limiter.Try), limitsNone, 2)
			}
			s.pass(2 * time.Second)
			s.refused(s.ask(limiter.Call{Method: "m"}, limiter.Try), limitsM, 1)
			s.granted(s.ask(limiter.Call{}, limiter.Try), 0)
			s.refused(s.ask(limiter.Call{}, limiter.Try), limitsNone, 1)
		}},
		{"grants at most a full bucket when the clock steps forward", func(s *limitsSuite) {
			for range 6 {
				s.reserve(s.ask(limiter.Call{}, limiter.Ahead))
			}
			s.pass(1000 * time.Hour)
			for _, wait := range []float64{0, 0, 0, 1} {
				s.granted(s.ask(limiter.Call{}, limiter.Ahead), wait)
			}
		}},
		{"keeps scopes apart", func(s *limitsSuite) {
			s.penalise(limitsNone, time.Minute)
			other := s.ask(limiter.Call{Channel: "a"}, limiter.Try)
			other.Scope = "other"
			s.granted(other, 0)
		}},
		{"gives each slot to one of many who ask at once", testLimitsTogether},
	}
}

func testLimitsTogether(s *limitsSuite) {
	var mu sync.Mutex
	var group sync.WaitGroup
	waits := map[time.Duration]int{}
	for range 20 {
		group.Go(func() {
			got, err := s.store.Reserve(s.Context(), s.ask(limiter.Call{}, limiter.Ahead))
			if err != nil {
				s.Errorf("Reserve() failed: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			waits[got.Wait]++
		})
	}
	group.Wait()
	want := map[time.Duration]int{0: 3}
	for i := range 17 {
		want[time.Duration(i+1)*time.Second] = 1
	}
	if diff := cmp.Diff(want, waits); diff != "" {
		s.Errorf("slots differ (-want +got):\n%s", diff)
	}
}

func testLimitsCancel(s *limitsSuite) {
	ask := func() limiter.Ask { return s.ask(limiter.Call{}, limiter.Try) }
	first := s.granted(ask(), 0)
	s.granted(ask(), 0)
	last := s.granted(ask(), 0)
	s.cancel(ask(), last)
	s.granted(ask(), 0)
	s.cancel(ask(), first)
	s.granted(ask(), 0)
	s.pass(3 * time.Second) // full again
	s.granted(ask(), 0)
	s.cancel(ask(), first) // flowed over long ago
	s.granted(ask(), 0)
	s.granted(ask(), 0)
	s.refused(ask(), limiter.Bucket{}, 1)

	s.pass(time.Hour)
	in := s.ask(limiter.Call{Channel: "a"}, limiter.Ahead)
	ticket := s.granted(in, 0)
	s.refused(in, limiter.Bucket{Channel: "a"}, 2)
	s.cancel(in, ticket)
	s.granted(in, 0)
	for range 2 {
		s.granted(ask(), 0)
	}
	s.refused(ask(), limiter.Bucket{}, 1)
}

func testLimitsReset(s *limitsSuite) {
	ask := s.ask(limiter.Call{Channel: "a", Method: "m"}, limiter.Ahead)
	old := s.granted(ask, 0)
	for range 5 {
		s.reserve(s.ask(limiter.Call{}, limiter.Ahead))
	}
	for _, b := range []limiter.Bucket{{}, {Channel: "a"}, {Method: "m"}, {Channel: "a", Method: "m"}} {
		s.penalise(b, time.Hour)
	}
	if err := s.store.Reset(s.Context(), "s"); err != nil {
		s.Fatalf("Reset() failed: %v", err)
	}
	if err := s.store.Reset(s.Context(), "unknown"); err != nil {
		s.Fatalf("Reset() of nothing failed: %v", err)
	}
	s.granted(ask, 0)
	s.cancel(ask, old) // from before: gives nothing back
	s.refused(ask, limiter.Bucket{Channel: "a"}, 2)
	for _, wait := range []float64{0, 0, 1} {
		s.granted(s.ask(limiter.Call{}, limiter.Ahead), wait)
	}
}
