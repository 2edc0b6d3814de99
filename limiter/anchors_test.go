package limiter_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/limiter"
)

func takeAnchors(tb testing.TB, l *limiter.RateLimiter, now time.Time) limiter.Anchors {
	tb.Helper()
	a, changed := l.TakeAnchors(now)
	if !changed {
		tb.Fatal("TakeAnchors() says that nothing changed")
	}
	return a
}

func TestTakeAnchors_holdsWhatChanged(t *testing.T) {
	l := newLimiter(t, 1, 5, time.Second, limiter.WithScope("s"),
		limiter.WithChannelRules(limiter.ChannelRules{Chat: limiter.Rule{Every: 2 * time.Second, Burst: 3}}))
	if _, changed := l.TakeAnchors(start); changed {
		t.Error("a new limiter has anchors to store")
	}
	mustReserve(t, l, start, limiter.Call{Channel: "a"})
	l.PenaliseAt(start, limiter.Bucket{Channel: "b"}, 10*time.Second)
	want := limiter.Anchors{
		Scope: "s", At: at(0.5), Tokens: 3.5,
		Channels: []limiter.ChannelAnchor{
			{Channel: "a", DelayUntil: at(1), RuleUntil: at(2)},
			{Channel: "b", PenaltyUntil: at(10), PenaltyFor: 10 * time.Second},
		},
	}
	got := takeAnchors(t, l, at(0.5))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("TakeAnchors() (-want +got):\n%s", diff)
	}
	if _, changed := l.TakeAnchors(at(0.5)); changed {
		t.Error("anchors are there twice")
	}
	refused(t, l, at(0.5), limiter.Call{Channel: "a"})
	if _, changed := l.TakeAnchors(at(0.5)); changed {
		t.Error("a refusal changed something")
	}
	l.ReturnAnchors(got)
	if diff := cmp.Diff(want, takeAnchors(t, l, at(0.5))); diff != "" {
		t.Errorf("TakeAnchors() after ReturnAnchors (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, l.Snapshot(at(0.5)), cmp.Transformer("sort", func(c []limiter.ChannelAnchor) map[string]limiter.ChannelAnchor {
		m := map[string]limiter.ChannelAnchor{}
		for _, a := range c {
			m[a.Channel] = a
		}
		return m
	})); diff != "" {
		t.Errorf("Snapshot() (-want +got):\n%s", diff)
	}
	mustReserve(t, l, at(3), limiter.Call{Channel: "c"})
	if got := takeAnchors(t, l, at(3)); len(got.Channels) != 1 || got.Channels[0].Channel != "c" {
		t.Errorf("TakeAnchors() holds %+v, want channel c alone", got.Channels)
	}
}

func TestTakeAnchors_afterReset(t *testing.T) {
	l := newLimiter(t, 1, 5, time.Second)
	l.PenaliseAt(start, limiter.Bucket{Channel: "b"}, time.Hour)
	takeAnchors(t, l, start)
	if err := l.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := takeAnchors(t, l, start)
	if diff := cmp.Diff(limiter.Anchors{Scope: "default", At: start, Tokens: 5, Cleared: true}, got); diff != "" {
		t.Errorf("TakeAnchors() (-want +got):\n%s", diff)
	}
	l.ReturnAnchors(got)
	if got := takeAnchors(t, l, start); !got.Cleared {
		t.Error("Cleared is forgotten by ReturnAnchors")
	}
}

func TestRestore_tokens(t *testing.T) {
	tests := []struct {
		name string
		a    limiter.Anchors
		want int // slots at start, of 5, one a second
	}{
		{"nothing was stored", limiter.Anchors{}, 5},
		{"an orderly stop", limiter.Anchors{At: start, Tokens: 2, Clean: true}, 2},
		{"an orderly stop a while ago", limiter.Anchors{At: at(-2), Tokens: 1, Clean: true}, 3},
		{"an orderly stop long ago", limiter.Anchors{At: at(-1e6), Tokens: 0, Clean: true}, 5},
		{"half a slot is none", limiter.Anchors{At: start, Tokens: 2.999, Clean: true}, 2},
		{"a crash", limiter.Anchors{At: start, Tokens: 5}, 0},
		{"a crash long ago", limiter.Anchors{At: at(-1e6), Tokens: 5}, 0},
		{"taken a day ahead of this clock", limiter.Anchors{At: at(86400), Tokens: 3, Clean: true}, 3},
		{"more than the bucket holds", limiter.Anchors{At: start, Tokens: 1e18, Clean: true}, 5},
		{"no number", limiter.Anchors{At: start, Tokens: math.NaN(), Clean: true}, 0},
		{"infinite", limiter.Anchors{At: start, Tokens: math.Inf(1), Clean: true}, 5},
		{"infinitely negative", limiter.Anchors{At: start, Tokens: math.Inf(-1), Clean: true}, 0},
		{"year one", limiter.Anchors{Tokens: 3, Clean: true}, 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLimiter(t, 1, 5, 0)
			l.Restore(start, tt.a)
			if got := granted(l, start, limiter.Call{}); got != tt.want {
				t.Errorf("granted %d, want %d", got, tt.want)
			}
			if wait, _ := refused(t, l, start, limiter.Call{}); wait > 2*time.Second {
				t.Errorf("waits %v for one slot", wait)
			}
		})
	}
}

