package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

var _ outbox.Outbox = (*Store)(nil)

// Acquire raises the bot's epoch, which fences every earlier owner.
func (s *Store) Acquire(ctx context.Context, bot chat.BotName) (outbox.Owner, error) {
	o := outbox.Owner{Bot: bot}
	err := s.w.do(ctx, s, func(ctx context.Context) error {
		return s.stmt.acquire.QueryRowContext(ctx, string(bot), micros(now())).Scan(&o.Epoch)
	})
	if err != nil {
		return outbox.Owner{}, fmt.Errorf("acquire %s: %w", bot, err)
	}
	return o, nil
}

// Apply commits b together with the batches of whoever calls at that moment.
func (s *Store) Apply(ctx context.Context, b outbox.Batch) (outbox.Applied, error) {
	if b.At.IsZero() {
		b.At = now()
	}
	if b.Owner == (outbox.Owner{}) && !enqueues(b) {
		return outbox.Applied{}, fmt.Errorf("apply batch: only an owner may change more than new entries and turns: %w", outbox.ErrNotOwner)
	}
	rows, err := newRows(b)
	if err != nil {
		return outbox.Applied{}, fmt.Errorf("apply batch: %w", err)
	}
	var applied outbox.Applied
	err = s.w.do(ctx, s, func(ctx context.Context) error {
		applied = outbox.Applied{New: make([]outbox.Stored, len(b.New))}
		return s.apply(ctx, b, rows, &applied)
	})
	if err != nil {
		return outbox.Applied{}, fmt.Errorf("apply batch: %w", err)
	}
	return applied, nil
}

// enqueues reports whether the batch does no more than what needs no owner.
func enqueues(b outbox.Batch) bool {
	return len(b.Sending)+len(b.Settled)+len(b.Dead)+len(b.Revived)+len(b.Ended)+len(b.Moves)+len(b.Anchors)+
		len(b.Edits)+len(b.Dropped)+len(b.Told) == 0 && !b.Adopt
}

// apply runs the batch inside the transaction. All that may refuse it comes
// before the first write.
func (s *Store) apply(ctx context.Context, b outbox.Batch, rows []newRow, applied *outbox.Applied) error {
	if err := s.fence(ctx, b); err != nil {
		return err
	}
	if err := s.knownKeys(ctx, b, rows, applied.New); err != nil {
		return err
	}
	if err := s.replayable(ctx, b); err != nil {
		return err
	}
	if err := s.insertEntries(ctx, b, rows, applied.New); err != nil {
		return err
	}
	for _, id := range b.Sending {
		if _, err := s.stmt.markSending.ExecContext(ctx, int64(id), string(b.Owner.Bot)); err != nil {
			return fmt.Errorf("mark sending: %w", err)
		}
	}
	for _, set := range b.Settled {
		if err := s.settle(ctx, b, set); err != nil {
			return err
		}
	}
	for _, t := range b.Turns {
		if _, err := s.stmt.endTurn.ExecContext(ctx, 10+int(t.Outcome), micros(b.At), t.Reason, int64(t.Turn)); err != nil {
			return fmt.Errorf("end turn: %w", err)
		}
	}
	if err := s.applyTargets(ctx, b); err != nil {
		return err
	}
	if err := s.applyAnchors(ctx, b.Anchors); err != nil {
		return err
	}
	return s.applyLetters(ctx, b, applied)
}

// fence refuses the batch of a process that lost the bot, before anything is
// written.
func (s *Store) fence(ctx context.Context, b outbox.Batch) error {
	if b.Owner == (outbox.Owner{}) {
		return nil
	}
	var epoch int64
	err := s.stmt.epoch.QueryRowContext(ctx, string(b.Owner.Bot)).Scan(&epoch)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("read epoch: %w", err)
	}
	if epoch == 0 || epoch != b.Owner.Epoch {
		return fmt.Errorf("%s: epoch %d, now %d: %w", b.Owner.Bot, b.Owner.Epoch, epoch, outbox.ErrNotOwner)
	}
	return nil
}

func (s *Store) settle(ctx context.Context, b outbox.Batch, set outbox.Settlement) error {
	var receipt, line string
	if set.Delivered {
		receipt = jsonLine(set.Receipt)
	}
	if set.Log.Kind != "" {
		line = jsonLine(set.Log)
	}
	var ended int64
	if !set.State.Pending() {
		ended = micros(b.At)
	}
	_, err := s.stmt.settle.ExecContext(ctx, int(set.State), micros(set.Due), set.Attempts, set.Uncertain,
		set.Degraded, set.MayBeDuplicate, ended, set.Reason, receipt, line, int64(set.ID), string(b.Owner.Bot))
	if err != nil {
		return fmt.Errorf("settle entry %d: %w", set.ID, err)
	}
	return nil
}
