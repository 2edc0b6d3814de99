package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/chatgateway/gateway/outbox"
)

// applyLetters changes dead letters, and adopts what others have stored.
func (s *Store) applyLetters(ctx context.Context, b outbox.Batch, applied *outbox.Applied) error {
	bot := string(b.Owner.Bot)
	for _, ed := range b.Edits {
		parts, err := json.Marshal(ed.Parts)
		if err != nil {
			return fmt.Errorf("encode parts: %w", err)
		}
		res, err := s.stmt.edit.ExecContext(ctx, string(ed.Target.Chat), string(ed.Target.Thread),
			string(parts), manyLines(ed.Receipts), optional(ed.Source), int64(ed.ID), bot)
		if err := missed(applied, ed.ID, res, err); err != nil {
			return fmt.Errorf("edit entry %d: %w", ed.ID, err)
		}
	}
	for _, id := range b.Dropped {
		res, err := s.stmt.drop.ExecContext(ctx, micros(b.At), int64(id), bot)
		if err := missed(applied, id, res, err); err != nil {
			return fmt.Errorf("drop entry %d: %w", id, err)
		}
	}
	for _, id := range b.Told {
		if _, err := s.stmt.tell.ExecContext(ctx, int64(id), bot); err != nil {
			return fmt.Errorf("tell of entry %d: %w", id, err)
		}
	}
	if !b.Adopt {
		return nil
	}
	var err error
	applied.Adopted, err = s.adopt(ctx, b.Owner.Bot)
	return err
}

// missed notes a change that found no dead letter.
func missed(applied *outbox.Applied, id outbox.ID, res sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 0 {
		applied.Missed = append(applied.Missed, id)
	}
	return err
}
