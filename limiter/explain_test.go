package limiter_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/chatgateway/gateway/limiter"
)

func TestExplain_namesEachLimitThatRefuses(t *testing.T) {
	chat := limiter.WithChannelRules(limiter.ChannelRules{Chat: limiter.Rule{Every: 4 * time.Second, Burst: 1}})
	l := newLimiter(t, 1, 1, 2*time.Second, chat)
	c := limiter.Call{Channel: "a", Method: "m"}
	if got := l.Explain(start, c); got != nil {
		t.Errorf("Explain() before the first call = %+v, want nothing", got)
	}
	mustReserve(t, l, start, c)
	l.PenaliseAt(start, limiter.Bucket{}, 3*time.Second)
	l.PenaliseAt(start, limiter.Bucket{Method: "m"}, 5*time.Second)
	l.PenaliseAt(start, limiter.Bucket{Channel: "a", Method: "m"}, 6*time.Second)
	l.PenaliseAt(start, limiter.Bucket{Channel: "a"}, 7*time.Second)
	a, method, both := limiter.Bucket{Channel: "a"}, limiter.Bucket{Method: "m"}, limiter.Bucket{Channel: "a", Method: "m"}
	want := []limiter.Limit{
		{Name: "channel penalty", Bucket: a, Wait: 7 * time.Second, Penalty: true},
		{Name: "method penalty", Bucket: both, Wait: 6 * time.Second, Penalty: true},
		{Name: "method penalty", Bucket: method, Wait: 5 * time.Second, Penalty: true},
		{Name: "channel rule", Bucket: a, Wait: 4 * time.Second},
		{Name: "penalty", Wait: 3 * time.Second, Penalty: true},
		{Name: "channel delay", Bucket: a, Wait: 2 * time.Second},
		{Name: "bucket", Wait: time.Second},
	}
	if diff := cmp.Diff(want, l.Explain(start, c)); diff != "" {
		t.Errorf("Explain() differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:1], l.Explain(at(6.5), limiter.Call{Channel: "a"}), cmp.FilterPath(
		func(p cmp.Path) bool { return p.Last().String() == ".Wait" }, cmp.Ignore())); diff != "" {
		t.Errorf("Explain() at 6.5s differs (-want +got):\n%s", diff)
	}
	if got := l.Explain(at(7), c); got != nil {
		t.Errorf("Explain() after all of them = %+v, want nothing", got)
	}
}

func TestExplain_knowsTheCeilingAndImpossibleCosts(t *testing.T) {
	l := forProfile(t, "slack", limiter.ProfileStandard)
	for range 30 {
		l.Take(start, limiter.Call{})
	}
	got := l.Explain(start, limiter.Call{})
	if i := slices.IndexFunc(got, func(l limiter.Limit) bool { return l.Name == "platform ceiling" }); i < 0 || got[i].Wait <= 0 {
		t.Errorf("Explain() = %+v, want the platform's ceiling among them", got)
	}
	got = l.Explain(at(60), limiter.Call{Cost: 31})
	if len(got) != 2 || got[0].Wait != limiter.Never || got[1].Wait != limiter.Never {
		t.Errorf("Explain() of an impossible cost = %+v, want the bucket and the ceiling, for ever", got)
	}
}

// TestProperty_explainAgreesWithTryReserve: the longest limit is what a refusal
// waits for, and nothing refuses what is granted. Looking changes no answer.
func TestProperty_explainAgreesWithTryReserve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"reserve": w.reserve, "cancel": w.cancel, "penalise": w.penalise, "forward": w.forward, "back": w.back,
			"": func(t *rapid.T) {
				c := drawCall(t)
				w.l.Explain(w.now.Add(time.Duration(rapid.Int64Range(-1e10, 1e10).Draw(t, "look"))), c)
				limits := w.l.Explain(w.now, c)
				r, next, ok := w.l.TryReserve(w.now, c)
				if ok != (len(limits) == 0) {
					t.Fatalf("TryReserve() = %v, but Explain() = %+v", ok, limits)
				}
				if ok {
					r.Cancel(w.now)
					return
				}
				longest := limits[0].Wait
				if wait := next.Sub(w.now); !next.IsZero() && wait > longest || next.IsZero() != (longest == limiter.Never) {
					t.Fatalf("TryReserve() waits %v, want no more than %+v", wait, limits[0])
				}
			},
		})
	})
}

