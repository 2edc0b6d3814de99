package sqlite

import (
	"bytes"
	"fmt"

	"github.com/chatgateway/gateway/outbox"
)

// newRow is what is known of a new entry before the transaction.
type newRow struct {
	parts, receipts []byte // as they are stored
	source          string // the same
	first           int    // the first entry of the batch with the same key: itself, as a rule
}

// encode prepares the batch before the transaction, where nobody waits.
func (a *application) encode() error {
	a.text, a.rows = a.text[:0], a.rows[:0]
	for i := range a.batch.New {
		e := &a.batch.New[i]
		row := newRow{first: i, source: optional(e.Source)}
		start := len(a.text)
		var err error
		if a.text, err = appendParts(a.text, e.Parts); err != nil {
			return fmt.Errorf("encode parts: %w", err)
		}
		row.parts, start = a.text[start:], len(a.text)
		a.text = appendReceipts(a.text, e.Receipts)
		row.receipts = a.text[start:]
		a.rows = append(a.rows, row)
	}
	if len(a.rows) > 1 {
		a.findTwins()
	}
	return a.encodeSettled()
}

// findTwins finds keys that the batch itself holds twice.
func (a *application) findTwins() {
	keys := map[string]int{}
	for i := range a.batch.New {
		key := a.batch.New[i].Key
		if first, twice := keys[key]; twice && key != "" {
			a.rows[i].first = first
		} else {
			keys[key] = i
		}
	}
}

// knownKeys looks all keys up before anything is written, so that a reused key
// leaves the transaction untouched.
func (a *application) knownKeys() error {
	st := a.s.stmt.entryByKey
	for i := range a.batch.New {
		e := &a.batch.New[i]
		if e.Key == "" {
			continue
		}
		if first := a.rows[i].first; first != i {
			if !bytes.Equal(a.batch.New[first].Fingerprint, e.Fingerprint) {
				return fmt.Errorf("two entries of one batch: %w", outbox.ErrKeyReused)
			}
			continue
		}
		err := st.each(func() error {
			id := outbox.ID(st.integer(0))
			if !bytes.Equal(st.bytes(1), e.Fingerprint) {
				return fmt.Errorf("entry %d: %w", id, outbox.ErrKeyReused)
			}
			a.applied.New[i] = outbox.Stored{ID: id, Duplicate: true}
			return nil
		}, text(e.Key))
		if err != nil {
			return fmt.Errorf("look up key: %w", err)
		}
	}
	return nil
}

// replayable refuses to replay what is no dead letter, or was replayed.
func (a *application) replayable() error {
	entries := a.batch.New
	for i := range entries {
		id := entries[i].ReplayOf
		if id == 0 {
			continue
		}
		for _, earlier := range entries[:i] {
			if earlier.ReplayOf == id {
				return fmt.Errorf("entry %d twice in one batch: %w", id, outbox.ErrReplayed)
			}
		}
		found := false
		err := a.s.stmt.letter.each(func() error {
			found = true
			return nil
		}, integer(id), text(entries[i].Target.Bot))
		if err != nil {
			return fmt.Errorf("look up dead letter: %w", err)
		}
		if !found {
			return fmt.Errorf("entry %d: %w", id, outbox.ErrReplayed)
		}
	}
	return nil
}

func (a *application) insertEntries() error {
	b, stored := &a.batch, a.applied.New
	outside := flag(b.Owner == outbox.Owner{})
	for i := range b.New {
		e, row := &b.New[i], &a.rows[i]
		if row.first != i {
			stored[i] = outbox.Stored{ID: stored[row.first].ID, Duplicate: true}
		}
		if stored[i].Duplicate {
			continue
		}
		err := a.s.stmt.insertEntry.run(
			text(e.Target.Bot), text(e.Target.Chat), text(e.Target.Thread), integer(e.State), integer(e.Priority),
			optionalText(e.Key), optionalBlob(e.Fingerprint), text(e.Supersede), integer(e.OnUncertain), integer(e.ReplayOf), outside,
			integer(micros(e.NotBefore)), integer(micros(e.ExpiresAt)), flag(e.MayBeDuplicate), integer(micros(b.At)),
			textOf(row.receipts), text(row.source), textOf(row.parts))
		if err != nil {
			return fmt.Errorf("insert entry: %w", err)
		}
		stored[i].ID = outbox.ID(a.s.conn.lastID())
		if err := a.takePlace(e, stored[i].ID); err != nil {
			return err
		}
	}
	return nil
}

// takePlace ends the entry that a new one supersedes, and marks the dead letter
// that it replays.
func (a *application) takePlace(e *outbox.Entry, id outbox.ID) error {
	if e.Supersedes != 0 {
		err := a.s.stmt.supersede.run(integer(micros(a.batch.At)), text(outbox.SupersededBy(id)), integer(e.Supersedes), text(e.Target.Bot))
		if err != nil {
			return fmt.Errorf("supersede entry %d: %w", e.Supersedes, err)
		}
	}
	if e.ReplayOf != 0 {
		if err := a.s.stmt.replay.run(integer(id), integer(e.ReplayOf)); err != nil {
			return fmt.Errorf("replay entry %d: %w", e.ReplayOf, err)
		}
	}
	return nil
}
