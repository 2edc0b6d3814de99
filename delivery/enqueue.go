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
	e := outbox.Entry{
		Target: q.Target, State: outbox.Queued, Priority: q.Priority, Key: q.Key, Supersede: q.Supersede,
		NotBefore: q.NotBefore, ExpiresAt: q.ExpiresAt, OnUncertain: q.OnUncertain,
	}
	if e.Priority == 0 {
		e.Priority = outbox.Proactive
	}
	if e.Priority < outbox.Bulk || e.Priority > outbox.Reply {
		return outbox.Entry{}, fmt.Errorf("%v is no priority", e.Priority)
	}
	if !e.ExpiresAt.IsZero() && !time.Now().Before(e.ExpiresAt) {
		return outbox.Entry{}, ErrTooLate
	}
	if e.Key != "" {
		e.Fingerprint = outbox.Fingerprint(q.Target, q.Message, e.Priority)
	}
	var err error
	if e.Parts, err = b.render(q.Target, q.Message); err != nil {
		return outbox.Entry{}, err
	}
	if len(e.Parts) > 1 || e.Parts[0].Text != q.Message.Text || e.Parts[0].Markup != "" || q.Message.Format != chat.Plain {
		e.Source = &q.Message
	}
	return e, nil
}

// render gives the parts of a message: those of its text, then its attachments.
func (b *bot) render(t chat.Target, m chat.Message) ([]chat.Part, error) {
	can := b.adapter.Capabilities(t)
	texts := render.Plain(m.Text, can)
	parts := make([]chat.Part, 0, len(texts)+len(m.Attachments))
	for _, text := range texts {
		parts = append(parts, chat.Part{Text: text, Silent: m.Silent})
	}
	for i := range m.Attachments {
		a := m.Attachments[i]
		if err := b.checkFile(a, can); err != nil {
			return nil, fmt.Errorf("attachment %q: %w", a.Name, err)
		}
		parts = append(parts, chat.Part{Attachment: &a, Silent: m.Silent})
	}
	if len(parts) == 0 {
		return nil, ErrEmpty
	}
	parts[0].ReplyTo = m.ReplyTo
	return parts, nil
}

// checkFile refuses an attachment that could never be sent.
func (b *bot) checkFile(a chat.Attachment, can chat.Capabilities) error {
	switch {
	case can.MaxFileSize == 0:
		return ErrNoFiles
	case a.Size > can.MaxFileSize:
		return fmt.Errorf("%w: it has %d bytes, and %d is the most", ErrNoFiles, a.Size, can.MaxFileSize)
	}
	return b.opts.Files.Keep(a.Digest)
}

// enqueue stores new entries, and the end of the turn that they answer. One
// that can go at once gets its slot before the commit and is stored as sending.
func (b *bot) enqueue(ctx context.Context, entries []outbox.Entry, end *outbox.TurnEnd) ([]Ticket, error) {
	if err := b.admitOutside(ctx, entries); err != nil {
		return nil, err
	}
	b.mu.Lock()
	now := time.Now()
	if err := b.admit(entries, now); err != nil {
		b.mu.Unlock()
		return nil, err
	}
	batch := outbox.Batch{At: now, New: entries}
	if b.owned {
		batch.Owner = b.owner
	} else {
		b.outsiders++
	}
	outside := !b.owned
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
			applied, err = b.storeForOwner(ctx, &batch)
		}
	}

	if err != nil {
		applied.New = make([]outbox.Stored, len(entries)) // no id: nothing was stored
	}
	tickets, forOthers := b.landing(arrivals, applied.New, batch.Owner, outside)
	if forOthers && err == nil {
		b.opts.OnOutside(b.name)
	}
	return tickets, err
}

