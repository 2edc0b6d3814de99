package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/store/storetest"
)

// brokenStore is a store that fails while it is broken.
type brokenStore struct {
	limiter.Store
	mu     sync.Mutex
	broken bool
}

var errBroken = errors.New("the store is broken")

func (s *brokenStore) fail() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken {
		return errBroken
	}
	return nil
}

func (s *brokenStore) set(broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = broken
}

func (s *brokenStore) Reserve(ctx context.Context, a limiter.Ask) (limiter.Answer, error) {
	if err := s.fail(); err != nil {
		return limiter.Answer{}, err
	}
	return s.Store.Reserve(ctx, a)
}

func (s *brokenStore) Penalise(ctx context.Context, a limiter.Ask, b limiter.Bucket, d time.Duration) error {
	if err := s.fail(); err != nil {
		return err
	}
	return s.Store.Penalise(ctx, a, b, d)
}

func (s *brokenStore) Peek(ctx context.Context, a limiter.Ask) (limiter.Standing, error) {
	if err := s.fail(); err != nil {
		return limiter.Standing{}, err
	}
	return s.Store.Peek(ctx, a)
}

// pair gives two limiters on one store, as two processes have them.
func pair(t *testing.T, rate float64, burst int, delay time.Duration) (one, two *limiter.RateLimiter) {
	t.Helper()
	store := limiter.WithStore(storetest.NewLimits())
	return newLimiter(t, rate, burst, delay, store), newLimiter(t, rate, burst, delay, store)
}

func mustWait(t *testing.T, l *limiter.RateLimiter, channel string) {
	t.Helper()
	if err := l.Wait(t.Context(), channel); err != nil {
		t.Errorf("Wait(%s) = %v", channel, err)
	}
}

func TestWithStore_processesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := pair(t, 10, 1, 0)
		begin := time.Now()
		var mu sync.Mutex
		var got []string
		var group sync.WaitGroup
		waiter := func(name string, l *limiter.RateLimiter, n int) {
			for range n {
				group.Go(func() {
					mustWait(t, l, "")
					mu.Lock()
					defer mu.Unlock()
					got = append(got, name)
				})
			}
		}
		waiter("one", one, 50)
		synctest.Wait()
		waiter("two", two, 5)
		group.Wait()
		if passed := time.Since(begin); passed != 5400*time.Millisecond {
			t.Errorf("55 slots took %v, want 5.4s", passed)
		}
		if last := slices.Index(got, "two"); last < 0 || last > 3 {
			t.Errorf("two got its first slot after %d others, want its turn at once", last)
		}
		turns := 0
		for _, name := range got[:13] {
			if name == "two" {
				turns++
			}
		}
		if turns != 5 {
			t.Errorf("two got %d of its 5 slots among the first 13: %v", turns, got[:13])
		}
	})
}

func TestWithStore_penaltyReachesWaitersOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := pair(t, 1, 1, 0)
		begin := time.Now()
		mustWait(t, one, "a")
		var group sync.WaitGroup
		group.Go(func() {
			mustWait(t, two, "b") // would go after a second
			if got := time.Since(begin); got != 10500*time.Millisecond {
				t.Errorf("the waiter went on after %v, want 10.5s, the penalty's end", got)
			}
		})
		time.Sleep(500 * time.Millisecond)
		if err := one.Penalise(t.Context(), limiter.Bucket{}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		r, next, ok := two.TryReserve(time.Now(), limiter.Call{})
		if ok || time.Until(next) != 10*time.Second || r.Blocked() != (limiter.Bucket{}) {
			t.Errorf("TryReserve() = %v until %v, want a refusal for 10s", ok, next)
		}
		group.Wait()
	})
}

