package limiter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chatgateway/gateway/limiter"
)

func TestTryReserve_grantsBurstThenRate(t *testing.T) {
	l := newLimiter(t, 2, 5, 0)
	if got := granted(l, start, limiter.Call{}); got != 5 {
		t.Errorf("granted %d at once, want 5", got)
	}
	if wait, b := refused(t, l, start, limiter.Call{}); wait != 500*time.Millisecond || b != (limiter.Bucket{}) {
		t.Errorf("refused for %v by %+v, want 500ms by the token's bucket", wait, b)
	}
	refused(t, l, at(0.5).Add(-1), limiter.Call{})
	mustReserve(t, l, at(0.5), limiter.Call{}) // the told time is exact
	if got := granted(l, at(60), limiter.Call{}); got != 5 {
		t.Errorf("granted %d after a long pause, want 5", got)
	}
}

func TestTryReserve_spacesCallsInOneChannel(t *testing.T) {
	l := newLimiter(t, 100, 100, time.Second)
	a, b := limiter.Call{Channel: "a"}, limiter.Call{Channel: "b"}
	mustReserve(t, l, start, a)
	mustReserve(t, l, start, b)
	if wait, by := refused(t, l, at(0.25), a); wait != 750*time.Millisecond || by != (limiter.Bucket{Channel: "a"}) {
		t.Errorf("refused for %v by %+v, want 750ms by a", wait, by)
	}
	mustReserve(t, l, at(1), a)
	mustReserve(t, l, at(1), limiter.Call{}) // no channel, no delay
	mustReserve(t, l, at(1), limiter.Call{})
}

func TestTryReserve_takesAllOrNothing(t *testing.T) {
	l := newLimiter(t, 1, 3, time.Minute)
	mustReserve(t, l, start, limiter.Call{Channel: "a"})
	for range 10 {
		refused(t, l, start, limiter.Call{Channel: "a"})
	}
	if got := granted(l, start, limiter.Call{}); got != 2 {
		t.Errorf("%d slots left after refusals, want 2", got)
	}
	refused(t, l, start, limiter.Call{Channel: "b"}) // the token refuses
	mustReserve(t, l, at(1), limiter.Call{Channel: "b"})
}

func TestTryReserve_tokenRefusalHidesLaterChannel(t *testing.T) {
	l := newLimiter(t, 1, 1, time.Minute)
	mustReserve(t, l, start, limiter.Call{Channel: "a"})
	wait, by := refused(t, l, start, limiter.Call{Channel: "a"})
	if wait != time.Second || by != (limiter.Bucket{}) {
		t.Errorf("refused for %v by %+v, want 1s by the token, which all others wait for too", wait, by)
	}
}

func TestTryReserve_cost(t *testing.T) {
	rules := limiter.WithChannelRules(limiter.ChannelRules{Chat: limiter.Rule{Every: time.Second, Burst: 2}})
	l := newLimiter(t, 1, 5, 0, rules)
	mustReserve(t, l, start, limiter.Call{Cost: 3})
	if wait, _ := refused(t, l, start, limiter.Call{Cost: 4}); wait != 2*time.Second {
		t.Errorf("cost 4 of 2 left waits %v, want 2s", wait)
	}
	for _, c := range []limiter.Call{{Cost: 6}, {Cost: -1}, {Cost: 3, Channel: "a"}, {Cost: 1 << 62}} {
		if r, next, ok := l.TryReserve(at(100), c); ok || !next.IsZero() {
			t.Errorf("TryReserve(%+v) = %+v, %v, %v, want a refusal for ever", c, r, next, ok)
		}
	}
	mustReserve(t, l, at(100), limiter.Call{Cost: 5})
}

func TestTryReserve_clockSteps(t *testing.T) {
	tests := []struct {
		name string
		step time.Duration
	}{
		{"back a second", -time.Second},
		{"back a day", -24 * time.Hour},
		{"back 200 years", -200 * 365 * 24 * time.Hour},
		{"forward a day", 24 * time.Hour},
		{"forward 250 years", 250 * 365 * 24 * time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLimiter(t, 10, 5, time.Second)
			c := limiter.Call{Channel: "a"}
			mustReserve(t, l, start, c)
			granted(l, start, limiter.Call{})
			now := start.Add(tt.step)
			want := 0
			if tt.step > 0 {
				want = 5
			}
			if got := granted(l, now, limiter.Call{}); got != want {
				t.Errorf("granted %d right after the step, want %d", got, want)
			}
			if wait, _ := refused(t, l, now, c); wait > 500*time.Millisecond {
				t.Errorf("locked out for %v, want the bucket's depth at most", wait)
			}
			mustReserve(t, l, now.Add(time.Second), c)
			if got := granted(l, now.Add(10*time.Second), limiter.Call{}); got != 5 {
				t.Errorf("granted %d once refilled, want 5", got)
			}
		})
	}
}

