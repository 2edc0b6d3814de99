package sqlite

import (
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
	spare   []*change // the memory of an earlier group
}

// change is one caller's share of a commit.
type change struct {
	run      func() error  // writes inside the transaction
	alone    bool          // run has the pen, but works outside of the transaction
	wake     chan struct{} // told when err is set, or when it is this caller's turn to write
	turn     bool
	err      error
	panicked any // what run panicked with: its own caller's panic
}

// refusal is an error with which a change left the transaction untouched.
func refusal(err error) bool {
	return errors.Is(err, outbox.ErrNotOwner) || errors.Is(err, outbox.ErrKeyReused) || errors.Is(err, outbox.ErrReplayed)
}

// write runs a change in a transaction and returns after its commit. Nothing
// ends the wait for it: the answer of a local disk is waited for.
func (s *Store) write(run func() error) error {
	return s.share(&change{run: run, wake: make(chan struct{}, 1)})
}

// share is write for a change that its caller may use again.
func (s *Store) share(c *change) error {
	w := &s.w
	c.turn, c.err, c.panicked = false, nil, nil
	if w.join(c) {
		group := w.take()
		s.commit(group)
		for _, other := range group {
			if other != c {
				other.wake <- struct{}{}
			}
		}
		runtime.Gosched() // who goes on at once with the next change takes part in the next commit
		w.handOver(group)
	}
	if c.panicked != nil {
		panic(c.panicked)
	}
	return c.err
}

// withPen runs what needs the writing connection outside of a transaction.
// Everybody who writes waits for it.
func (s *Store) withPen(run func() error) error {
	return s.share(&change{run: run, alone: true, wake: make(chan struct{}, 1)})
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
	<-c.wake
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
	w.waiting, w.spare = w.spare, nil
	return group
}

// handOver gives the pen to the first that waits, and keeps the group's memory.
func (w *writer) handOver(group []*change) {
	clear(group)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spare = group[:0]
	if len(w.waiting) == 0 {
		w.writing = false
		return
	}
	w.waiting[0].turn = true
	w.waiting[0].wake <- struct{}{}
}

// Commits is how many commits were made since the store was opened. Compared
// with the calls, it shows how well they share.
func (s *Store) Commits() uint64 { return s.w.commits.Load() }

// commit runs the group in one transaction. A change that fails in a way that
// may leave half of it behind is answered and left out, and the others are run
// again without it, so that nobody suffers for another. What concerns the
// database concerns all.
func (s *Store) commit(group []*change) {
	for _, c := range group {
		if c.alone {
			c.write()
		}
	}
	if slices.ContainsFunc(group, isAlone) {
		group = slices.DeleteFunc(slices.Clone(group), isAlone)
	}
	for len(group) > 0 {
		culprit, err := s.transaction(group)
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

func isAlone(c *change) bool { return c.alone }

// transaction runs and commits the group, or changes nothing. On an error,
// culprit is the change that it came from, -1 if from none.
func (s *Store) transaction(group []*change) (culprit int, err error) {
	if err := s.stmt.begin.run(); err != nil {
		return -1, fmt.Errorf("begin: %w", explain(err))
	}
	s.shared.reset()
	for i, c := range group {
		c.write()
		if c.err != nil && !refusal(c.err) {
			s.rollback()
			return i, explain(c.err)
		}
	}
	if err := s.storeAnchors(); err != nil {
		s.rollback()
		return -1, fmt.Errorf("store anchors: %w", explain(err))
	}
	if err := s.stmt.commit.run(); err != nil {
		s.rollback()
		return -1, fmt.Errorf("commit: %w", explain(err))
	}
	s.measure(s.w.commits.Add(1))
	return 0, nil
}

// write runs the change; a panic is kept for its own caller.
func (c *change) write() {
	defer func() {
		if p := recover(); p != nil {
			c.panicked, c.err = p, errors.New("a change panicked")
		}
	}()
	c.err = c.run()
}

// rollback undoes what is left of a transaction. SQLite may have undone it by
// itself, and says so with an error that changes nothing.
func (s *Store) rollback() {
	_ = s.stmt.rollback.run()
}
