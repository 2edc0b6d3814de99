package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/store/sqlite"
)

// limitsVariable holds the path of the shared limits in a child that sends.
const limitsVariable = "GATEWAY_TEST_SQLITE_LIMITS"

const (
	sharedRate    = 200
	sharedBurst   = 10
	sharedPenalty = 700 * time.Millisecond
	sharedFair    = 4 * time.Second / sharedRate // between two slots of one of four processes
)

// limitsChild takes slots until its input ends, and writes a line for each. The
// line "penalise" makes it close the bucket once.
func limitsChild(path string) {
	ctx, cancel := context.WithCancel(context.Background())
	store, err := sqlite.OpenLimits(ctx, path)
	exitOn(err)
	l, err := limiter.New(limiter.Config{MessagesPerSecond: sharedRate, BurstSize: sharedBurst}, limiter.WithStore(store))
	exitOn(err)
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	say("ready")
	in := bufio.NewScanner(os.Stdin)
	in.Scan() // the start
	go func() {
		for in.Scan() {
			begin := time.Now()
			exitOn(l.Penalise(ctx, limiter.Bucket{}, sharedPenalty))
			say("penalty %d %d", begin.UnixNano(), time.Now().UnixNano())
		}
		cancel()
	}()
	for {
		begin := time.Now()
		if l.Wait(ctx, "") != nil {
			os.Exit(0)
		}
		say("slot %d %d", begin.UnixNano(), time.Now().UnixNano())
	}
}

// sharedSlot is one slot that a child got, and when it had asked.
type sharedSlot struct{ asked, got time.Time }

// sender is a child that sends.
type sender struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	seen    chan struct{} // closed after the first hundred slots
	done    chan struct{}
	slots   []sharedSlot
	penalty sharedSlot
}

// startSenders starts four children on one file, all at once.
func startSenders(t *testing.T) []*sender {
	t.Helper()
	if testing.Short() {
		t.Skip("runs processes for seconds")
	}
	path := filepath.Join(memoryDir(t), "limits.db")
	var senders []*sender
	for range 4 {
		s := &sender{cmd: exec.CommandContext(t.Context(), os.Args[0]), seen: make(chan struct{}), done: make(chan struct{})}
		s.cmd.Env = append(os.Environ(), limitsVariable+"="+path)
		s.cmd.Stderr = os.Stderr
		var err error
		if s.in, err = s.cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := s.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		s.out = bufio.NewScanner(out)
		if err := s.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !s.out.Scan() || s.out.Text() != "ready" {
			t.Fatalf("the child says %q", s.out.Text())
		}
		senders = append(senders, s)
	}
	for _, s := range senders {
		go s.hear(t)
		fmt.Fprintln(s.in, "start")
	}
	return senders
}

// memoryDir is a folder in memory where the system has one.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "limits-*") //nolint:usetesting // the disk is not what is measured
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (s *sender) hear(t *testing.T) {
	t.Helper()
	defer close(s.done)
	for s.out.Scan() {
		var word string
		var asked, got int64
		if n, _ := fmt.Sscanf(s.out.Text(), "%s %d %d", &word, &asked, &got); n != 3 {
			t.Errorf("the child says %q", s.out.Text())
			return
		}
		slot := sharedSlot{time.Unix(0, asked), time.Unix(0, got)}
		if strings.HasPrefix(word, "penalty") {
			s.penalty = slot
			continue
		}
		if s.slots = append(s.slots, slot); len(s.slots) == 100 {
			close(s.seen)
		}
	}
	_ = s.cmd.Wait() // killed, or told to end
}

// endSenders ends the children after d and returns all slots in order.
func endSenders(senders []*sender, d time.Duration) []sharedSlot {
	time.Sleep(d) // other processes know no bubble
	var all []sharedSlot
	for _, s := range senders {
		_ = s.in.Close()
	}
	for _, s := range senders {
		<-s.done
		all = append(all, s.slots...)
	}
	slices.SortFunc(all, func(a, b sharedSlot) int { return a.got.Compare(b.got) })
	return all
}

