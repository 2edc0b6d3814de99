package redis_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/store/redis"
	"github.com/chatgateway/gateway/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server starts a Redis server on a free port and returns its address. Without
// the program the test is skipped; in CI that is a failure.
func server(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatal("redis-server is not installed")
		}
		tb.Skip("redis-server is not installed")
	}
	for range 5 { // another program may take the free port first
		if address, ok := start(tb, path); ok {
			return address
		}
	}
	tb.Fatal("redis-server does not start")
	return ""
}

// start starts the server, and ends it with the test. It returns false if the
// server does not listen.
func start(tb testing.TB, path string) (address string, ok bool) {
	tb.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	_, port, _ := strings.Cut(free.Addr().String(), ":")
	free.Close()
	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", tb.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	lines, ready, ended := bufio.NewScanner(out), make(chan bool, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines.Scan() { // to the end, so that the server never waits for us
			if strings.Contains(lines.Text(), "Ready to accept connections") {
				ready <- true
			}
		}
		close(ready)
		_ = cmd.Wait()
	}()
	tb.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	return "redis://127.0.0.1:" + port, <-ready
}

// open connects, and closes when the test ends.
func open(tb testing.TB, address string) *redis.Limits {
	tb.Helper()
	l, err := redis.OpenLimits(tb.Context(), address)
	if err != nil {
		tb.Fatalf("OpenLimits() failed: %v", err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Errorf("Close() failed: %v", err)
		}
	})
	return l
}

func TestLimits(t *testing.T) {
	address, n := server(t), 0
	storetest.RunLimits(t, func(t *testing.T) limiter.Store {
		t.Helper()
		n++
		return open(t, fmt.Sprint(address, "/", n)) // a database of its own
	})
}

func TestLimits_shareOneRateAmongConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two seconds")
	}
	const rate, burst = 200, 10
	address := server(t)
	var mu sync.Mutex
	var all []time.Time
	counts := make([]int, 4)
	var group sync.WaitGroup
	begin := time.Now()
	for i := range counts {
		l, err := limiter.New(limiter.Config{MessagesPerSecond: rate, BurstSize: burst}, limiter.WithStore(open(t, address)))
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			for time.Since(begin) < 2*time.Second {
				if err := l.Wait(t.Context(), ""); err != nil {
					t.Errorf("Wait() = %v", err)
					return
				}
				mu.Lock()
				all = append(all, time.Now())
				counts[i]++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	for i := range all {
		for j := i; j < len(all); j++ {
			if most := rate*(all[j].Sub(all[i]).Seconds()+0.1) + burst; float64(j-i+1) > most {
				t.Fatalf("%d slots in %v, want %.1f at most", j-i+1, all[j].Sub(all[i]), most)
			}
		}
	}
	t.Logf("%d slots, %v for each", len(all), counts)
	for _, n := range counts {
		if n < len(all)/8 {
			t.Errorf("the slots went %v, want at least half a fair share for each", counts)
		}
	}
}

func TestLimits_startEmptyOnAServerThatHasJustBegun(t *testing.T) {
	l := open(t, server(t))
	a := limiter.Ask{Scope: "s", Mode: limiter.Try, Call: limiter.Call{Cost: 1}, Token: limiter.Rule{Every: time.Hour, Burst: 5}}
	for range 2 {
		if got, err := l.Reserve(t.Context(), a); err != nil || got.Granted || got.Wait > time.Hour || got.Wait < 59*time.Minute {
			t.Errorf("Reserve() = %+v, %v, want an empty bucket", got, err)
		}
	}
	if err := l.Reset(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Reserve(t.Context(), a); err != nil || !got.Granted {
		t.Errorf("Reserve() after Reset = %+v, %v, want a slot", got, err)
	}
}

func TestOpenLimits_saysWhatIsWrong(t *testing.T) {
	for _, address := range []string{"", "nothing", "http://user:topsecret@host", "redis://user:topsecret@127.0.0.1:1/0"} {
		l, err := redis.OpenLimits(t.Context(), address)
		if err == nil {
			t.Fatalf("OpenLimits(%q) succeeded: %v", address, l.Close())
		}
		if strings.Contains(err.Error(), "topsecret") {
			t.Errorf("OpenLimits() = %v, which tells the password", err)
		}
	}
}

func BenchmarkLimits(b *testing.B) {
	l := open(b, server(b))
	a := limiter.Ask{
		Scope: "s", Mode: limiter.Ahead, Call: limiter.Call{Channel: "a", Method: "m", Cost: 1},
		Token: limiter.Rule{Every: time.Microsecond, Burst: 1000}, Delay: limiter.Rule{Every: time.Microsecond, Burst: 1},
	}
	for b.Loop() {
		if got, err := l.Reserve(b.Context(), a); err != nil || !got.Granted {
			b.Fatal(got, err)
		}
	}
}

func TestLimits_areBounded(t *testing.T) {
	l := open(t, server(t))
	l.SetBounds(3, 2)
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	ask := func(channel string) limiter.Ask {
		return limiter.Ask{
			Scope: "s", Mode: limiter.Try, At: now, Call: limiter.Call{Channel: channel, Cost: 1},
			Token: limiter.Rule{Every: time.Second, Burst: 3}, Delay: limiter.Rule{Every: time.Second, Burst: 1},
		}
	}
	penalise := func(b limiter.Bucket, d time.Duration) {
		if err := l.Penalise(t.Context(), ask(""), b, d); err != nil {
			t.Fatalf("Penalise(%+v) failed: %v", b, err)
		}
		now = now.Add(10 * time.Second)
	}
	reserve := func(channel string) limiter.Answer {
		a, err := l.Reserve(t.Context(), ask(channel))
		if err != nil {
			t.Fatalf("Reserve() failed: %v", err)
		}
		return a
	}
	for i := range 3 {
		penalise(limiter.Bucket{Channel: fmt.Sprint(i)}, time.Hour)
	}
	a := reserve("x")
	if !a.Granted || !a.Ticket.Shared {
		t.Errorf("Reserve() = %+v, want a slot in the shared row", a)
	}
	if a := reserve("y"); a.Granted || a.Blocked.Channel != "y" {
		t.Errorf("Reserve() = %+v, want the shared delay", a)
	}
	if err := l.Cancel(t.Context(), ask("x"), a.Ticket); err != nil {
		t.Fatal(err)
	}
	if a := reserve("y"); !a.Granted {
		t.Errorf("Reserve() = %+v, want the slot that was given back", a)
	}
	now = now.Add(10 * time.Second)
	for _, m := range []string{"m", "n", "o"} {
		penalise(limiter.Bucket{Channel: "0", Method: m}, 2*time.Hour)
	}
	if a := reserve("0"); a.Granted || a.Blocked != (limiter.Bucket{Channel: "0"}) || a.Wait != 2*time.Hour-10*time.Second {
		t.Errorf("Reserve() = %+v, want the channel closed instead of a third method", a)
	}
	penalise(limiter.Bucket{Channel: "z"}, time.Minute)
	if a := reserve(""); a.Granted || a.Wait != 50*time.Second {
		t.Errorf("Reserve() = %+v, want the whole bucket closed instead of a further channel", a)
	}
	now = now.Add(3 * time.Hour)
	if a := reserve("z"); !a.Granted || a.Ticket.Shared {
		t.Errorf("Reserve() = %+v, want a row of its own, since the others are idle", a)
	}
}
