package delivery

import (
	"context"
	"errors"
	"fmt"
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
	if b.checker != nil {
		if err := b.checker.CheckTarget(q.Target); err != nil {
			return outbox.Entry{}, fmt.Errorf("%w: %w", chat.ErrBadTarget, err)
		}
	}
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
	if e.Priority < outbox.Bulk || e.Priority > outbox.Reply {
		return outbox.Entry{}, fmt.Errorf("%v is no priority", e.Priority)
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
	arrivals := make([]arrival, len(entries))
	for i := range entries {
		arrivals[i] = b.expect(&entries[i], now)
	}
	b.active++
	b.mu.Unlock()

	applied, err := b.apply(ctx, batch)
	if errors.Is(err, outbox.ErrNotOwner) {
		b.disown(batch.Owner, err)
		if end == nil { // a turn is run again by its new owner
			applied, err = b.storeForOwner(ctx, batch)
		}
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.finished()
	if err != nil {
		applied.New = make([]outbox.Stored, len(entries)) // no id: nothing was stored
	}
	tickets := make([]Ticket, len(entries))
	for i, stored := range applied.New {
		b.arrived(arrivals[i], stored)
		tickets[i] = Ticket{ID: stored.ID, Duplicate: stored.Duplicate}
	}
	return tickets, err
}

// disown ends the run whose owner the store no longer takes, unless a new one
// has begun.
func (b *bot) disown(owner outbox.Owner, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.owner == owner {
		b.lost(cause)
	}
}

// storeForOwner stores entries for the process that owns the bot now.
func (b *bot) storeForOwner(ctx context.Context, batch outbox.Batch) (outbox.Applied, error) {
	batch.Owner = outbox.Owner{}
	for i := range batch.New {
		batch.New[i].State = outbox.Queued
	}
	return b.box.Apply(ctx, batch)
}

// admit refuses what can't be taken. The caller holds the mutex.
func (b *bot) admit(entries []outbox.Entry, now time.Time) error {
	if n := len(entries); n > 0 && b.total.Load()+int64(n) > int64(b.opts.MaxPending) {
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

// expect makes room for an entry that is about to be stored. The caller holds
// the mutex.
func (b *bot) expect(e *outbox.Entry, now time.Time) arrival {
	e.Target, e.CreatedAt = b.resolve(e.Target), now
	a := arrival{lane: b.lane(e.Target), entry: e}
	if a.flight = b.takeSlot(a.lane, e, now); a.flight != nil {
		e.State = outbox.Sending
	}
	a.lane.arriving++
	b.storing++
	b.count(1)
	return a
}

// takeSlot gives the entry a slot if it can be sent at once and nobody waits
// for one. The caller holds the mutex.
func (b *bot) takeSlot(l *lane, e *outbox.Entry, now time.Time) *flight {
	switch {
	case !b.owned, b.stopping, b.paused != nil, len(b.seats) == 0, b.hold.on, b.anyReady(),
		l.busy, l.arriving > 0, len(l.items) > 0, l.until.After(now), e.NotBefore.After(now):
		return nil
	}
	slot, _, ok := b.limiter.TryReserve(now, limiter.Call{Channel: string(l.target.Chat), Method: sendMethod})
	if !ok {
		return nil
	}
	l.busy = true
	l.pushFirst(newItem(e))
	return b.board(&flight{lane: l, target: l.target, entry: e, slot: slot, at: now})
}

// arrived puts an entry whose commit has ended where it belongs. The caller
// holds the mutex.
func (b *bot) arrived(a arrival, stored outbox.Stored) {
	b.storing--
	l := b.current(a.lane)
	l.arriving--
	a.entry.ID = stored.ID
	known := stored.ID == 0 || stored.Duplicate
	if f := a.flight; f != nil && !known && b.owned {
		f.id = stored.ID
		a.lane.items[0].id = stored.ID
		b.active++
		b.launch = append(b.launch, f)
		return
	}
	if f := a.flight; f != nil {
		b.cancel(f)
		f.lane.busy = false
		f.lane.pop()
	}
	switch {
	case known:
		b.count(-1)
		b.probeEnded(l.target.Chat)
	case b.loading:
		b.early = append(b.early, a.entry)
	case !b.owned, stored.ID <= b.loadedTo: // its owner finds it, or found it, on disk
		b.count(-1)
	default:
		it := newItem(a.entry)
		it.body = b.keep(a.entry)
		b.add(l, it)
	}
	b.place(l, time.Now())
}

func newItem(e *outbox.Entry) item {
	return item{id: e.ID, due: micros(e.NotBefore), priority: e.Priority}
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

// apply commits a batch, together with what the limiter has changed.
func (b *bot) apply(ctx context.Context, batch outbox.Batch) (outbox.Applied, error) {
	if batch.Owner == (outbox.Owner{}) {
		return b.box.Apply(ctx, batch)
	}
	anchors, changed := b.limiter.TakeAnchors(time.Now())
	if changed {
		batch.Anchors = []limiter.Anchors{anchors}
	}
	applied, err := b.box.Apply(ctx, batch)
	if err != nil && changed {
		b.limiter.ReturnAnchors(anchors)
	}
	return applied, err
}

// commit stores what must be stored: a full disk, or any other fault of the
// store, is waited out. It fails only if the bot is lost or ctx ends.
func (b *bot) commit(ctx context.Context, batch outbox.Batch) error {
	logged := false
	for {
		_, err := b.apply(ctx, batch)
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