// lateness measures by how much this machine wakes a sleeper too late at worst,
// until the function that it returns is called.
func lateness() (worst func() time.Duration) {
	stop, done := make(chan struct{}), make(chan time.Duration)
	go func() {
		const nap = 2 * time.Millisecond
		var most time.Duration
		for {
			begin := time.Now()
			select {
			case <-stop:
				done <- most
				return
			case <-time.After(nap):
				most = max(most, time.Since(begin)-nap)
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-done
	}
}

// waits returns the wait that one slot in a hundred exceeded, and the worst. The
// worst is up to the machine: a process that is not given the processor for a
// while waits, and whoever waits for the lock that it holds.
func waits(slots []sharedSlot) (usual, worst time.Duration) {
	var all []time.Duration
	for _, s := range slots {
		all = append(all, s.got.Sub(s.asked))
	}
	slices.Sort(all)
	return all[len(all)*99/100-1], all[len(all)-1]
}

// mostOver returns by how many slots the ceiling was broken at worst.
func mostOver(all []sharedSlot) float64 {
	most := -1e9
	for i := range all {
		for j := i; j < len(all); j++ {
			interval := all[j].got.Sub(all[i].got).Seconds()
			most = max(most, float64(j-i+1)-(sharedRate*(interval+0.1)+sharedBurst))
		}
	}
	return most
}

func TestLimits_shareOneRateAmongProcesses(t *testing.T) {
	senders, late := startSenders(t), lateness()
	all := endSenders(senders, 3*time.Second)
	slack := 50*time.Millisecond + 4*late()
	if over := mostOver(all); over > 0 {
		t.Errorf("an interval holds %.1f slots more than rate × (interval + 0.1 s) + burst", over)
	}
	fewest, most := 1<<30, 0
	for _, s := range senders {
		fewest, most = min(fewest, len(s.slots)), max(most, len(s.slots))
	}
	usual, worst := waits(all)
	passed := all[len(all)-1].got.Sub(all[0].got).Seconds()
	t.Logf("%d slots in %.2f s, %.1f below the ceiling; %d to %d for each; worst wait %v", len(all), passed, -mostOver(all), fewest, most, worst)
	if float64(len(all)) < 0.8*sharedRate*passed {
		t.Errorf("%d slots in %.2f s, want at least four fifths of the rate", len(all), passed)
	}
	if fewest*2 < most {
		t.Errorf("one process got %d slots, another %d", fewest, most)
	}
	if usual > sharedFair+slack {
		t.Errorf("one wait in a hundred was %v and more, want %v and %v at most", usual, sharedFair, slack)
	}
	if worst > time.Second {
		t.Errorf("the worst wait was %v", worst)
	}
}

func TestLimits_penaltyStopsAllProcesses(t *testing.T) {
	senders, late := startSenders(t), lateness()
	<-senders[0].seen
	fmt.Fprintln(senders[2].in, "penalise")
	all := endSenders(senders, 1500*time.Millisecond)
	penalty := senders[2].penalty
	if penalty.got.IsZero() {
		t.Fatal("no penalty was imposed")
	}
	slack := 20*time.Millisecond + 4*late() // between the last question for penalties and the call
	later := 0
	for _, slot := range all {
		if slot.got.After(penalty.got.Add(slack)) && slot.got.Before(penalty.asked.Add(sharedPenalty)) {
			t.Errorf("a slot was used %v before the penalty's end", penalty.asked.Add(sharedPenalty).Sub(slot.got))
		}
		if slot.got.After(penalty.asked.Add(sharedPenalty)) {
			later++
		}
	}
	if later < 4*sharedBurst {
		t.Errorf("%d slots after the penalty, want the rate again", later)
	}
	if over := mostOver(all); over > 0 {
		t.Errorf("an interval holds %.1f slots too many", over)
	}
}

func TestLimits_goOnWhenAProcessIsKilled(t *testing.T) {
	senders, late := startSenders(t), lateness()
	<-senders[0].seen
	killed := time.Now()
	if err := senders[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-senders[0].done
	endSenders(senders, time.Second)
	var later []sharedSlot
	for _, s := range senders[1:] {
		for _, slot := range s.slots {
			if slot.got.After(killed) {
				later = append(later, slot)
			}
		}
	}
	usual, worst := waits(later)
	t.Logf("%d slots in the second after the kill, worst wait %v", len(later), worst)
	if len(later) < sharedRate*4/5 {
		t.Errorf("the others got %d slots in the second after the kill, want at least four fifths of the rate", len(later))
	}
	if most := sharedFair + 50*time.Millisecond + 4*late(); usual > most || worst > time.Second {
		t.Errorf("one wait in a hundred was %v and more, the worst %v, want %v at most", usual, worst, most)
	}
}