// landing puts the entries of a commit that has ended where they belong. It
// reports whether another process is to be told of them.
func (b *bot) landing(arrivals []arrival, stored []outbox.Stored, owner outbox.Owner, outside bool) ([]Ticket, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.finished()
	tickets := make([]Ticket, len(arrivals))
	for i, s := range stored {
		b.arrived(arrivals[i], s, owner)
		tickets[i] = Ticket{ID: s.ID, Duplicate: s.Duplicate}
	}
	if outside {
		b.outsiders--
	}
	if owner != (outbox.Owner{}) {
		return tickets, false
	}
	b.strange = b.strange || b.owned // this process became the owner meanwhile
	return tickets, !b.owned
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
func (b *bot) storeForOwner(ctx context.Context, batch *outbox.Batch) (outbox.Applied, error) {
	batch.Owner = outbox.Owner{}
	for i := range batch.New {
		batch.New[i].State, batch.New[i].Supersedes = outbox.Queued, 0
	}
	return b.box.Apply(ctx, *batch)
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
	if b.owned {
		a.older = b.supersede(a.lane, e)
	}
	if a.flight = b.takeSlot(a.lane, e, now); a.flight != nil {
		e.State = outbox.Sending
	}
	a.lane.arriving++
	b.storing[e.Priority]++
	b.count(e.Priority, 1)
	if a.older != nil {
		b.place(a.lane, now)
	}
	return a
}

// takeSlot gives the entry a slot if it can be sent at once and nobody waits
// for one. The caller holds the mutex.
func (b *bot) takeSlot(l *lane, e *outbox.Entry, now time.Time) *flight {
	switch {
	case !b.sends(), len(b.seats) == 0, b.hold.on, b.anyReady(),
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
func (b *bot) arrived(a arrival, stored outbox.Stored, owner outbox.Owner) {
	e := a.entry
	b.storing[e.Priority]--
	l := b.current(a.lane)
	l.arriving--
	e.ID = stored.ID
	fresh := stored.ID != 0 && !stored.Duplicate
	ours := b.owned && b.owner == owner // else the owner finds it on disk
	if ours {
		b.superseded(a, l, fresh)
	}
	if f := a.flight; f != nil && fresh && ours {
		f.id = stored.ID
		a.lane.items[0].id = stored.ID
		b.active++
		b.launch = append(b.launch, f)
		return
	}
	if f := a.flight; f != nil {
		b.cancel(f)
		if len(f.lane.items) > 0 && f.lane.busy { // else the run has ended meanwhile
			f.lane.busy = false
			f.lane.pop()
		}
	}
	if fresh && ours {
		it := newItem(e)
		it.body = b.keep(e)
		b.add(l, it)
	} else {
		b.count(e.Priority, -1)
	}
	if !fresh {
		b.probeEnded(l.target.Chat)
	}
	b.place(l, time.Now())
}

func newItem(e *outbox.Entry) item {
	return item{id: e.ID, due: micros(e.NotBefore), priority: int8(e.Priority), begun: len(e.Receipts) > 0} //nolint:gosec // 1 to 3
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
	if err == nil && buries(batch) {
		b.opts.OnDead()
	}
	return applied, err
}

// buries reports whether the batch makes dead letters.
func buries(batch outbox.Batch) bool {
	for _, s := range batch.Settled {
		if s.State == outbox.Dead {
			return true
		}
	}
	for _, e := range batch.Ended {
		if e.State == outbox.Dead {
			return true
		}
	}
	return false
}

// commit stores what must be stored: a full disk, or any other fault of the
// store, is waited out. It fails only if the bot is lost or ctx ends.
func (b *bot) commit(ctx context.Context, batch outbox.Batch) (outbox.Applied, error) {
	logged := false
	for {
		applied, err := b.apply(ctx, batch)
		if err == nil || errors.Is(err, outbox.ErrNotOwner) {
			return applied, err
		}
		if !logged {
			logged = true
			b.log.ErrorContext(ctx, "the control store does not take what was sent: it is tried again until it does", "err", err)
		}
		timer := time.NewTimer(diskPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return applied, errors.Join(err, context.Cause(ctx))
		case <-timer.C:
		}
	}
}
