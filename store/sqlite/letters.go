package sqlite

import (
	"encoding/json"
	"fmt"

	"github.com/chatgateway/gateway/outbox"
)

// applyLetters changes dead letters, and adopts what others have stored.
func (a *application) applyLetters() error {
	b, stmt := &a.batch, &a.s.stmt
	bot := text(b.Owner.Bot)
	for _, ed := range b.Edits {
		parts, err := json.Marshal(ed.Parts)
		if err != nil {
			return fmt.Errorf("encode parts: %w", err)
		}
		err = stmt.edit.run(text(ed.Target.Chat), text(ed.Target.Thread), textOf(parts),
			textOf(appendReceipts(nil, ed.Receipts)), text(optional(ed.Source)), integer(ed.ID), bot)
		if err != nil {
			return fmt.Errorf("edit entry %d: %w", ed.ID, err)
		}
		a.missed(ed.ID)
	}
	for _, id := range b.Dropped {
		if err := stmt.drop.run(integer(micros(b.At)), integer(id), bot); err != nil {
			return fmt.Errorf("drop entry %d: %w", id, err)
		}
		a.missed(id)
	}
	for _, id := range b.Told {
		if err := stmt.tell.run(integer(id), bot); err != nil {
			return fmt.Errorf("tell of entry %d: %w", id, err)
		}
	}
	if !b.Adopt {
		return nil
	}
	var err error
	a.applied.Adopted, err = a.s.adopt(b.Owner.Bot)
	return err
}

// missed notes an entry that the last statement has not found.
func (a *application) missed(id outbox.ID) {
	if a.s.conn.changed() == 0 {
		a.applied.Missed = append(a.applied.Missed, id)
	}
}
