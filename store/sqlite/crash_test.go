package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/inbound"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/store/sqlite"
)

// crashVariable holds the path of the store in the child that is killed.
const crashVariable = "GATEWAY_TEST_SQLITE_CRASH"

// crashChild stores, sends and settles for ever, and writes a line for each
// answer that it got.
func crashChild(path string) {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, path)
	exitOn(err)
	o, err := s.Acquire(ctx, "support")
	exitOn(err)
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for n := 0; ; n++ {
				event := chat.Event{ID: fmt.Sprint(o.Epoch, worker, n), Source: chat.Target{Bot: "support", Chat: "1"}}
				turn, err := s.Accept(ctx, inbound.Intake{Event: event})
				exitOn(err)
				say("accepted %d", turn[0].Turn)
				e := outbox.Entry{
					Target: event.Source, State: outbox.Sending, Priority: outbox.Reply,
					Parts: []chat.Part{{Text: strings.Repeat("x", rand.IntN(9000))}},
				}
				a, err := s.Apply(ctx, outbox.Batch{
					Owner: o, New: []outbox.Entry{e}, Turns: []outbox.TurnEnd{{Turn: turn[0].Turn, Outcome: outbox.TurnDone}},
				})
				exitOn(err)
				say("ended %d sending %d", turn[0].Turn, a.New[0].ID)
				_, err = s.Apply(ctx, outbox.Batch{Owner: o, Settled: []outbox.Settlement{
					{ID: a.New[0].ID, State: outbox.Sent, Delivered: true, Receipt: "r"},
				}})
				exitOn(err)
				say("sent %d", a.New[0].ID)
			}
		})
	}
	group.Wait()
}

func exitOn(err error) {
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

func TestStore_keepsWhatItAnsweredThroughKill(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	told := newStory()
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		told.killChild(t, path, 20+rand.IntN(200))
		told.check(t, path)
	}
	t.Logf("%d kills, %d answers", rounds, told.answers)
}

// story is what the children were told by the store.
type story struct {
	answers        int
	accepted, done map[outbox.TurnID]bool
	states         map[outbox.ID]outbox.State
}

func newStory() *story {
	return &story{accepted: map[outbox.TurnID]bool{}, done: map[outbox.TurnID]bool{}, states: map[outbox.ID]outbox.State{}}
}

// killChild runs a child and kills it after some answers.
func (st *story) killChild(t *testing.T, path string, after int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashVariable+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ { // what it still wrote after the signal counts too
		st.hear(t, lines.Text())
		if n == after {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // killed
}

func (st *story) hear(t *testing.T, line string) {
	t.Helper()
	var turn outbox.TurnID
	var id outbox.ID
	st.answers++
	if n, _ := fmt.Sscanf(line, "accepted %d", &turn); n == 1 {
		st.accepted[turn] = true
	} else if n, _ := fmt.Sscanf(line, "ended %d sending %d", &turn, &id); n == 2 {
		st.done[turn], st.states[id] = true, outbox.Sending
	} else if n, _ := fmt.Sscanf(line, "sent %d", &id); n == 1 {
		st.states[id] = outbox.Sent
	} else {
		t.Fatalf("the child says %q", line)
	}
}

func (st *story) check(t *testing.T, path string) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatalf("Open() after the kill failed: %v", err)
	}
	defer s.Close()
	unfinished := map[outbox.TurnID]bool{}
	turns, err := s.Unfinished(t.Context(), "support", 0, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for _, turn := range turns {
		unfinished[turn.ID] = true
	}
	for turn := range st.accepted {
		if n, err := s.Begin(t.Context(), turn); err != nil || (n == 0) == unfinished[turn] || st.done[turn] && n > 0 {
			t.Errorf("turn %d: Begin() = %d, %v; unfinished %v, told that it ended %v", turn, n, err, unfinished[turn], st.done[turn])
		}
	}
	for id, state := range st.states {
		entries, err := s.Read(t.Context(), id)
		if err != nil || len(entries) != 1 {
			t.Fatalf("entry %d: %v, %v", id, entries, err)
		}
		if e := entries[0]; e.State != state && e.State != outbox.Sent {
			t.Errorf("entry %d is %v, want %v", id, e.State, state)
		}
	}
	if got := query(t, path, `PRAGMA integrity_check`); got != "ok" {
		t.Errorf("integrity_check says %q", got)
	}
}
