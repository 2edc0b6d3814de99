package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/chatgateway/gateway/outbox"
)

// newRow is what is known of a new entry before the transaction.
type newRow struct {
	parts, receipts, source string // as they are stored
	first                   int    // the first entry of the batch with the same key: itself, as a rule
}

// newRows encodes the bodies before the transaction, where nobody waits, and
// finds keys that the batch itself holds twice.
func newRows(b outbox.Batch) ([]newRow, error) {
	rows := make([]newRow, len(b.New))
	keys := map[string]int{} // of a batch of several
	for i, e := range b.New {
		parts, err := json.Marshal(e.Parts)
		if err != nil {
			return nil, fmt.Errorf("encode parts: %w", err)
		}
		rows[i] = newRow{parts: string(parts), receipts: manyLines(e.Receipts), source: optional(e.Source), first: i}
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

// replayable refuses to replay what is no dead letter, or was replayed.
func (s *Store) replayable(ctx context.Context, b outbox.Batch) error {
	for i, e := range b.New {
		if e.ReplayOf == 0 {
			continue
		}
		for _, earlier := range b.New[:i] {
			if earlier.ReplayOf == e.ReplayOf {
				return fmt.Errorf("entry %d twice in one batch: %w", e.ReplayOf, outbox.ErrReplayed)
			}
		}
		var one int
		err := s.stmt.letter.QueryRowContext(ctx, int64(e.ReplayOf), string(e.Target.Bot)).Scan(&one)
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("entry %d: %w", e.ReplayOf, outbox.ErrReplayed)
		}
		if err != nil {
			return fmt.Errorf("look up dead letter: %w", err)
		}
	}
	return nil
}

func (s *Store) insertEntries(ctx context.Context, b outbox.Batch, rows []newRow, stored []outbox.Stored) error {
	outside := b.Owner == outbox.Owner{}
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
			key, e.Fingerprint, e.Supersede, int(e.OnUncertain), int64(e.ReplayOf), outside,
			micros(e.NotBefore), micros(e.ExpiresAt), e.MayBeDuplicate, micros(b.At), rows[i].receipts, rows[i].source, rows[i].parts)
		if err != nil {
			return fmt.Errorf("insert entry: %w", err)
		}
		id, err := res.LastInsertId()
		if err != nil {
			return fmt.Errorf("insert entry: %w", err)
		}
		stored[i].ID = outbox.ID(id)
		if err := s.takePlace(ctx, b, e, stored[i].ID); err != nil {
			return err
		}
	}
	return nil
}

// takePlace ends the entry that a new one supersedes, and marks the dead letter
// that it replays.
func (s *Store) takePlace(ctx context.Context, b outbox.Batch, e outbox.Entry, id outbox.ID) error {
	if e.Supersedes != 0 {
		_, err := s.stmt.supersede.ExecContext(ctx, micros(b.At), outbox.SupersededBy(id), int64(e.Supersedes), string(e.Target.Bot))
		if err != nil {
			return fmt.Errorf("supersede entry %d: %w", e.Supersedes, err)
		}
	}
	if e.ReplayOf != 0 {
		if _, err := s.stmt.replay.ExecContext(ctx, int64(id), int64(e.ReplayOf)); err != nil {
			return fmt.Errorf("replay entry %d: %w", e.ReplayOf, err)
		}
	}
	return nil
}