func TestRestore_penaltiesAndChannels(t *testing.T) {
	tests := []struct {
		name string
		a    limiter.Anchors
		call limiter.Call
		want time.Duration
		by   limiter.Bucket
	}{
		{"the bucket's penalty goes on", limiter.Anchors{At: at(-1), PenaltyUntil: at(5), PenaltyFor: time.Minute, Tokens: 5, Clean: true}, limiter.Call{}, 5 * time.Second, limiter.Bucket{}},
		{"after a crash too", limiter.Anchors{At: at(-1), PenaltyUntil: at(50), PenaltyFor: time.Minute}, limiter.Call{}, 50 * time.Second, limiter.Bucket{}},
		{"one that is over is over", limiter.Anchors{At: at(-9), PenaltyUntil: at(-1), PenaltyFor: time.Minute, Tokens: 0, Clean: true}, limiter.Call{Cost: 5}, 0, limiter.Bucket{}},
		{"one without a length is kept", limiter.Anchors{At: start, PenaltyUntil: at(50), Tokens: 5, Clean: true}, limiter.Call{}, 50 * time.Second, limiter.Bucket{}},
		{
			"taken a day ahead: what was left then",
			limiter.Anchors{At: at(86400), PenaltyUntil: at(86403), PenaltyFor: 10 * time.Second, Tokens: 5, Clean: true},
			limiter.Call{},
			3 * time.Second,
			limiter.Bucket{},
		},
		{
			"never longer than imposed",
			limiter.Anchors{At: start, Tokens: 5, Clean: true, Channels: []limiter.ChannelAnchor{{Channel: "a", PenaltyUntil: at(86400), PenaltyFor: 3 * time.Second}}},
			limiter.Call{Channel: "a"},
			3 * time.Second,
			limiter.Bucket{Channel: "a"},
		},
		{
			"a channel's delay",
			limiter.Anchors{At: start, Tokens: 5, Clean: true, Channels: []limiter.ChannelAnchor{{Channel: "a", DelayUntil: at(0.7)}}},
			limiter.Call{Channel: "a"},
			700 * time.Millisecond,
			limiter.Bucket{Channel: "a"},
		},
		{
			"a channel's delay from the future",
			limiter.Anchors{At: start, Tokens: 5, Clean: true, Channels: []limiter.ChannelAnchor{{Channel: "a", DelayUntil: at(1e6)}}},
			limiter.Call{Channel: "a"},
			time.Second,
			limiter.Bucket{Channel: "a"},
		},
		{
			"a channel's rule",
			limiter.Anchors{At: start, Tokens: 5, Clean: true, Channels: []limiter.ChannelAnchor{{Channel: "a", RuleUntil: at(19)}}},
			limiter.Call{Channel: "a"},
			9 * time.Second,
			limiter.Bucket{Channel: "a"},
		},
		{
			"a method",
			limiter.Anchors{At: start, Tokens: 5, Clean: true, Channels: []limiter.ChannelAnchor{{Method: "m", PenaltyUntil: at(4), PenaltyFor: time.Minute}}},
			limiter.Call{Channel: "a", Method: "m"},
			4 * time.Second,
			limiter.Bucket{Method: "m"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLimiter(t, 1, 5, time.Second, limiter.WithChannelRules(limiter.ChannelRules{Chat: limiter.Rule{Every: 10 * time.Second, Burst: 2}}))
			l.Restore(start, tt.a)
			if tt.want == 0 {
				mustReserve(t, l, start, tt.call)
				return
			}
			if wait, by := refused(t, l, start, tt.call); wait != tt.want || by != tt.by {
				t.Errorf("refused for %v by %+v, want %v by %+v", wait, by, tt.want, tt.by)
			}
		})
	}
}

