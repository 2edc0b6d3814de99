package delivery

import (
	"context"
	"fmt"
	"slices"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

// Change is what an operator changes of a dead letter. A nil field stays.
type Change struct {
	Text   *string // of what has not been sent
	Format *chat.Format
	Target *chat.Target // then all of it goes there, also what was sent before
}

// Edit changes a dead letter that was not replayed. It stays one.
func (r *DeliveryRouter) Edit(ctx context.Context, id outbox.ID, c Change) error {
	e, err := r.letter(ctx, id)
	if err != nil {
		return fmt.Errorf("edit: %w", err)
	}
	edit := outbox.Edit{ID: id, Target: e.Target, Receipts: e.Receipts}
	sent := e.Parts[:len(e.Receipts)]
	m := e.Message()
	if c.Target != nil && *c.Target != e.Target {
		edit.Target, edit.Receipts, sent = *c.Target, nil, nil
		e.Receipts = nil
		m = e.Message()
		m.ReplyTo = "" // an id of the other chat
	}
	if c.Text != nil {
		m.Text = *c.Text
	}
	if c.Format != nil {
		m.Format = *c.Format
	}
	b, err := r.bot(edit.Target.Bot)
	if err != nil {
		return fmt.Errorf("edit: %w", err)
	}
	fresh, err := b.compose(Request{Target: edit.Target, Message: m})
	if err != nil {
		return fmt.Errorf("edit: %w", err)
	}
	edit.Parts = slices.Concat(sent, fresh.Parts)
	if edit.Source = fresh.Source; edit.Source == nil && len(sent) > 0 {
		edit.Source = &m
	}
	return r.change(ctx, e.Target.Bot, outbox.Batch{Edits: []outbox.Edit{edit}})
}

// Drop ends a dead letter that nobody wants any more as Cancelled.
func (r *DeliveryRouter) Drop(ctx context.Context, id outbox.ID) error {
	e, err := r.letter(ctx, id)
	if err != nil {
		return fmt.Errorf("drop: %w", err)
	}
	return r.change(ctx, e.Target.Bot, outbox.Batch{Dropped: []outbox.ID{id}})
}

// Replay sends what was not sent of a dead letter again, as a new entry. A
// letter is replayed once: after that the new entry stands for it. A replay of
// an uncertain end is marked as a possible duplicate.
func (r *DeliveryRouter) Replay(ctx context.Context, id outbox.ID) (Ticket, error) {
	e, err := r.letter(ctx, id)
	if err != nil {
		return Ticket{}, fmt.Errorf("replay: %w", err)
	}
	b, err := r.bot(e.Target.Bot)
	if err != nil {
		return Ticket{}, fmt.Errorf("replay: %w", err)
	}
	again := outbox.Entry{
		Target: e.Target, State: outbox.Queued, Priority: e.Priority, OnUncertain: e.OnUncertain, ReplayOf: id,
		Parts: e.Parts[len(e.Receipts):], MayBeDuplicate: e.MayBeDuplicate || e.Uncertain > 0,
	}
	if e.Source != nil {
		m := e.Message()
		again.Source = &m
	}
	for _, p := range again.Parts {
		if p.Attachment == nil {
			continue
		}
		if err := b.opts.Files.Keep(p.Attachment.Digest); err != nil {
			return Ticket{}, fmt.Errorf("replay: attachment %q: %w", p.Attachment.Name, err)
		}
	}
	tickets, err := b.enqueue(ctx, []outbox.Entry{again}, nil)
	if err != nil {
		return Ticket{}, fmt.Errorf("replay %s: %w", id, err)
	}
	return tickets[0], nil
}

// Told notes that somebody was told of dead letters of a bot.
func (r *DeliveryRouter) Told(ctx context.Context, name chat.BotName, ids ...outbox.ID) error {
	return r.change(ctx, name, outbox.Batch{Told: ids})
}

// letter reads a dead letter that was not replayed.
func (r *DeliveryRouter) letter(ctx context.Context, id outbox.ID) (outbox.Entry, error) {
	e, err := r.find(ctx, id)
	switch {
	case err != nil:
		return e, err
	case e.State != outbox.Dead:
		return e, &StateError{id, e.State, "it is no dead letter"}
	case e.ReplayedBy != 0:
		return e, fmt.Errorf("%w: see message %s", outbox.ErrReplayed, e.ReplayedBy)
	}
	return e, nil
}

// change stores a change of a bot's dead letters, which may meanwhile be none
// any more.
func (r *DeliveryRouter) change(ctx context.Context, name chat.BotName, batch outbox.Batch) error {
	b, err := r.bot(name)
	if err == nil {
		b.mu.Lock()
		if b.owned {
			batch.Owner = b.owner
		}
		b.mu.Unlock()
	}
	var applied outbox.Applied
	if batch.Owner != (outbox.Owner{}) {
		applied, err = r.box.Apply(ctx, batch)
	} else {
		applied, err = r.applyAlone(ctx, name, batch)
	}
	if err == nil && len(applied.Missed) > 0 {
		err = outbox.ErrReplayed
	}
	return err
}
