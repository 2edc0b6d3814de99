package limiter_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/limiter"
)

func TestWait_takesSlotsAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, 1, 2, 0)
		begin := time.Now()
		for range 5 {
			if err := l.Wait(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
		if got := time.Since(begin); got != 3*time.Second {
			t.Errorf("five slots of a burst of two took %v, want 3s", got)
		}
	})
}

func TestWait_penaltyReachesAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, 1, 5, 2*time.Second)
		begin := time.Now()
		if err := l.Wait(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := l.Wait(t.Context(), "a"); err != nil {
				t.Error(err)
			}
			if got := time.Since(begin); got != 11*time.Second {
				t.Errorf("the waiter went on after %v, want 11s, the penalty's end", got)
			}
		})
		time.Sleep(time.Second)
		if err := l.Penalise(t.Context(), limiter.Bucket{Channel: "a"}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := l.Penalise(t.Context(), limiter.Bucket{Channel: "a"}, 2*time.Second); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	})
}

func TestReserve_endsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, 1, 1, 0)
		l.PenaliseAt(time.Now(), limiter.Bucket{}, time.Hour)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := l.Reserve(ctx, limiter.Call{Channel: "a"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Reserve() = %v, want the deadline", err)
		}
		if got := time.Since(begin); got != time.Minute {
			t.Errorf("gave up after %v, want 1m", got)
		}
		if err := l.Reset(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Reserve(ctx, limiter.Call{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Reserve() with a dead context = %v, want its error", err)
		}
		if err := l.Wait(t.Context(), ""); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("who gave up took a slot: %v after %v", err, time.Since(begin))
		}
	})
}

func TestReserve_wakesOnResetAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, 0.001, 1, 0)
		wake := map[string]func(limiter.Reservation){
			"Reset": func(limiter.Reservation) {
				if err := l.Reset(t.Context()); err != nil {
					t.Error(err)
				}
			},
			"Cancel": func(r limiter.Reservation) { r.Cancel(time.Now()) },
		}
		for name, f := range wake {
			r, err := l.Reserve(t.Context(), limiter.Call{})
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			done := make(chan error, 1)
			go func() { done <- l.Wait(t.Context(), "a") }()
			time.Sleep(time.Second)
			synctest.Wait()
			f(r)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if got := time.Since(begin); got != time.Second {
				t.Errorf("%s woke the waiter after %v, want 1s", name, got)
			}
			if err := l.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestReserve_refusesAnImpossibleCostAtOnce(t *testing.T) {
	l := newLimiter(t, 1, 5, 0, limiter.WithChannelRules(limiter.ChannelRules{Chat: limiter.Rule{Every: time.Second, Burst: 2}}))
	l.PenaliseAt(time.Now(), limiter.Bucket{}, time.Hour)
	for _, c := range []limiter.Call{{Cost: 6}, {Cost: -1}, {Channel: "a", Cost: 3}} {
		if _, err := l.Reserve(t.Context(), c); !errors.Is(err, limiter.ErrCost) {
			t.Errorf("Reserve(%+v) = %v, want ErrCost", c, err)
		}
	}
}

func TestReserve_logsThatItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf bytes.Buffer
		log := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))
		l := newLimiter(t, 1, 1, 0, limiter.WithLogger(log))
		for range 2 {
			if err := l.Wait(t.Context(), "room"); err != nil {
				t.Fatal(err)
			}
		}
		if got := buf.String(); !strings.Contains(got, `level=DEBUG msg="rate limit: waiting" channel=room wait=1s`) || strings.Count(got, "\n") != 1 {
			t.Errorf("log = %q", got)
		}
		buf.Reset()
		l = limiter.ForPlatform("whatsapp", limiter.WithLogger(log))
		for range 2 {
			if err := l.Wait(t.Context(), "4915112345678"); err != nil {
				t.Fatal(err)
			}
		}
		if got := buf.String(); strings.Contains(got, "49151123") || !strings.Contains(got, "5678") {
			t.Errorf("log = %q, want the number masked", got)
		}
	})
}

func TestReserve_manyWaitersShareTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, 10, 1, 0)
		begin := time.Now()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if err := l.Wait(t.Context(), "a"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := time.Since(begin); got != 4900*time.Millisecond {
			t.Errorf("50 waiters took %v, want 4.9s", got)
		}
	})
}

func TestReserve_firstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, 10, 3, 0)
		granted(l, time.Now(), limiter.Call{})
		l.PenaliseAt(time.Now(), limiter.Bucket{Channel: "closed"}, time.Minute)
		var mu sync.Mutex
		var got, want []int
		var group sync.WaitGroup
		group.Go(func() {
			if err := l.Wait(t.Context(), "closed"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		begin := time.Now()
		for i := range 30 {
			want = append(want, i)
			group.Go(func() {
				if _, err := l.Reserve(t.Context(), limiter.Call{Channel: "open", Cost: 1 + i%3}); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				got = append(got, i)
			})
			synctest.Wait()
		}
		group.Wait()
		if !slices.Equal(got, want) {
			t.Errorf("served in the order %v, want that of asking", got)
		}
		if passed := time.Since(begin); passed != time.Minute {
			t.Errorf("all went within %v, want one minute: the closed channel alone waits for its end", passed)
		}
	})
}
