package sqlite

import (
	"context"
	"fmt"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

var _ outbox.Outbox = (*Store)(nil)

// Acquire raises the bot's epoch, which fences every earlier owner.
func (s *Store) Acquire(_ context.Context, bot chat.BotName) (outbox.Owner, error) {
	o := outbox.Owner{Bot: bot}
	err := s.write(func() error {
		delete(s.shared.epochs, bot)
		return s.stmt.acquire.each(func() error {
			o.Epoch = s.stmt.acquire.integer(0)
			return nil
		}, text(bot), integer(micros(now())))
	})
	if err != nil {
		return outbox.Owner{}, fmt.Errorf("acquire %s: %w", bot, err)
	}
	return o, nil
}

// application is a batch on its way into a commit. It is used again and again,
// so that a batch costs next to no memory of its own.
type application struct {
	change

	s       *Store
	batch   outbox.Batch
	applied outbox.Applied
	text    []byte // holds what rows and settled have encoded
	rows    []newRow
	settled []settledRow
}

// Apply commits b together with the batches of whoever calls at that moment.
func (s *Store) Apply(_ context.Context, b outbox.Batch) (outbox.Applied, error) {
	if b.At.IsZero() {
		b.At = now()
	}
	if b.Owner == (outbox.Owner{}) && !enqueues(&b) {
		return outbox.Applied{}, fmt.Errorf("apply batch: only an owner may change more than new entries and turns: %w", outbox.ErrNotOwner)
	}
	a, ok := s.batches.Get().(*application)
	if !ok {
		a = &application{s: s, change: change{wake: make(chan struct{}, 1)}}
		a.run = a.apply
	}
	a.batch = b
	applied, err := a.commit()
	if a.panicked == nil { // else somebody may still look at it
		a.forget()
		s.batches.Put(a)
	}
	if err != nil {
		return outbox.Applied{}, fmt.Errorf("apply batch: %w", err)
	}
	return applied, nil
}

// enqueues reports whether the batch does no more than what needs no owner.
func enqueues(b *outbox.Batch) bool {
	return len(b.Sending)+len(b.Settled)+len(b.Dead)+len(b.Revived)+len(b.Ended)+len(b.Moves)+len(b.Anchors)+
		len(b.Edits)+len(b.Dropped)+len(b.Told) == 0 && !b.Adopt
}

func (a *application) commit() (outbox.Applied, error) {
	if err := a.encode(); err != nil {
		return outbox.Applied{}, err
	}
	if err := storable(a.batch.Anchors); err != nil {
		return outbox.Applied{}, err
	}
	if err := a.s.share(&a.change); err != nil {
		return outbox.Applied{}, err
	}
	return a.applied, nil
}

// forget lets go of the caller's memory, and of a large batch's own.
func (a *application) forget() {
	a.batch, a.applied = outbox.Batch{}, outbox.Applied{}
	clear(a.rows)
	clear(a.settled)
	if cap(a.text) > usualMemory {
		a.text, a.rows, a.settled = nil, nil, nil
	}
}

// apply runs the batch inside the transaction, once more if another change of
// the commit has failed. All that may refuse it comes before the first write.
func (a *application) apply() error {
	b := &a.batch
	a.applied = outbox.Applied{New: make([]outbox.Stored, len(b.New))}
	if err := a.s.fence(b.Owner); err != nil {
		return err
	}
	if err := a.knownKeys(); err != nil {
		return err
	}
	if err := a.replayable(); err != nil {
		return err
	}
	if err := a.insertEntries(); err != nil {
		return err
	}
	if err := a.settle(); err != nil {
		return err
	}
	for _, t := range b.Turns {
		if err := a.s.stmt.endTurn.run(integer(10+int(t.Outcome)), integer(micros(b.At)), text(t.Reason), integer(t.Turn)); err != nil {
			return fmt.Errorf("end turn: %w", err)
		}
	}
	if err := a.applyTargets(); err != nil {
		return err
	}
	for _, an := range b.Anchors {
		a.s.shared.take(an)
	}
	return a.applyLetters()
}
