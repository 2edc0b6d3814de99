package policy_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chatgateway/gateway/policy"
)

const identities = 100_000

func names() []string {
	ids := make([]string, identities)
	for i := range ids {
		ids[i] = fmt.Sprintf("telegram:%d", 100_000_000+i*7919)
	}
	return ids
}

// lookUp is what a policy can't do without: a mutex and a map of the identities.
type lookUp struct {
	mu sync.Mutex
	m  map[string]*int
}

func (l *lookUp) get(id string) *int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.m[id]
}

// BenchmarkCheck compares a decision with a look-up of the same identities in
// a map that a mutex guards, in turns, and reports the median of the ratio.
func BenchmarkCheck(b *testing.B) {
	for _, n := range []int{1, 1000, identities} {
		for _, a := range []policy.Algorithm{policy.AlgorithmWindow, policy.AlgorithmSlidingLog} {
			b.Run(fmt.Sprintf("%v/%d", a, n), func(b *testing.B) { benchmarkCheck(b, a, names()[:n]) })
		}
	}
}

func benchmarkCheck(b *testing.B, a policy.Algorithm, ids []string) {
	const slice = 500
	p := newPolicy(b, policy.SlidingWindowConfig{MaxRequests: 4, Window: time.Minute, Algorithm: a})
	l := &lookUp{m: map[string]*int{}}
	for i, id := range ids {
		l.m[id] = &i
		for range 4 {
			check(b, p, id, start)
		}
	}
	ctx := b.Context()
	next := 0
	var ours, theirs, ratio []float64
	b.ReportAllocs()
	for b.Loop() {
		first := next
		begin := time.Now()
		for range slice {
			// Half a window passes in each turn through the identities, so that there are both answers.
			now := start.Add(time.Duration(next) * (30 * time.Second / time.Duration(len(ids))))
			if _, err := p.Check(ctx, policy.Query{Identity: ids[next*7919%len(ids)], Scope: "bot", Now: now}); err != nil {
				b.Fatal(err)
			}
			next++
		}
		mid := time.Now()
		for i := range slice {
			if l.get(ids[(first+i)*7919%len(ids)]) == nil {
				b.Fatal("not there")
			}
		}
		x, y := float64(mid.Sub(begin))/slice, float64(time.Since(mid))/slice
		ours, theirs, ratio = append(ours, x), append(theirs, y), append(ratio, x/y)
	}
	b.ReportMetric(median(ratio), "ours/map")
	b.ReportMetric(median(ours), "ours-ns")
	b.ReportMetric(median(theirs), "map-ns")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// heapOf returns the bytes that f's result keeps alive.
func heapOf[T any](f func() T) (T, uint64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	v := f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return v, after.HeapAlloc - before.HeapAlloc
}

func TestMemory_atTheBound(t *testing.T) {
	ids := names()
	p, bytes := heapOf(func() *policy.SlidingWindowRateLimitPolicy {
		p := newPolicy(t, policy.SlidingWindowConfig{MaxRequests: 10, Window: time.Hour})
		for _, id := range ids {
			check(t, p, id, start)
		}
		return p
	})
	per := float64(bytes) / identities
	t.Logf("%.1f bytes per identity", per)
	if per > 100 {
		t.Errorf("%.1f bytes per identity, want 100 at most", per)
	}
	for i := range identities { // as many again: nothing grows
		check(t, p, fmt.Sprint("newcomer", i), start)
	}
	runtime.KeepAlive(p)
}

func TestCheck_allocatesNothing(t *testing.T) {
	for _, a := range []policy.Algorithm{policy.AlgorithmWindow, policy.AlgorithmSlidingLog} {
		p := newPolicy(t, policy.SlidingWindowConfig{MaxRequests: 4, Window: time.Minute, Algorithm: a})
		ids := []string{"a", "b", "c"}
		now, i := start, 0
		f := func() {
			now = now.Add(time.Second)
			check(t, p, ids[i%3], now)
			i++
		}
		for range 100 {
			f()
		}
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%v: %v allocations per Check, want none", a, n)
		}
	}
}
