package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/chatgateway/gateway/outbox"
)

func togetherCases() []testCase {
	return []testCase{
		{"callers at one time share commits and keep what is theirs", shared},
		{"a refused caller does not hurt those of its commit", refusedTogether},
		{"every call that is answered can be read at once", readOwnWrites},
	}
}

// counter is a store that counts its commits.
type counter interface{ Commits() uint64 }

const callers = 64

// together calls each from its own goroutine, callers times calls.
func together(calls int, each func(caller, call int)) {
	var group sync.WaitGroup
	begin := make(chan struct{})
	for i := range callers {
		group.Go(func() {
			<-begin
			for n := range calls {
				each(i, n)
			}
		})
	}
	close(begin)
	group.Wait()
}

func shared(s *suite) {
	const calls = 8
	o := s.acquire(bot)
	var before uint64
	c, counts := s.Store.(counter)
	if counts {
		before = c.Commits()
	}
	ids := make([][]outbox.ID, callers)
	together(calls, func(caller, n int) {
		e := text("1", fmt.Sprint(caller, " ", n))
		e.State = outbox.Sending
		batch := outbox.Batch{Owner: o, At: start, New: []outbox.Entry{e}}
		if n > 0 {
			batch.Settled = []outbox.Settlement{sent(ids[caller][n-1], "r")}
		}
		a, err := s.Apply(context.WithoutCancel(s.Context()), batch)
		if err != nil {
			s.Errorf("Apply() failed: %v", err)
			return
		}
		ids[caller] = append(ids[caller], a.New[0].ID)
	})
	if counts {
		commits := c.Commits() - before
		s.Logf("%d commits for %d calls of %d callers", commits, callers*calls, callers)
		if commits > callers*calls/4 {
			s.Errorf("%d calls took %d commits, want a quarter of them at most", callers*calls, commits)
		}
	}
	for caller, mine := range ids {
		if !slices.IsSorted(mine) {
			s.Errorf("caller %d got ids that don't rise: %v", caller, mine)
		}
		for n, e := range s.read(mine...) {
			if want := fmt.Sprint(caller, " ", n); e.Parts[0].Text != want {
				s.Errorf("entry %d is %q, want %q", e.ID, e.Parts[0].Text, want)
			}
			if ended := n < calls-1; ended == e.State.Pending() {
				s.Errorf("entry %q is %v", e.Parts[0].Text, e.State)
			}
		}
	}
	if n := len(s.pendingIDs(o)); n != callers {
		s.Errorf("%d entries are pending, want %d", n, callers)
	}
}

func refusedTogether(s *suite) {
	old := s.acquire(bot)
	o := s.acquire(bot)
	s.store(keyed("k", "known"))
	var mu sync.Mutex
	var good []outbox.ID
	together(4, func(caller, n int) {
		batch := outbox.Batch{Owner: o, At: start, New: []outbox.Entry{keyed(fmt.Sprint(caller, " ", n), "x")}}
		var want error
		switch caller % 4 {
		case 0:
			batch.Owner, want = old, outbox.ErrNotOwner
		case 1:
			batch.New, want = append(batch.New, keyed("k", "other")), outbox.ErrKeyReused
		}
		a, err := s.Apply(context.WithoutCancel(s.Context()), batch)
		if !errors.Is(err, want) {
			s.Errorf("caller %d: Apply() = %v, want %v", caller, err, want)
		}
		if err == nil {
			mu.Lock()
			good = append(good, a.New[0].ID)
			mu.Unlock()
		}
	})
	slices.Sort(good)
	s.same("what is stored", s.pendingIDs(o)[1:], good)
}

func readOwnWrites(s *suite) {
	together(2, func(caller, n int) {
		in := message(fmt.Sprint(caller, " ", n), "x")
		a, err := s.Accept(context.WithoutCancel(s.Context()), in)
		if err != nil || !a[0].Fresh {
			s.Errorf("Accept() = %v, %v, want a fresh event", a, err)
			return
		}
		if got := s.unfinished(a[0].Turn-1, 1); len(got) != 1 || got[0].ID != a[0].Turn {
			s.Errorf("the accepted turn %d is not there: %v", a[0].Turn, got)
		}
		if n := s.begin(a[0].Turn); n != 1 {
			s.Errorf("Begin() = %d, want 1", n)
		}
	})
}
