package limiter_test

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/chatgateway/gateway/limiter"
)

// wide is a limiter with a bucket and a per-channel delay, and with what the
// options add, all so wide that nothing is refused.
func wide(b *testing.B, opts ...limiter.Option) *limiter.RateLimiter {
	b.Helper()
	l, err := limiter.New(limiter.Config{MessagesPerSecond: 1e9, BurstSize: 1000, PerChannelDelay: time.Nanosecond}, opts...)
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// withRule adds a rule for each chat, as the standard profile does.
func withRule() limiter.Option {
	rule := limiter.Rule{Every: time.Nanosecond, Burst: 1000}
	return limiter.WithChannelRules(limiter.ChannelRules{Chat: rule, Group: rule})
}

// BenchmarkReserve compares a reservation of a bucket and a channel with
// golang.org/x/time/rate, which knows one bucket.
func BenchmarkReserve(b *testing.B) {
	b.Run("ours", func(b *testing.B) {
		l := wide(b)
		b.ReportAllocs()
		for b.Loop() {
			if _, _, ok := l.TryReserve(time.Now(), limiter.Call{Channel: "-1001234567890"}); !ok {
				b.Fatal("refused")
			}
		}
	})
	b.Run("ours_with_a_chat_rule", func(b *testing.B) {
		l := wide(b, withRule())
		b.ReportAllocs()
		for b.Loop() {
			if _, _, ok := l.TryReserve(time.Now(), limiter.Call{Channel: "-1001234567890"}); !ok {
				b.Fatal("refused")
			}
		}
	})
	b.Run("x_time_rate_Allow", func(b *testing.B) {
		l := rate.NewLimiter(1e9, 1000)
		b.ReportAllocs()
		for b.Loop() {
			if !l.Allow() {
				b.Fatal("refused")
			}
		}
	})
	b.Run("ours_64_channels", func(b *testing.B) {
		l := wide(b, withRule())
		names := make([]string, 64)
		for i := range names {
			names[i] = "-100123456" + string(rune('0'+i/8)) + string(rune('0'+i%8))
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if _, _, ok := l.TryReserve(time.Now(), limiter.Call{Channel: names[i&63]}); !ok {
				b.Fatal("refused")
			}
			i++
		}
	})
	b.Run("time_Now", func(b *testing.B) {
		var sink time.Time
		for b.Loop() {
			sink = time.Now()
		}
		_ = sink
	})
	b.Run("ratio", func(b *testing.B) { benchmarkRatio(b, wide(b)) })
	b.Run("ratio_with_a_chat_rule", func(b *testing.B) { benchmarkRatio(b, wide(b, withRule())) })
}

// benchmarkRatio measures both in turns, in short slices of one run, and
// reports the medians of their times and of the ratio, so that a machine that
// is busy with other work disturbs neither.
func benchmarkRatio(b *testing.B, ours *limiter.RateLimiter) {
	b.Helper()
	const slice = 500
	theirs := rate.NewLimiter(1e9, 1000)
	var a, c, ratio []float64
	for b.Loop() {
		begin := time.Now()
		for range slice {
			if _, _, ok := ours.TryReserve(time.Now(), limiter.Call{Channel: "-1001234567890"}); !ok {
				b.Fatal("refused")
			}
		}
		mid := time.Now()
		for range slice {
			if !theirs.Allow() {
				b.Fatal("refused")
			}
		}
		x, y := float64(mid.Sub(begin))/slice, float64(time.Since(mid))/slice
		a, c, ratio = append(a, x), append(c, y), append(ratio, x/y)
	}
	b.ReportMetric(median(ratio), "ours/x_time_rate")
	b.ReportMetric(median(a), "ours-ns")
	b.ReportMetric(median(c), "x_time_rate-ns")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
