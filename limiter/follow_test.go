package limiter_test

import (
	"testing"
	"time"

	"github.com/chatgateway/gateway/limiter"
)

func TestFollow(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	l, err := limiter.ForProfile("telegram", limiter.ProfileStandard, limiter.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 { // a group's burst
		if _, _, ok := l.TryReserve(at.Add(time.Duration(i)*100*time.Millisecond), limiter.Call{Channel: "-1"}); !ok {
			t.Fatalf("slot %d of the burst is refused", i)
		}
	}
	at = at.Add(time.Second)
	l.Follow(at, "-1", "-100")
	if _, next, ok := l.TryReserve(at, limiter.Call{Channel: "-100"}); ok || next.Sub(at) < time.Second {
		t.Errorf("the new id has a burst of its own: ok = %v, next in %v", ok, next.Sub(at))
	}
	l.PenaliseAt(at, limiter.Bucket{Channel: "-100"}, time.Minute)
	l.Follow(at, "-100", "-200")
	l.Follow(at, "unknown", "-200")
	if _, next, ok := l.TryReserve(at.Add(59*time.Second), limiter.Call{Channel: "-200"}); ok || next.Sub(at) != time.Minute {
		t.Errorf("the penalty stayed behind: ok = %v, next in %v", ok, next.Sub(at))
	}
	if _, _, ok := l.TryReserve(at.Add(time.Minute), limiter.Call{Channel: "-200"}); !ok {
		t.Error("the penalty does not end")
	}
}
