package sqlite

import "fmt"

// settledRow is a settlement's share of the columns that grow, as it is stored.
type settledRow struct{ receipt, line []byte }

// encodeSettled encodes before the transaction, where nobody waits.
func (a *application) encodeSettled() error {
	a.settled = a.settled[:0]
	for i := range a.batch.Settled {
		set := &a.batch.Settled[i]
		var row settledRow
		if set.Delivered {
			start := len(a.text)
			a.text = append(appendText(a.text, string(set.Receipt)), '\n')
			row.receipt = a.text[start:]
		}
		if set.Log.Kind != "" {
			start := len(a.text)
			var err error
			if a.text, err = appendAttempt(a.text, &set.Log); err != nil {
				return fmt.Errorf("encode attempt: %w", err)
			}
			row.line = a.text[start:]
		}
		a.settled = append(a.settled, row)
	}
	return nil
}

// settle marks what is being sent, and what became of what was.
func (a *application) settle() error {
	b, stmt := &a.batch, &a.s.stmt
	bot := text(b.Owner.Bot)
	for _, id := range b.Sending {
		if err := stmt.markSending.run(integer(id), bot); err != nil {
			return fmt.Errorf("mark sending: %w", err)
		}
	}
	for i := range b.Settled {
		set, row := &b.Settled[i], a.settled[i]
		var ended int64
		if !set.State.Pending() {
			ended = micros(b.At)
		}
		err := stmt.settle.run(integer(set.State), integer(micros(set.Due)), integer(set.Attempts), integer(set.Uncertain),
			flag(set.Degraded), flag(set.MayBeDuplicate), integer(ended), text(set.Reason), textOf(row.receipt), textOf(row.line),
			integer(set.ID), bot)
		if err != nil {
			return fmt.Errorf("settle entry %d: %w", set.ID, err)
		}
	}
	return nil
}
