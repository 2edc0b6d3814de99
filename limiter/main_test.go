package limiter_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chatgateway/gateway/limiter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start is an instant without a monotonic reading, as a stored one is.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

// failer is a testing.TB or a rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func newLimiter(tb failer, rate float64, burst int, delay time.Duration, opts ...limiter.Option) *limiter.RateLimiter {
	tb.Helper()
	l, err := limiter.New(limiter.Config{MessagesPerSecond: rate, BurstSize: burst, PerChannelDelay: delay}, opts...)
	if err != nil {
		tb.Fatalf("New() = %v", err)
	}
	return l
}

func forProfile(tb testing.TB, platform string, p limiter.Profile) *limiter.RateLimiter {
	tb.Helper()
	l, err := limiter.ForProfile(platform, p, limiter.Overrides{})
	if err != nil {
		tb.Fatalf("ForProfile(%s, %v) = %v", platform, p, err)
	}
	return l
}

// granted takes slots for c at one instant until it is refused, and returns how many.
func granted(l *limiter.RateLimiter, now time.Time, c limiter.Call) int {
	for n := 0; ; n++ {
		if _, _, ok := l.TryReserve(now, c); !ok {
			return n
		}
	}
}

func mustReserve(tb testing.TB, l *limiter.RateLimiter, now time.Time, c limiter.Call) limiter.Reservation {
	tb.Helper()
	r, next, ok := l.TryReserve(now, c)
	if !ok {
		tb.Fatalf("TryReserve(%v, %+v) refused by %+v until %v, want a slot", now, c, r.Blocked(), next)
	}
	return r
}

// refused fails the test if c is granted; it returns the wait and the bucket.
func refused(tb testing.TB, l *limiter.RateLimiter, now time.Time, c limiter.Call) (time.Duration, limiter.Bucket) {
	tb.Helper()
	r, next, ok := l.TryReserve(now, c)
	if ok {
		tb.Fatalf("TryReserve(%v, %+v) granted, want a refusal", now, c)
	}
	return next.Sub(now), r.Blocked()
}