func TestTryReserve_stepBackKeepsPenaltiesToTheirLength(t *testing.T) {
	l := newLimiter(t, 10, 5, 0)
	l.PenaliseAt(start, limiter.Bucket{Channel: "a"}, 10*time.Second)
	l.PenaliseAt(start, limiter.Bucket{}, 5*time.Second)
	now := start.Add(-24 * time.Hour)
	if wait, _ := refused(t, l, now, limiter.Call{}); wait != 5*time.Second {
		t.Errorf("bucket closed for %v, want 5s", wait)
	}
	if wait, by := refused(t, l, now.Add(5*time.Second), limiter.Call{Channel: "a"}); wait > 10*time.Second || by.Channel != "a" {
		t.Errorf("channel closed for %v by %+v, want 10s at most", wait, by)
	}
	mustReserve(t, l, now.Add(15*time.Second), limiter.Call{Channel: "a"})
}

func TestCancel(t *testing.T) {
	t.Run("gives every slot back", func(t *testing.T) {
		l := newLimiter(t, 1, 5, time.Second)
		var rs []limiter.Reservation
		for i := range 5 {
			rs = append(rs, mustReserve(t, l, start, limiter.Call{Channel: fmt.Sprint(i)}))
		}
		for i := range rs {
			rs[i].Cancel(start)
			rs[i].Cancel(start)
		}
		if got := granted(l, start, limiter.Call{}); got != 5 {
			t.Errorf("granted %d after cancelling all, want 5", got)
		}
	})
	t.Run("opens the channel again", func(t *testing.T) {
		l := newLimiter(t, 1, 5, time.Second)
		r := mustReserve(t, l, start, limiter.Call{Channel: "a"})
		r.Cancel(at(0.1))
		mustReserve(t, l, at(0.1), limiter.Call{Channel: "a"})
	})
	t.Run("gives nothing back that flowed over", func(t *testing.T) {
		l := newLimiter(t, 1, 5, 0)
		r := mustReserve(t, l, start, limiter.Call{})
		if got := granted(l, at(10), limiter.Call{}); got != 5 {
			t.Fatalf("granted %d, want 5", got)
		}
		r.Cancel(at(10))
		refused(t, l, at(10), limiter.Call{})
	})
	t.Run("gives back a part", func(t *testing.T) {
		l := newLimiter(t, 1, 5, 0)
		r := mustReserve(t, l, start, limiter.Call{Cost: 2})
		granted(l, at(1.5), limiter.Call{}) // finds half a slot missing
		r.Cancel(at(1.5))
		mustReserve(t, l, at(1.5), limiter.Call{}) // the other half was there
		if wait, _ := refused(t, l, at(1.5), limiter.Call{}); wait != time.Second {
			t.Errorf("waits %v, want 1s: half of a slot was given back", wait)
		}
	})
	t.Run("after Reset gives nothing", func(t *testing.T) {
		l := newLimiter(t, 1, 5, 0)
		r := mustReserve(t, l, start, limiter.Call{})
		if err := l.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		granted(l, start, limiter.Call{})
		r.Cancel(start)
		refused(t, l, start, limiter.Call{})
	})
	t.Run("of a refusal is nothing", func(t *testing.T) {
		l := newLimiter(t, 1, 1, 0)
		mustReserve(t, l, start, limiter.Call{})
		r, _, _ := l.TryReserve(start, limiter.Call{})
		r.Cancel(start)
		refused(t, l, start, limiter.Call{})
	})
}