func TestLevels_showsWhatIsLeftAndWhatIsClosed(t *testing.T) {
	l := newLimiter(t, 2, 5, 0)
	mustReserve(t, l, start, limiter.Call{Channel: "idle"})
	for i := range 150 {
		l.PenaliseAt(start, limiter.Bucket{Channel: fmt.Sprint(i)}, time.Duration(1000+i)*time.Second)
	}
	l.PenaliseAt(start, limiter.Bucket{Method: "m"}, 2000*time.Second)
	l.PenaliseAt(start, limiter.Bucket{}, time.Second)
	v := l.Levels(start)
	if v.Scope != "default" || v.Tokens != -1 || v.Depth != 5 || v.Rate != 2 || v.HasCeiling || v.Penalty != time.Second || v.Channels != 151 {
		t.Errorf("Levels() = %+v", v)
	}
	if len(v.Refusing) != 100 || v.RefusingTotal != 151 || v.Refusing[0].Name != "method penalty" {
		t.Fatalf("Levels() lists %d of %d, %+v first, want 100 of 151, the method first", len(v.Refusing), v.RefusingTotal, v.Refusing[0])
	}
	for i, r := range v.Refusing[1:] {
		want := limiter.Limit{Name: "channel penalty", Bucket: limiter.Bucket{Channel: fmt.Sprint(149 - i)}, Wait: time.Duration(1149-i) * time.Second, Penalty: true}
		if r != want {
			t.Fatalf("Refusing[%d] = %+v, want %+v", i+1, r, want)
		}
	}
	if v := l.Levels(at(3000)); v.Tokens != 5 || v.Penalty != 0 || v.RefusingTotal != 0 || v.Refusing != nil {
		t.Errorf("Levels() after all = %+v, want a full bucket and nothing closed", v)
	}
	if v := forProfile(t, "discord", limiter.ProfileStandard).Levels(start); !v.HasCeiling || v.Ceiling != 5 || v.Tokens != 5 {
		t.Errorf("Levels() of a new limiter with a ceiling = %+v, want both full", v)
	}
}

func TestLevels_tellsWhichOfItsLimitsAChannelRefusesBy(t *testing.T) {
	group := limiter.Rule{Every: 10 * time.Second, Burst: 1}
	l := newLimiter(t, 100, 100, 2*time.Second, limiter.WithChannelRules(limiter.ChannelRules{Group: group, IsGroup: func(c string) bool { return c == "group" }}))
	mustReserve(t, l, start, limiter.Call{Channel: "group"})
	mustReserve(t, l, start, limiter.Call{Channel: "chat"})
	want := []limiter.Limit{
		{Name: "channel rule", Bucket: limiter.Bucket{Channel: "group"}, Wait: 10 * time.Second},
		{Name: "channel delay", Bucket: limiter.Bucket{Channel: "chat"}, Wait: 2 * time.Second},
	}
	if diff := cmp.Diff(want, l.Levels(start).Refusing); diff != "" {
		t.Errorf("Refusing differs (-want +got):\n%s", diff)
	}
}

func TestExplain_isSafeBesideReservations(t *testing.T) {
	l := newLimiter(t, 1000, 100, time.Millisecond)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 500 {
				now, c := at(float64(n)/1000), limiter.Call{Channel: fmt.Sprint(i), Method: "m"}
				l.TryReserve(now, c)
				l.Explain(now, c)
				l.PenaliseAt(now, limiter.Bucket{Method: "m"}, 0)
				if v := l.Levels(now); v.Tokens > 100 {
					t.Errorf("the bucket holds %v slots, more than 100", v.Tokens)
				}
			}
		})
	}
	wg.Wait()
}

func TestExplain_allocatesNothingForACallThatCanGo(t *testing.T) {
	l := newLimiter(t, 1, 5, 0)
	if n := testing.AllocsPerRun(100, func() { l.Explain(start, limiter.Call{Channel: "a", Method: "m"}) }); n != 0 {
		t.Errorf("Explain() allocates %v times, want 0", n)
	}
}
