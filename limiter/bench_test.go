package limiter_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// BenchmarkReserve_manyChannels compares a reservation in one of 100,000
// channels with a map of golang.org/x/time/rate limiters behind a mutex. The
// channels come in a random order, the same each time round, and each again when
// its delay is just over, so that all the others are busy.
func BenchmarkReserve_manyChannels(b *testing.B) {
	const n = 100_000
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(-1001000000000 - i)
	}
	later := make([]string, n) // as they come again, each with a copy of its name
	for i, k := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		later[i] = strings.Clone(names[k])
	}
	ours := func(b *testing.B, opts ...limiter.Option) func(name string) bool {
		b.Helper()
		const step = 100 * time.Microsecond
		cfg := limiter.Config{MessagesPerSecond: 1e9, BurstSize: 1000, PerChannelDelay: n * step}
		l, err := limiter.New(cfg, append(opts, limiter.WithMaxChannels(n))...)
		if err != nil {
			b.Fatal(err)
		}
		var passed time.Duration
		return func(name string) bool {
			passed += step
			_, _, ok := l.TryReserve(time.Now().Add(passed), limiter.Call{Channel: name})
			return ok
		}
	}
	theirs := func(*testing.B) func(name string) bool {
		var mu sync.Mutex
		m := map[string]*rate.Limiter{}
		return func(name string) bool {
			mu.Lock()
			defer mu.Unlock()
			l, ok := m[name]
			if !ok {
				l = rate.NewLimiter(1e9, 1000)
				m[name] = l
			}
			return l.Allow()
		}
	}
	rule := limiter.WithChannelRules(limiter.ChannelRules{Chat: limiter.Rule{Every: 9 * time.Second, Burst: 2}})
	b.Run("ours", func(b *testing.B) { benchmarkChannels(b, names, later, ours(b)) })
	b.Run("ours_with_a_chat_rule", func(b *testing.B) { benchmarkChannels(b, names, later, ours(b, rule)) })
	b.Run("map_of_x_time_rate", func(b *testing.B) { benchmarkChannels(b, names, later, theirs(b)) })
	b.Run("ratio", func(b *testing.B) { benchmarkChannelsRatio(b, names, later, ours(b), theirs(b)) })
	b.Run("ratio_with_a_chat_rule", func(b *testing.B) { benchmarkChannelsRatio(b, names, later, ours(b, rule), theirs(b)) })
}

// benchmarkChannels measures the time and the memory per channel.
func benchmarkChannels(b *testing.B, names, later []string, reserve func(name string) bool) {
	b.Helper()
	before := heap()
	for _, name := range names {
		reserve(name)
	}
	used := heap() - before
	for _, name := range later {
		reserve(name)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if !reserve(later[i]) {
			b.Fatal("refused")
		}
		if i++; i == len(later) {
			i = 0
		}
	}
	b.ReportMetric(float64(used)/float64(len(names)), "B/channel")
}

// benchmarkChannelsRatio measures both in turns, a round of all channels each.
func benchmarkChannelsRatio(b *testing.B, names, later []string, ours, theirs func(name string) bool) {
	b.Helper()
	for _, name := range slices.Concat(names, later) {
		ours(name)
		theirs(name)
	}
	round := func(reserve func(name string) bool) float64 {
		begin := time.Now()
		for _, name := range later {
			if !reserve(name) {
				b.Fatal("refused")
			}
		}
		return float64(time.Since(begin)) / float64(len(later))
	}
	var a, c, ratio []float64
	for b.Loop() {
		x, y := round(ours), round(theirs)
		a, c, ratio = append(a, x), append(c, y), append(ratio, x/y)
	}
	b.ReportMetric(median(ratio), "ours/map")
	b.ReportMetric(median(a), "ours-ns")
	b.ReportMetric(median(c), "map-ns")
}

// heap returns the bytes in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
