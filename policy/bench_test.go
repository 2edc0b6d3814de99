package policy_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
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

type key struct{ scope, identity string }

// lookUp is what a policy can't do without: a mutex and a map of the keys.
type lookUp struct {
	mu sync.Mutex
	m  map[key]*int
}

func (l *lookUp) get(k key) *int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.m[k]
}

// BenchmarkCheck compares a decision with a look-up of the same keys in a map
// that a mutex guards, in turns, and reports the median of the ratio.
func BenchmarkCheck(b *testing.B) {
	for _, a := range []policy.Algorithm{policy.AlgorithmWindow, policy.AlgorithmSlidingLog} {
		for _, n := range []int{1, 1000, identities} {
			b.Run(fmt.Sprintf("%v/%d", a, n), func(b *testing.B) { benchmarkCheck(b, a, names()[:n]) })
		}
	}
}

func benchmarkCheck(b *testing.B, a policy.Algorithm, ids []string) {
	b.Helper()
	const slice = 500
	p := newPolicy(b, policy.SlidingWindowConfig{MaxRequests: 4, Window: time.Minute, Algorithm: a})
	l := &lookUp{m: map[key]*int{}}
	for i, id := range ids {
		l.m[key{"bot", strings.Clone(id)}] = &i // a later event brings a string of its own
		check(b, p, id, start)
	}
	// Both go through all keys, in an order that no cache foresees, and never
	// through the same ones at about the same time.
	order := rand.New(rand.NewPCG(1, 2)).Perm(len(ids))
	shuffled := make([]string, len(ids))
	for i, at := range order {
		shuffled[i] = ids[at]
	}
	mine, other := 0, len(ids)/2
	next := func(i *int) string {
		if *i++; *i >= len(shuffled) {
			*i = 0
		}
		return shuffled[*i]
	}
	ctx, now := b.Context(), start
	var ours, theirs, ratio []float64
	b.ReportAllocs()
	for b.Loop() {
		// A sixth of a window passes in each turn through the keys, so that there are both answers.
		now = now.Add(10 * time.Second * slice / time.Duration(len(ids)))
		begin := time.Now()
		for range slice {
			if _, err := p.Check(ctx, policy.Query{Identity: next(&mine), Scope: "bot", Now: now}); err != nil {
				b.Fatal(err)
			}
		}
		mid := time.Now()
		for range slice {
			if l.get(key{"bot", next(&other)}) == nil {
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
	runtime.KeepAlive(ids)
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