func TestPenalise(t *testing.T) {
	t.Run("closes the channel and takes one slot", func(t *testing.T) {
		l := newLimiter(t, 1, 5, 0)
		l.PenaliseAt(start, limiter.Bucket{Channel: "a"}, 5*time.Second)
		if wait, by := refused(t, l, start, limiter.Call{Channel: "a"}); wait != 5*time.Second || by.Channel != "a" {
			t.Errorf("refused for %v by %+v, want 5s by a", wait, by)
		}
		if got := granted(l, start, limiter.Call{Channel: "b"}); got != 4 {
			t.Errorf("granted %d elsewhere, want 4", got)
		}
		refused(t, l, at(5).Add(-1), limiter.Call{Channel: "a"})
		mustReserve(t, l, at(5), limiter.Call{Channel: "a"})
	})
	t.Run("slows a busy bot by one slot, not more", func(t *testing.T) {
		l := newLimiter(t, 1, 5, 0)
		granted(l, start, limiter.Call{})
		for i := range 10 {
			l.PenaliseAt(start, limiter.Bucket{Channel: fmt.Sprint(i)}, time.Second)
		}
		if wait, _ := refused(t, l, start, limiter.Call{}); wait != 2*time.Second {
			t.Errorf("waits %v, want 2s", wait)
		}
	})
	t.Run("closes the whole bucket", func(t *testing.T) {
		l := newLimiter(t, 1, 5, 0)
		l.PenaliseAt(start, limiter.Bucket{}, 3*time.Second)
		if wait, by := refused(t, l, start, limiter.Call{Channel: "a"}); wait != 3*time.Second || by != (limiter.Bucket{}) {
			t.Errorf("refused for %v by %+v, want 3s by the token's bucket", wait, by)
		}
		if got := granted(l, at(3), limiter.Call{}); got != 5 {
			t.Errorf("granted %d at its end, want 5: it takes no slot", got)
		}
	})
	t.Run("combines by the longest", func(t *testing.T) {
		l := newLimiter(t, 1, 5, 0)
		for _, b := range []limiter.Bucket{{}, {Channel: "a"}, {Method: "m"}} {
			l.PenaliseAt(start, b, 10*time.Second)
			l.PenaliseAt(at(1), b, 2*time.Second)
			l.PenaliseAt(at(1), b, -2*time.Second)
			if wait, _ := refused(t, l, at(9.5), limiter.Call{Channel: b.Channel, Method: b.Method}); wait != 500*time.Millisecond {
				t.Errorf("%+v closed for %v more, want 500ms", b, wait)
			}
			l.PenaliseAt(at(9), b, 2*time.Second)
			if wait, _ := refused(t, l, at(10), limiter.Call{Channel: b.Channel, Method: b.Method}); wait != time.Second {
				t.Errorf("%+v closed for %v more, want 1s", b, wait)
			}
			if err := l.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("has a floor and a ceiling", func(t *testing.T) {
		for _, d := range []time.Duration{0, -time.Hour, time.Nanosecond} {
			l := newLimiter(t, 1, 5, 0)
			l.PenaliseAt(start, limiter.Bucket{}, d)
			if wait, _ := refused(t, l, start, limiter.Call{}); wait != 50*time.Millisecond {
				t.Errorf("penalty of %v waits %v, want 50ms", d, wait)
			}
		}
		l := newLimiter(t, 1, 5, 0)
		l.PenaliseAt(start, limiter.Bucket{}, 1<<63-1)
		if wait, _ := refused(t, l, start, limiter.Call{}); wait != 7*24*time.Hour {
			t.Errorf("waits %v, want 7 days", wait)
		}
	})
	t.Run("of a method closes that method", func(t *testing.T) {
		l := newLimiter(t, 1, 5, 0)
		l.PenaliseAt(start, limiter.Bucket{Method: "sendPhoto"}, 3*time.Second)
		l.PenaliseAt(start, limiter.Bucket{Channel: "a", Method: "edit"}, 5*time.Second)
		mustReserve(t, l, start, limiter.Call{Channel: "a"})
		mustReserve(t, l, start, limiter.Call{Channel: "b", Method: "edit"})
		if wait, by := refused(t, l, at(1), limiter.Call{Channel: "a", Method: "edit"}); wait != 4*time.Second || by != (limiter.Bucket{Channel: "a", Method: "edit"}) {
			t.Errorf("refused for %v by %+v, want 4s by the method in a", wait, by)
		}
		if wait, by := refused(t, l, at(1), limiter.Call{Channel: "b", Method: "sendPhoto"}); wait != 2*time.Second || by != (limiter.Bucket{Method: "sendPhoto"}) {
			t.Errorf("refused for %v by %+v, want 2s by the method", wait, by)
		}
		mustReserve(t, l, at(3), limiter.Call{Channel: "b", Method: "sendPhoto"})
	})
	t.Run("of too many methods closes something wider", func(t *testing.T) {
		l := newLimiter(t, 1, 5, 0)
		for i := range 1024 {
			l.PenaliseAt(start, limiter.Bucket{Method: fmt.Sprint(i)}, time.Hour)
		}
		l.PenaliseAt(start, limiter.Bucket{Channel: "a", Method: "new"}, time.Hour)
		if _, by := refused(t, l, at(60), limiter.Call{Channel: "a"}); by != (limiter.Bucket{Channel: "a"}) {
			t.Errorf("refused by %+v, want the channel", by)
		}
		mustReserve(t, l, at(60), limiter.Call{Channel: "b"})
		l.PenaliseAt(at(4000), limiter.Bucket{Method: "later"}, time.Hour) // those before are over
		mustReserve(t, l, at(4000), limiter.Call{Channel: "b"})
	})
}

func TestTake_countsWithoutRefusing(t *testing.T) {
	l := newLimiter(t, 1, 5, 0)
	l.Take(start, limiter.Call{Cost: 2})
	if got := granted(l, start, limiter.Call{}); got != 3 {
		t.Errorf("granted %d, want 3", got)
	}
	for range 100 {
		l.Take(start, limiter.Call{})
	}
	if wait, _ := refused(t, l, start, limiter.Call{}); wait > 2*time.Second {
		t.Errorf("a crowd of events locks the bot out for %v", wait)
	}
}

func TestReset_fillsAndForgets(t *testing.T) {
	l := newLimiter(t, 1, 5, time.Minute)
	mustReserve(t, l, start, limiter.Call{Channel: "a"})
	granted(l, start, limiter.Call{})
	l.PenaliseAt(start, limiter.Bucket{}, time.Hour)
	l.PenaliseAt(start, limiter.Bucket{Method: "m"}, time.Hour)
	changed := l.Changed()
	if err := l.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-changed
	mustReserve(t, l, start, limiter.Call{Channel: "a", Method: "m"})
	if got := granted(l, start, limiter.Call{}); got != 4 {
		t.Errorf("granted %d, want the other 4", got)
	}
}
