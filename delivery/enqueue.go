package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/render"
)

// sendMethod names a send in the limiter.
const sendMethod = "send"

// compose checks, renders and splits a request before anything is stored, so
// that a retry never repeats a part.
func (b *bot) compose(q Request) (outbox.Entry, error) {
	texts := render.Plain(q.Message.Text, b.adapter.Capabilities(q.Target))
	if len(texts) == 0 {
		return outbox.Entry{}, ErrEmpty
	}
	e := outbox.Entry{
		Target: q.Target, State: outbox.Queued, Priority: q.Priority,
		NotBefore: q.NotBefore, ExpiresAt: q.ExpiresAt, Key: q.Key,
	}
	if e.Priority == 0 {
		e.Priority = outbox.Proactive
	}
	if e.Key != "" {
		e.Fingerprint = outbox.Fingerprint(q.Target, q.Message, e.Priority)
	}
	for i, text := range texts {
		p := chat.Part{Text: text, Silent: q.Message.Silent}
		if i == 0 {
			p.ReplyTo = q.Message.ReplyTo
		}
		e.Parts = append(e.Parts, p)
	}
	return e, nil
}

// enqueue stores new entries, and the end of the turn that they answer. One
// that can go at once gets its slot before the commit and is stored as sending.
func (b *bot) enqueue(ctx context.Context, entries []outbox.Entry, end *outbox.TurnEnd) ([]Ticket, error) {
	b.mu.Lock()
	now := time.Now()
	if err := b.admit(entries, now); err != nil {
		b.mu.Unlock()
		return nil, err
	}
	batch := outbox.Batch{Owner: b.owner, At: now, New: entries}
	if end != nil {
		batch.Turns = []outbox.TurnEnd{*end}
	}
	flights := make([]*flight, len(entries))
	lanes := make([]*lane, len(entries))
	for i := range entries {
		e := &entries[i]
		e.Target, e.CreatedAt = b.resolve(e.Target), now
		lanes[i] = b.lane(e.Target)
		if flights[i] = b.takeSlot(lanes[i], e, now); flights[i] != nil {
			e.State = outbox.Sending
		}
		lanes[i].arriving++
	}
	b.pending += len(entries)
	b.active++
	anchors := b.takeAnchors(&batch, now)
	b.mu.Unlock()

	applied, err := b.box.Apply(ctx, batch)

	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.finished()
	if err != nil {
		b.limiter.ReturnAnchors(anchors)
		applied.New = make([]outbox.Stored, len(entries)) // no id: nothing was stored
	}
	tickets := make([]Ticket, len(entries))
	for i := range entries {
		b.arrived(lanes[i], &entries[i], flights[i], applied.New[i])
		tickets[i] = Ticket{ID: applied.New[i].ID, Duplicate: applied.New[i].Duplicate}
	}
	return tickets, err
}

// admit refuses what can't be taken. The caller holds the mutex.
func (b *bot) admit(entries []outbox.Entry, now time.Time) error {
	if len(entries) > 0 && b.pending+len(entries) > b.opts.MaxPending {
		return outbox.ErrFull
	}
	for _, e := range entries {
		if err := b.deadError(e.Target, now); err != nil {
			return err
		}
	}
	for _, e := range entries {
		b.probing(e.Target)
	}
	return nil
}

// takeSlot gives the entry a slot if it can be sent at once. The caller holds
// the mutex.
func (b *bot) takeSlot(l *lane, e *outbox.Entry, now time.Time) *flight {
	switch {
	case !b.owned, b.stopping, b.paused != nil, len(b.seats) == 0,
		l.busy, l.arriving > 0, len(l.items) > 0, l.until.After(now), e.NotBefore.After(now):
		return nil
	}
	slot, _, ok := b.limiter.TryReserve(now, limiter.Call{Channel: string(l.target.Chat), Method: sendMethod})
	if !ok {
		return nil
	}
	l.busy = true
	return b.board(&flight{lane: l, target: l.target, entry: e, slot: slot, at: now})
}

// arrived puts an entry whose commit has ended where it belongs. The caller
// holds the mutex.
func (b *bot) arrived(l *lane, e *outbox.Entry, f *flight, stored outbox.Stored) {
	l.arriving--
	e.ID = stored.ID
	it := item{id: stored.ID, due: micros(e.NotBefore), expires: micros(e.ExpiresAt), priority: e.Priority}
	known := stored.ID == 0 || stored.Duplicate
	if f != nil && known {
		f.slot.Cancel(time.Now())
		l.busy = false
		b.inFlight--
		b.leaveSeat(f)
	}
	switch {
	case known:
		b.pending--
		b.probeEnded(l.target.Chat)
	case f != nil:
		f.id = stored.ID
		l.pushFirst(it)
		b.active++
		b.launch = append(b.launch, f)
		return
	case !b.owned:
		b.early = append(b.early, arrival{target: l.target, item: it})
	default:
		it.body = b.keep(e)
		b.add(l, it)
	}
	b.place(l, time.Now())
}

// keep remembers a body if there is room.
func (b *bot) keep(e *outbox.Entry) *outbox.Entry {
	n := bodySize(e)
	if b.bodies+n > bodyBudget {
		return nil
	}
	b.bodies += n
	return e
}

// letGo forgets a body that keep remembered.
func (b *bot) letGo(it item) {
	if it.body != nil {
		b.bodies -= bodySize(it.body)
	}
}

// bodySize is what an entry takes in memory, roughly, in bytes.
func bodySize(e *outbox.Entry) int {
	n := 400
	for _, p := range e.Parts {
		n += len(p.Text) + len(p.Fallback) + 100
	}
	return n
}

// takeAnchors adds the limiter's changes to the batch. The caller holds the
// mutex, or is the only one to commit for the bot.
func (b *bot) takeAnchors(batch *outbox.Batch, now time.Time) limiter.Anchors {
	if batch.Owner == (outbox.Owner{}) {
		return limiter.Anchors{}
	}
	a, changed := b.limiter.TakeAnchors(now)
	if changed {
		batch.Anchors = []limiter.Anchors{a}
	}
	return a
}

// commit stores what must be stored: a full disk, or any other fault of the
// store, is waited out. It fails only if the bot is lost or ctx ends.
func (b *bot) commit(ctx context.Context, batch outbox.Batch) error {
	logged := false
	for {
		_, err := b.box.Apply(ctx, batch)
		if err == nil || errors.Is(err, outbox.ErrNotOwner) {
			return err
		}
		if !logged {
			logged = true
			b.log.ErrorContext(ctx, "the control store does not take what was sent: it is tried again until it does", "err", err)
		}
		timer := time.NewTimer(diskPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(err, context.Cause(ctx))
		case <-timer.C:
		}
	}
}
