package sqlite

import "fmt"

// applyTargets changes what is known of chats, and the entries named with it.
func (a *application) applyTargets() error {
	b, stmt := &a.batch, &a.s.stmt
	bot, now := text(b.Owner.Bot), integer(micros(b.At))
	for _, d := range b.Dead {
		if err := stmt.markDead.run(bot, text(d.Chat), text(d.Reason), text(d.Code),
			integer(micros(d.Since)), integer(micros(d.At)), integer(d.Count), integer(micros(d.ProbeAt))); err != nil {
			return fmt.Errorf("mark dead target: %w", err)
		}
	}
	for _, c := range b.Revived {
		if err := stmt.revive.run(bot, text(c)); err != nil {
			return fmt.Errorf("revive target: %w", err)
		}
	}
	for _, d := range b.Ended {
		if err := stmt.end.run(integer(d.State), now, text(d.Reason), bot, text(jsonLine(d.IDs))); err != nil {
			return fmt.Errorf("end entries: %w", err)
		}
	}
	for _, m := range b.Moves {
		if err := stmt.moveEntries.run(text(m.To), bot, text(jsonLine(m.IDs))); err != nil {
			return fmt.Errorf("move entries: %w", err)
		}
		if err := stmt.addMove.run(bot, text(m.From), text(m.To)); err != nil {
			return fmt.Errorf("remember move: %w", err)
		}
	}
	return nil
}
