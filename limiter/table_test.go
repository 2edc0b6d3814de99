package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chatgateway/gateway/limiter"
)

// TestTable_remembersWhatIsUnfinished compares with a plain map while channels
// of short and long names come, are closed, open again and are forgotten.
func TestTable_remembersWhatIsUnfinished(t *testing.T) {
	if testing.Short() {
		t.Skip("half a million calls")
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	names := make([]string, 30_000)
	for i := range names {
		names[i] = strconv.Itoa(i)
		if i%3 == 0 {
			names[i] = strings.Repeat("x", 17+i%9) + names[i] // around the length that is kept apart
		}
	}
	l := newLimiter(t, 1e6, 1e6, time.Second)
	now, delayed, closed := start, map[string]time.Time{}, map[string]time.Time{}
	for range 500_000 {
		now = now.Add(time.Duration(rnd.IntN(200)) * time.Microsecond)
		name := names[rnd.IntN(len(names))]
		if rnd.IntN(20) == 0 {
			d := time.Duration(1+rnd.IntN(5000)) * time.Millisecond
			l.PenaliseAt(now, limiter.Bucket{Channel: name}, d)
			if end := now.Add(max(d, 50*time.Millisecond)); end.After(closed[name]) {
				closed[name] = end
			}
		}
		want := max(delayed[name].Sub(now), closed[name].Sub(now), 0)
		_, next, ok := l.TryReserve(now, limiter.Call{Channel: name})
		if ok != (want == 0) || next.Sub(now) != want {
			t.Fatalf("TryReserve(%s) = %v, wait %v; want a wait of %v", name, ok, next.Sub(now), want)
		}
		if ok {
			delayed[name] = now.Add(time.Second)
		}
	}
	if n := l.Tracked(); n > len(names) || n < 4000 {
		t.Errorf("%d channels are kept", n)
	}
	for _, a := range l.Snapshot(now).Channels {
		if d := delayed[a.Channel]; d.After(now) && !a.DelayUntil.Equal(d) || d.IsZero() && closed[a.Channel].IsZero() {
			t.Fatalf("the anchor of %q ends its delay at %v, want %v", a.Channel, a.DelayUntil, d)
		}
	}
}

func TestWithMaxChannels_boundsThoseThatAreBusy(t *testing.T) {
	l := newLimiter(t, 1e6, 1e6, time.Minute, limiter.WithMaxChannels(10))
	for i := range 5000 {
		l.TryReserve(start, limiter.Call{Channel: strconv.Itoa(i)})
	}
	if n := l.Tracked(); n != 4096+10 {
		t.Errorf("%d channels are kept, want 4106", n)
	}
	for _, n := range []int{0, -1, 1<<24 + 1} {
		if _, err := limiter.New(limiter.DefaultConfig(), limiter.WithMaxChannels(n)); err == nil || !strings.Contains(err.Error(), "WithMaxChannels") {
			t.Errorf("New(WithMaxChannels(%d)) = %v, want an error that names the option", n, err)
		}
	}
}

func TestWithMaxChannels_takesFewBytesForEach(t *testing.T) {
	if testing.Short() {
		t.Skip("measures the heap")
	}
	const n = 100_000
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(-1001000000000 - i)
	}
	before := heap()
	rule := limiter.WithChannelRules(limiter.ChannelRules{Chat: limiter.Rule{Every: time.Minute, Burst: 2}})
	l := newLimiter(t, 1e6, 1e6, time.Minute, rule, limiter.WithMaxChannels(n))
	for _, name := range names {
		mustReserve(t, l, start, limiter.Call{Channel: name})
	}
	used := float64(heap()-before) / n
	if l.Tracked() != n || used > 160 {
		t.Errorf("%d channels take %.0f bytes each, want %d of at most 160", l.Tracked(), used, n)
	}
}