func TestWithStore_aClosedChannelStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := pair(t, 100, 10, 0)
		one.PenaliseAt(time.Now(), limiter.Bucket{Channel: "a"}, time.Minute)
		begin := time.Now()
		var group sync.WaitGroup
		group.Go(func() {
			mustWait(t, two, "a")
			if got := time.Since(begin); got != time.Minute {
				t.Errorf("a went on after %v, want one minute", got)
			}
		})
		synctest.Wait()
		mustWait(t, two, "b")
		if got := time.Since(begin); got != 0 {
			t.Errorf("b waited %v for a", got)
		}
		group.Wait()
	})
}

func TestWithStore_resetIsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := pair(t, 1, 5, 0)
		for _, b := range []limiter.Bucket{{}, {Channel: "a"}} {
			if err := one.Penalise(t.Context(), b, time.Hour); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			var group sync.WaitGroup
			group.Go(func() { mustWait(t, two, "a") })
			time.Sleep(10 * time.Minute)
			if err := one.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
			group.Wait()
			if got := time.Since(begin) - 10*time.Minute; got > time.Second {
				t.Errorf("%+v: the other process noticed Reset after %v, want a second at most", b, got)
			}
		}
		if v := two.Levels(time.Now()); v.Tokens < 4 || v.Penalty != 0 {
			t.Errorf("Levels() after Reset = %+v, want a bucket that is almost full and open", v)
		}
	})
}

func TestWithStore_whoGivesUpLeavesTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := pair(t, 1, 2, 0)
		begin := time.Now()
		mustWait(t, one, "")
		mustWait(t, one, "")
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := one.Wait(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait() = %v, want the deadline", err)
		}
		mustWait(t, two, "")
		if got := time.Since(begin); got != time.Second {
			t.Errorf("the next slot came after %v, want 1s", got)
		}
	})
}

func TestWithStore_failingStoreGrantsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &brokenStore{Store: storetest.NewLimits(), broken: true}
		l := newLimiter(t, 1, 5, 0, limiter.WithStore(store))
		if _, err := l.Reserve(t.Context(), limiter.Call{}); !errors.Is(err, errBroken) {
			t.Errorf("Reserve() = %v, want the store's error", err)
		}
		if _, next, ok := l.TryReserve(time.Now(), limiter.Call{}); ok || time.Until(next) != time.Second {
			t.Errorf("TryReserve() = %v, %v, want to be asked again in a second", ok, next)
		}
		if got := l.Explain(time.Now(), limiter.Call{}); len(got) != 1 || got[0].Name != "shared store" {
			t.Errorf("Explain() = %+v, want the store named", got)
		}
		if err := l.Penalise(t.Context(), limiter.Bucket{Channel: "a"}, time.Minute); !errors.Is(err, errBroken) {
			t.Errorf("Penalise() = %v, want the store's error", err)
		}
		store.set(false)
		begin := time.Now()
		mustWait(t, l, "b")
		mustWait(t, l, "a")
		if got := time.Since(begin); got != time.Minute {
			t.Errorf("the penalty that the store did not take held this process for %v, want one minute", got)
		}
	})
}

func TestWithStore_explainsWhatTheStoreKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := pair(t, 1, 1, 2*time.Second)
		mustReserve(t, one, time.Now(), limiter.Call{Channel: "a"})
		if err := one.Penalise(t.Context(), limiter.Bucket{Method: "m"}, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		want := []string{"method penalty 5s", "channel delay 2s", "bucket 1s"}
		var got []string
		for _, l := range two.Explain(time.Now(), limiter.Call{Channel: "a", Method: "m"}) {
			got = append(got, fmt.Sprint(l.Name, " ", l.Wait))
		}
		if !slices.Equal(got, want) {
			t.Errorf("Explain() = %q, want %q", got, want)
		}
		two.Take(time.Now(), limiter.Call{})
		if v := one.Levels(time.Now()); v.Tokens != 0 || v.Depth != 1 {
			t.Errorf("Levels() = %+v, want an empty bucket", v)
		}
		if _, err := one.Reserve(t.Context(), limiter.Call{Cost: 2}); !errors.Is(err, limiter.ErrCost) {
			t.Errorf("Reserve() = %v, want ErrCost", err)
		}
	})
}
