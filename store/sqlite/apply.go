package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
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
	rows, err := newRows(b)
	if err != nil {
		return outbox.Applied{}, fmt.Errorf("apply batch: %w", err)
	}
	var applied outbox.Applied
	err = s.w.do(ctx, s, func(ctx context.Context) error {
		applied = outbox.Applied{New: make([]outbox.Stored, len(b.New))}
		return s.apply(ctx, b, rows, applied.New)
	})
	if err != nil {
		return outbox.Applied{}, fmt.Errorf("apply batch: %w", err)
	}
	return applied, nil
}

// newRow is what is known of a new entry before the transaction.
type newRow struct {
	parts string // JSON
	first int    // the first entry of the batch with the same key: itself, as a rule
}

// newRows encodes the bodies before the transaction, where nobody waits, and
// finds keys that the batch itself holds twice.
func newRows(b outbox.Batch) ([]newRow, error) {
	if b.Owner == (outbox.Owner{}) && (len(b.Sending) > 0 || len(b.Settled) > 0 || len(b.Dead) > 0 ||
		len(b.Revived) > 0 || len(b.Buried) > 0 || len(b.Moves) > 0 || len(b.Anchors) > 0) {
		return nil, fmt.Errorf("only an owner may change more than new entries and turns: %w", outbox.ErrNotOwner)
	}
	rows := make([]newRow, len(b.New))
	keys := map[string]int{} // of a batch of several
	for i, e := range b.New {
		parts, err := json.Marshal(e.Parts)
		if err != nil {
			return nil, fmt.Errorf("encode parts: %w", err)
		}
		rows[i] = newRow{parts: string(parts), first: i}
		if e.Key == "" || len(b.New) == 1 {
			continue
		}
		if first, twice := keys[e.Key]; twice {
			rows[i].first = first
			continue
		}
		keys[e.Key] = i
	}
	return rows, nil
}

func (s *Store) apply(ctx context.Context, b outbox.Batch, rows []newRow, stored []outbox.Stored) error {
	if err := s.fence(ctx, b); err != nil {
		return err
	}
	if err := s.knownKeys(ctx, b, rows, stored); err != nil {
		return err
	}
	if err := s.insertEntries(ctx, b, rows, stored); err != nil {
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
	return s.applyAnchors(ctx, b.Anchors)
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

// knownKeys looks all keys up before anything is written, so that a reused key
// leaves the transaction untouched.
func (s *Store) knownKeys(ctx context.Context, b outbox.Batch, rows []newRow, stored []outbox.Stored) error {
	for i, e := range b.New {
		if e.Key == "" {
			continue
		}
		if first := rows[i].first; first != i {
			if !bytes.Equal(b.New[first].Fingerprint, e.Fingerprint) {
				return fmt.Errorf("two entries of one batch: %w", outbox.ErrKeyReused)
			}
			continue
		}
		var id int64
		var fingerprint []byte
		err := s.stmt.entryByKey.QueryRowContext(ctx, e.Key).Scan(&id, &fingerprint)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look up key: %w", err)
		}
		if !bytes.Equal(fingerprint, e.Fingerprint) {
			return fmt.Errorf("entry %d: %w", id, outbox.ErrKeyReused)
		}
		stored[i] = outbox.Stored{ID: outbox.ID(id), Duplicate: true}
	}
	return nil
}

func (s *Store) insertEntries(ctx context.Context, b outbox.Batch, rows []newRow, stored []outbox.Stored) error {
	for i, e := range b.New {
		if first := rows[i].first; first != i {
			stored[i] = outbox.Stored{ID: stored[first].ID, Duplicate: true}
		}
		if stored[i].Duplicate {
			continue
		}
		key := sql.NullString{String: e.Key, Valid: e.Key != ""}
		res, err := s.stmt.insertEntry.ExecContext(ctx,
			string(e.Target.Bot), string(e.Target.Chat), string(e.Target.Thread), int(e.State), int(e.Priority),
			key, e.Fingerprint, micros(e.NotBefore), micros(e.ExpiresAt), micros(b.At), rows[i].parts)
		if err != nil {
			return fmt.Errorf("insert entry: %w", err)
		}
		id, err := res.LastInsertId()
		if err != nil {
			return fmt.Errorf("insert entry: %w", err)
		}
		stored[i].ID = outbox.ID(id)
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

func (s *Store) applyTargets(ctx context.Context, b outbox.Batch) error {
	bot := string(b.Owner.Bot)
	for _, d := range b.Dead {
		if _, err := s.stmt.markDead.ExecContext(ctx, bot, string(d.Chat), d.Reason, d.Code,
			micros(d.Since), micros(d.At), d.Count, micros(d.ProbeAt)); err != nil {
			return fmt.Errorf("mark dead target: %w", err)
		}
	}
	for _, c := range b.Revived {
		if _, err := s.stmt.revive.ExecContext(ctx, bot, string(c)); err != nil {
			return fmt.Errorf("revive target: %w", err)
		}
	}
	for _, d := range b.Buried {
		spared := jsonLine(append([]outbox.ID{}, d.Spared...)) // a list also when it is empty
		if _, err := s.stmt.bury.ExecContext(ctx, micros(b.At), d.Reason, bot, string(d.Chat), int64(d.UpTo), spared); err != nil {
			return fmt.Errorf("bury entries: %w", err)
		}
	}
	for _, m := range b.Moves {
		if _, err := s.stmt.moveEntries.ExecContext(ctx, string(m.To), bot, string(m.From)); err != nil {
			return fmt.Errorf("move entries: %w", err)
		}
		if _, err := s.stmt.addMove.ExecContext(ctx, bot, string(m.From), string(m.To)); err != nil {
			return fmt.Errorf("remember move: %w", err)
		}
	}
	return nil
}

func (s *Store) applyAnchors(ctx context.Context, anchors []limiter.Anchors) error {
	for _, a := range anchors {
		if _, err := s.stmt.anchorState.ExecContext(ctx, a.Scope, a.Tokens, a.Ceiling, microsUp(a.At),
			microsUp(a.PenaltyUntil), a.PenaltyFor.Microseconds(), a.Clean); err != nil {
			return fmt.Errorf("store anchor: %w", err)
		}
		if a.Cleared {
			if _, err := s.stmt.clearChannels.ExecContext(ctx, a.Scope); err != nil {
				return fmt.Errorf("clear channel anchors: %w", err)
			}
		}
		for _, c := range a.Channels {
			if _, err := s.stmt.anchorChannel.ExecContext(ctx, a.Scope, c.Channel, c.Method, micros(a.At),
				microsUp(c.DelayUntil), microsUp(c.RuleUntil), microsUp(c.PenaltyUntil), c.PenaltyFor.Microseconds()); err != nil {
				return fmt.Errorf("store channel anchor: %w", err)
			}
		}
	}
	return nil
}

// jsonLine encodes one line of a column that grows by appending.
func jsonLine(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("sqlite: encode a line: " + err.Error()) // only our own plain structs come here
	}
	return string(b) + "\n"
}

// jsonLines decodes what jsonLine appended.
func jsonLines[T any](text string) ([]T, error) {
	var all []T
	for line := range strings.Lines(text) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			return nil, fmt.Errorf("decode %.40q: %w", line, err)
		}
		all = append(all, v)
	}
	return all, nil
}
