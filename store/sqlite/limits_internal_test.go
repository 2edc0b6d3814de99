package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/chatgateway/gateway/limiter"
)

// limitsFixture is a file of shared limits whose clocks the test sets.
type limitsFixture struct {
	*testing.T
	l   *Limits
	now systemTime
}

func newLimits(t *testing.T) *limitsFixture {
	t.Helper()
	l, err := OpenLimits(t.Context(), filepath.Join(t.TempDir(), "limits.db"))
	if err != nil {
		t.Fatalf("OpenLimits() failed: %v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close() failed: %v", err)
		}
	})
	f := &limitsFixture{T: t, l: l, now: systemTime{wall: int64(1000 * time.Hour), uptime: int64(time.Hour), run: "one"}}
	l.clock = func() systemTime { return f.now }
	return f
}

// pass lets time pass, on both clocks.
func (f *limitsFixture) pass(d time.Duration) {
	f.now.wall += int64(d)
	f.now.uptime += int64(d)
}

func limitsAsk(c limiter.Call) limiter.Ask {
	c.Cost = 1
	return limiter.Ask{
		Scope: "s", Mode: limiter.Try, Call: c,
		Token: limiter.Rule{Every: time.Second, Burst: 3}, Delay: limiter.Rule{Every: time.Second, Burst: 1},
	}
}

func (f *limitsFixture) reserve(c limiter.Call) limiter.Answer {
	f.Helper()
	a, err := f.l.Reserve(f.Context(), limitsAsk(c))
	if err != nil {
		f.Fatalf("Reserve() failed: %v", err)
	}
	return a
}

func (f *limitsFixture) penalise(b limiter.Bucket, d time.Duration) {
	f.Helper()
	if err := f.l.Penalise(f.Context(), limitsAsk(limiter.Call{}), b, d); err != nil {
		f.Fatalf("Penalise() failed: %v", err)
	}
}

// granted takes slots until one is refused.
func (f *limitsFixture) granted() int {
	f.Helper()
	for n := 0; ; n++ {
		if !f.reserve(limiter.Call{}).Granted {
			return n
		}
	}
}

func (f *limitsFixture) rows(table string) int {
	f.Helper()
	var n int
	if err := f.l.conn.QueryRowContext(f.Context(), `SELECT count(*) FROM `+table).Scan(&n); err != nil {
		f.Fatal(err)
	}
	return n
}

func TestLimits_countWithTheSystemsUptime(t *testing.T) {
	f := newLimits(t)
	f.granted()
	for _, step := range []time.Duration{time.Hour, -3 * time.Hour, 1e6 * time.Hour} {
		f.now.wall += int64(step)
		if n := f.granted(); n != 0 {
			t.Errorf("a step of the wall clock by %v grants %d slots", step, n)
		}
		f.pass(2 * time.Second)
		if n := f.granted(); n != 2 {
			t.Errorf("two seconds after a step by %v: %d slots, want 2", step, n)
		}
	}
}

func TestLimits_startEmptyAfterTheSystemWasStartedAnew(t *testing.T) {
	f := newLimits(t)
	f.reserve(limiter.Call{})
	f.penalise(limiter.Bucket{Channel: "a"}, time.Minute)
	f.now = systemTime{wall: f.now.wall + int64(20*time.Second), uptime: int64(time.Second), run: "two"}
	for range 3 { // asking again does not begin the wait again
		if got := f.reserve(limiter.Call{}); got.Granted || got.Wait > time.Second {
			t.Fatalf("Reserve() = %+v, want an empty bucket", got)
		}
		f.pass(300 * time.Millisecond)
	}
	f.pass(100 * time.Millisecond)
	if n := f.granted(); n != 1 {
		t.Errorf("%d slots a second after the start, want 1", n)
	}
	f.pass(10 * time.Second)
	if got := f.reserve(limiter.Call{Channel: "a"}); got.Granted || got.Wait != 29*time.Second {
		t.Errorf("Reserve() = %+v, want what is left of the penalty: 29s", got)
	}
}

func TestLimits_countWithTheWallClockWithoutAnUptime(t *testing.T) {
	f := newLimits(t)
	f.now.run = ""
	f.granted()
	f.now.wall -= int64(time.Hour)
	if n := f.granted(); n != 0 {
		t.Errorf("a step back grants %d slots", n)
	}
	f.now.wall += int64(2 * time.Second)
	if n := f.granted(); n != 2 {
		t.Errorf("%d slots two seconds after a step back, want 2", n)
	}
	f.now.wall += int64(time.Hour)
	if n := f.granted(); n != 3 {
		t.Errorf("%d slots after a step forward, want one full bucket", n)
	}
}

func TestLimits_areBounded(t *testing.T) {
	f := newLimits(t)
	f.l.maxChannels, f.l.maxMethods = 3, 2
	for i := range 3 {
		f.penalise(limiter.Bucket{Channel: fmt.Sprint(i)}, time.Hour)
		f.pass(time.Second)
	}
	in := func(channel string) limiter.Call { return limiter.Call{Channel: channel} }
	f.pass(10 * time.Second)
	if a := f.reserve(in("x")); !a.Granted || !a.Ticket.Shared {
		t.Errorf("Reserve() = %+v, want a slot in the shared row", a)
	}
	if a := f.reserve(in("y")); a.Granted || a.Blocked.Channel != "y" {
		t.Errorf("Reserve() = %+v, want the shared delay", a)
	}
	f.pass(10 * time.Second)
	for _, m := range []string{"m", "n", "o"} {
		f.penalise(limiter.Bucket{Channel: "0", Method: m}, 2*time.Hour)
	}
	f.pass(10 * time.Second)
	if a := f.reserve(in("0")); a.Granted || a.Blocked != (limiter.Bucket{Channel: "0"}) || a.Wait != 2*time.Hour-10*time.Second {
		t.Errorf("Reserve() = %+v, want the channel closed instead of a third method", a)
	}
	f.penalise(limiter.Bucket{Channel: "z"}, time.Minute)
	if a := f.reserve(limiter.Call{}); a.Granted || a.Wait != time.Minute {
		t.Errorf("Reserve() = %+v, want the whole bucket closed instead of a further channel", a)
	}
	if n := f.rows("limit_channels"); n != 4 {
		t.Errorf("%d rows of channels, want 3 and the shared one", n)
	}
}

func TestLimits_forgetWhatIsIdle(t *testing.T) {
	f := newLimits(t)
	for i := range 3 * sweepLimits / 2 {
		f.pass(time.Second)
		f.reserve(limiter.Call{Channel: fmt.Sprint(i)})
	}
	if n := f.rows("limit_channels"); n > sweepLimits/2+2 {
		t.Errorf("%d rows of channels, want those since the last sweep", n)
	}
	var counted int
	if err := f.l.conn.QueryRowContext(t.Context(), `SELECT channels FROM limit_scopes`).Scan(&counted); err != nil || counted != f.rows("limit_channels") {
		t.Errorf("%d rows are counted, %v; there are %d", counted, err, f.rows("limit_channels"))
	}
}
