package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/chatgateway/gateway/outbox"
)

// writer lets concurrent callers share commits. There is no goroutine behind
// it: the first caller that finds nobody writing takes all that waits into one
// transaction, answers everybody, and hands the pen to a caller that came
// meanwhile.
type writer struct {
	mu      sync.Mutex
	waiting []*change
	writing bool
}

// change is one caller's share of a commit.
type change struct {
	run  func(ctx context.Context) error // writes inside the transaction
	err  error
	done chan struct{} // closed when err is set, or when it is this caller's turn to write
	turn bool
}

// refusal is an error with which a change left the transaction untouched.
func refusal(err error) bool {
	return errors.Is(err, outbox.ErrNotOwner) || errors.Is(err, outbox.ErrKeyReused)
}

// do runs the change in a transaction and returns after its commit. The
// context's end does not undo a change that waits for its commit: the answer
// of a local disk is waited for.
func (w *writer) do(ctx context.Context, s *Store, run func(context.Context) error) error {
	c := &change{run: run, done: make(chan struct{})}
	w.mu.Lock()
	w.waiting = append(w.waiting, c)
	if w.writing {
		w.mu.Unlock()
		<-c.done
		if !c.turn {
			return c.err
		}
		w.mu.Lock()
	}
	w.writing = true
	group := w.waiting
	w.waiting = nil
	w.mu.Unlock()

	s.commit(context.WithoutCancel(ctx), group)

	w.mu.Lock()
	if len(w.waiting) > 0 {
		w.waiting[0].turn = true
		close(w.waiting[0].done)
	} else {
		w.writing = false
	}
	w.mu.Unlock()
	for _, other := range group {
		if other != c {
			close(other.done)
		}
	}
	return c.err
}

// commit runs the group in one transaction. If a change fails in a way that
// leaves half of it behind, the transaction is undone and each change gets one
// of its own, so that nobody suffers for another.
func (s *Store) commit(ctx context.Context, group []*change) {
	err := s.transaction(ctx, group)
	if err == nil {
		return
	}
	if len(group) == 1 || errors.Is(err, outbox.ErrNoSpace) {
		for _, c := range group {
			c.err = err
		}
		return
	}
	for i := range group {
		if err := s.transaction(ctx, group[i:i+1]); err != nil {
			group[i].err = err
		}
	}
}

func (s *Store) transaction(ctx context.Context, group []*change) error {
	if _, err := s.stmt.begin.ExecContext(ctx); err != nil {
		return fmt.Errorf("begin: %w", explain(err))
	}
	for _, c := range group {
		c.err = c.run(ctx)
		if c.err != nil && !refusal(c.err) {
			err := explain(c.err)
			s.rollback(ctx)
			return err
		}
	}
	if _, err := s.stmt.commit.ExecContext(ctx); err != nil {
		s.rollback(ctx)
		return fmt.Errorf("commit: %w", explain(err))
	}
	return nil
}

// rollback undoes what is left of a transaction. SQLite may have undone it by
// itself, and says so with an error that changes nothing.
func (s *Store) rollback(ctx context.Context) {
	_, _ = s.conn.ExecContext(ctx, "ROLLBACK")
}
