package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/chatgateway/gateway/outbox"
)

// writer lets concurrent callers share commits. There is no goroutine behind
// it: the first caller that finds nobody writing takes all that waits into one
// transaction, answers everybody, and hands the pen to a caller that came
// meanwhile.
type writer struct {
	commits atomic.Uint64
	failing atomic.Bool // the latest transaction failed

	mu      sync.Mutex
	waiting []*change
	writing bool
}

// change is one caller's share of a commit.
type change struct {
	run      func(ctx context.Context) error // writes inside the transaction
	err      error
	panicked any           // what run panicked with: its own caller's panic
	done     chan struct{} // closed when err is set, or when it is this caller's turn to write
	turn     bool
}

// refusal is an error with which a change left the transaction untouched.
func refusal(err error) bool {
	return errors.Is(err, outbox.ErrNotOwner) || errors.Is(err, outbox.ErrKeyReused) || errors.Is(err, outbox.ErrReplayed)
}

// do runs the change in a transaction and returns after its commit. The
// context's end does not undo a change that waits for its commit: the answer
// of a local disk is waited for.
func (w *writer) do(ctx context.Context, s *Store, run func(context.Context) error) error {
	c := &change{run: run, done: make(chan struct{})}
	if w.join(c) {
		group := w.take()
		s.commit(context.WithoutCancel(ctx), group)
		w.handOver()
		for _, other := range group {
			if other != c {
				close(other.done)
			}
		}
	}
	if c.panicked != nil {
		panic(c.panicked)
	}
	return c.err
}

// join waits with the others; true means that it is c's turn to write, false
// that its answer is there.
func (w *writer) join(c *change) (turn bool) {
	w.mu.Lock()
	w.waiting = append(w.waiting, c)
	if !w.writing {
		w.writing = true
		w.mu.Unlock()
		return true
	}
	w.mu.Unlock()
	<-c.done
	return c.turn
}

// take gives all that waits, after whoever is about to join has had the chance:
// where a commit is too short, or the processors too few, for others to come
// while it lasts, each would else get a commit of its own.
func (w *writer) take() []*change {
	runtime.Gosched()
	w.mu.Lock()
	defer w.mu.Unlock()
	group := w.waiting
	w.waiting = nil
	return group
}

func (w *writer) handOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		w.writing = false
		return
	}
	w.waiting[0].turn = true
	close(w.waiting[0].done)
}

// Commits is how many commits were made since the store was opened. Compared
// with the calls, it shows how well they share.
func (s *Store) Commits() uint64 { return s.w.commits.Load() }

// commit runs the group in one transaction. A change that fails in a way that
// may leave half of it behind is answered and left out, and the others are run
// again without it, so that nobody suffers for another. What concerns the
// database concerns all.
func (s *Store) commit(ctx context.Context, group []*change) {
	for len(group) > 0 {
		culprit, err := s.transaction(ctx, group)
		if err == nil {
			if slices.ContainsFunc(group, func(c *change) bool { return c.err == nil }) {
				s.w.failing.Store(false)
			}
			return
		}
		s.w.failing.Store(true)
		err = fmt.Errorf("control store %s: %w", s.path, err)
		if culprit < 0 || errors.Is(err, outbox.ErrNoSpace) {
			for _, c := range group {
				c.err = err
			}
			return
		}
		group[culprit].err = err
		group = slices.Concat(group[:culprit], group[culprit+1:])
	}
}

// transaction runs and commits the group, or changes nothing. On an error,
// culprit is the change that it came from, -1 if from none.
func (s *Store) transaction(ctx context.Context, group []*change) (culprit int, err error) {
	if _, err := s.stmt.begin.ExecContext(ctx); err != nil {
		return -1, fmt.Errorf("begin: %w", explain(err))
	}
	for i, c := range group {
		c.write(ctx)
		if c.err != nil && !refusal(c.err) {
			s.rollback(ctx)
			return i, explain(c.err)
		}
	}
	if _, err := s.stmt.commit.ExecContext(ctx); err != nil {
		s.rollback(ctx)
		return -1, fmt.Errorf("commit: %w", explain(err))
	}
	s.w.commits.Add(1)
	return 0, nil
}

// write runs the change; a panic is kept for its own caller.
func (c *change) write(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil {
			c.panicked, c.err = p, errors.New("a change panicked")
		}
	}()
	c.err = c.run(ctx)
}

// rollback undoes what is left of a transaction. SQLite may have undone it by
// itself, and says so with an error that changes nothing.
func (s *Store) rollback(ctx context.Context) {
	_, _ = s.conn.ExecContext(ctx, "ROLLBACK")
}
