package sqlite_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/inbound"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/store/sqlite"
)

const day = 24 * time.Hour

var retention = sqlite.Retention{Sent: 3 * day, Dead: 30 * day, Events: 10 * day, Targets: 20 * day}

// ended stores an entry that ended so long ago.
func ended(t *testing.T, s *sqlite.Store, o outbox.Owner, now time.Time, ago time.Duration, state outbox.State, key string) outbox.ID {
	t.Helper()
	e := entry("1", "x")
	e.Key = key
	at := now.Add(-ago)
	a, err := s.Apply(t.Context(), outbox.Batch{At: at, New: []outbox.Entry{e}})
	if err != nil {
		t.Fatal(err)
	}
	id := a.New[0].ID
	if state.Pending() {
		return id
	}
	if _, err := s.Apply(t.Context(), outbox.Batch{Owner: o, At: at, Settled: []outbox.Settlement{{ID: id, State: state}}}); err != nil {
		t.Fatal(err)
	}
	return id
}

func left(t *testing.T, s *sqlite.Store, id outbox.ID) bool {
	t.Helper()
	entries, err := s.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries) == 1
}

func TestPrune_keepsEntriesForTheirTime(t *testing.T) {
	s := open(t, newPath(t))
	o, err := s.Acquire(t.Context(), "support")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	hour := time.Hour
	cases := []struct {
		ago   time.Duration
		state outbox.State
		key   string
		kept  bool
		id    outbox.ID
	}{
		{ago: -1000 * day, state: outbox.Sent, kept: true}, // the clock stood wrong for a moment
		{ago: 3*day + hour, state: outbox.Sent},
		{ago: 3*day - hour, state: outbox.Sent, kept: true},
		{ago: 3*day + hour, state: outbox.Expired},
		{ago: 3*day + hour, state: outbox.Cancelled},
		{ago: 3*day + hour, state: outbox.Dead, kept: true},
		{ago: 30*day + hour, state: outbox.Dead},
		{ago: 30*day - hour, state: outbox.Dead, kept: true},
		{ago: 7*day - hour, state: outbox.Sent, key: "k", kept: true},
		{ago: 7*day + hour, state: outbox.Sent, key: "l"},
		{ago: 7*day - hour, state: outbox.Dead, key: "m", kept: true},
		{ago: 400 * day, state: outbox.Queued, kept: true},
		{ago: 400 * day, state: outbox.Waiting, kept: true},
		{ago: 400 * day, state: outbox.Sent, kept: true}, // the newest: its number must not be given out again
	}
	for i, c := range cases {
		cases[i].id = ended(t, s, o, now, c.ago, c.state, c.key)
	}
	for range 2 {
		if err := s.Prune(t.Context(), retention, now); err != nil {
			t.Fatalf("Prune() failed: %v", err)
		}
	}
	for _, c := range cases {
		if got := left(t, s, c.id); got != c.kept {
			t.Errorf("%v %v after its end, key %q: kept = %v, want %v", c.state, c.ago, c.key, got, c.kept)
		}
	}
	last := cases[len(cases)-1].id
	if id := ended(t, s, o, now, 0, outbox.Queued, ""); id != last+1 {
		t.Errorf("the next id is %d, want %d", id, last+1)
	}
}

func TestPrune_keepsEventsTargetsAndMovesForTheirTime(t *testing.T) {
	s := open(t, newPath(t))
	o, err := s.Acquire(t.Context(), "support")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	accept := func(id string, end bool) outbox.TurnID {
		a, err := s.Accept(t.Context(), inbound.Intake{Ended: end, Event: chat.Event{ID: id, Source: chat.Target{Bot: "support", Chat: "1"}}})
		if err != nil {
			t.Fatal(err)
		}
		return a[0].Turn
	}
	first := accept("ended", true)
	accept("open", false)
	last := accept("newest", true)
	if _, err := s.Apply(t.Context(), outbox.Batch{
		Owner: o, Moves: []outbox.Move{{From: "1", To: "2"}},
		Dead: []outbox.DeadTarget{{Chat: "old", At: now.Add(-11 * day)}, {Chat: "young", At: now.Add(-9 * day)}},
	}); err != nil {
		t.Fatal(err)
	}
	prune := func(now time.Time) {
		t.Helper()
		if err := s.Prune(t.Context(), retention, now); err != nil {
			t.Fatalf("Prune() failed: %v", err)
		}
	}
	prune(now.Add(10*day - time.Hour))
	if again := accept("ended", true); again != first {
		t.Errorf("an event of nearly ten days ago is not known any more")
	}
	b, err := s.Load(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Dead) != 1 || b.Dead[0].Chat != "young" || len(b.Moves) != 1 {
		t.Errorf("left are the dead targets %v and the moves %v, want young and the move", b.Dead, b.Moves)
	}
	prune(now.Add(10*day + time.Hour))
	if again := accept("newest", true); again != last {
		t.Errorf("the newest event was forgotten: its number would be given out again")
	}
	if again := accept("ended", true); again != last+1 {
		t.Errorf("the event has turn %d after its retention, want a new one, %d", again, last+1)
	}
	turns, err := s.Unfinished(t.Context(), "support", 0, 10)
	if err != nil || len(turns) != 1 {
		t.Errorf("unfinished turns are %v, %v, want the open one", turns, err)
	}
}

func TestPrune_deletesInSmallCommitsBetweenOthers(t *testing.T) {
	s := open(t, newPath(t))
	o, err := s.Acquire(t.Context(), "support")
	if err != nil {
		t.Fatal(err)
	}
	const rows = 6200 // more than are looked at at once
	now := time.Now()
	batch := outbox.Batch{At: now.Add(-100 * day), New: slices.Repeat([]outbox.Entry{entry("1", "x")}, rows)}
	a, err := s.Apply(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	settle := outbox.Batch{Owner: o, At: batch.At}
	for _, n := range a.New {
		settle.Settled = append(settle.Settled, outbox.Settlement{ID: n.ID, State: outbox.Sent})
	}
	if _, err := s.Apply(t.Context(), settle); err != nil {
		t.Fatal(err)
	}
	before := s.Commits()
	stop := make(chan struct{})
	wrote := 0
	var group sync.WaitGroup
	group.Go(func() {
		for {
			if _, err := s.Apply(context.WithoutCancel(t.Context()), outbox.Batch{New: []outbox.Entry{entry("2", fmt.Sprint(wrote))}}); err != nil {
				t.Errorf("Apply() beside Prune failed: %v", err)
			}
			wrote++
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	err = s.Prune(t.Context(), retention, now)
	close(stop)
	group.Wait()
	if err != nil {
		t.Fatalf("Prune() failed: %v", err)
	}
	if commits := s.Commits() - before; commits < rows/500 {
		t.Errorf("%d commits for %d rows, want one for 500", commits, rows)
	}
	if wrote < 5 {
		t.Errorf("%d writes came through beside Prune, want many", wrote)
	}
	t.Logf("%d writes came through beside the deletion of %d rows", wrote, rows)
	if left(t, s, a.New[0].ID) || left(t, s, a.New[rows-2].ID) {
		t.Errorf("old rows are left")
	}
	if n := len(heads(t, s, o)); n != wrote {
		t.Errorf("%d entries are pending, want the %d that were written", n, wrote)
	}
}