func TestRestore_leavesAnchorsThatAreNotClean(t *testing.T) {
	l := newLimiter(t, 1, 5, 0)
	l.Restore(start, limiter.Anchors{At: start, Tokens: 3, Clean: true})
	if a := takeAnchors(t, l, start); a.Clean || a.Tokens != 3 {
		t.Errorf("TakeAnchors() after Restore = %+v, want 3 tokens, not clean", a)
	}
}

func TestRestore_keepsWhatIsStricter(t *testing.T) {
	l := newLimiter(t, 1, 5, 0)
	r := mustReserve(t, l, start, limiter.Call{Cost: 4})
	l.PenaliseAt(start, limiter.Bucket{Channel: "a"}, time.Minute)
	l.Restore(start, limiter.Anchors{At: start, Tokens: 4, Clean: true, Channels: []limiter.ChannelAnchor{{Channel: "a", PenaltyUntil: at(1), PenaltyFor: time.Second}}})
	if got := granted(l, start, limiter.Call{}); got != 0 {
		t.Errorf("granted %d, want none of the 5", got)
	}
	r.Cancel(start)
	if wait, _ := refused(t, l, at(20), limiter.Call{Channel: "a"}); wait != 40*time.Second {
		t.Errorf("waits %v, want 40s", wait)
	}
}

func TestTable_isBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("a million channels")
	}
	t.Run("idle channels are forgotten", func(t *testing.T) {
		l := newLimiter(t, 1e6, 1e6, time.Millisecond)
		l.PenaliseAt(start, limiter.Bucket{Channel: "held"}, 24*time.Hour)
		for i := range 1_000_000 {
			mustReserve(t, l, start.Add(time.Duration(i)*time.Microsecond), limiter.Call{Channel: strconv.Itoa(i)})
		}
		if n := len(l.Snapshot(at(1)).Channels); n > 4096 {
			t.Errorf("%d channels are kept, want 4096 at most", n)
		}
		if _, by := refused(t, l, at(2), limiter.Call{Channel: "held"}); by.Channel != "held" {
			t.Error("a penalised channel was forgotten")
		}
	})
	t.Run("penalties have a bound and then close the bucket", func(t *testing.T) {
		l := newLimiter(t, 1e6, 1e6, 0)
		const most = 65536 + 4096
		for i := range most {
			l.PenaliseAt(start, limiter.Bucket{Channel: strconv.Itoa(i)}, time.Hour)
		}
		mustReserve(t, l, at(1), limiter.Call{Channel: "other"})
		for i := most; i < 1_000_000; i++ {
			l.PenaliseAt(at(1), limiter.Bucket{Channel: strconv.Itoa(i)}, time.Minute)
		}
		if n := len(l.Snapshot(at(1)).Channels); n != most {
			t.Errorf("%d penalties are kept, want %d", n, most)
		}
		if _, by := refused(t, l, at(2), limiter.Call{Channel: "other"}); by != (limiter.Bucket{}) {
			t.Errorf("refused by %+v, want the whole bucket", by)
		}
		refused(t, l, at(3599), limiter.Call{Channel: "77"})
	})
	t.Run("channels without room share one delay", func(t *testing.T) {
		l := newLimiter(t, 1e6, 1e6, time.Minute)
		for i := range 65536 + 4096 {
			mustReserve(t, l, start, limiter.Call{Channel: strconv.Itoa(i)})
		}
		r := mustReserve(t, l, start, limiter.Call{Channel: "x"})
		if _, by := refused(t, l, start, limiter.Call{Channel: "y"}); by.Channel != "y" {
			t.Errorf("refused by %+v, want y", by)
		}
		r.Cancel(start)
		mustReserve(t, l, start, limiter.Call{Channel: "y"})
		mustReserve(t, l, at(60), limiter.Call{Channel: "x"}) // room again
		mustReserve(t, l, at(60), limiter.Call{Channel: "y"})
	})
	t.Run("a crowd that became idle shrinks again", func(t *testing.T) {
		l := newLimiter(t, 1e6, 1e6, time.Second)
		for i := range 50000 {
			mustReserve(t, l, start, limiter.Call{Channel: strconv.Itoa(i)})
		}
		for i := range 20000 {
			mustReserve(t, l, at(10), limiter.Call{Channel: fmt.Sprint("new", i)})
		}
		if n := l.Tracked(); n > 20000+4096 {
			t.Errorf("%d channels are kept, want no more than the busy ones and 4096", n)
		}
	})
}
