package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

// ErrNotFound means that the store knows no such entry.
var ErrNotFound = errors.New("no such message")

// StateError refuses a change that an entry's state does not allow. Nothing was
// changed.
type StateError struct {
	ID    outbox.ID
	State outbox.State
	Why   string
}

// Error describes the refusal.
func (e *StateError) Error() string {
	return fmt.Sprintf("message %s is %s: %s", e.ID, e.State, e.Why)
}

// Cancel withdraws a pending entry. One whose call is being made, and one that
// has ended, is refused with a StateError. What was sent of it stays sent.
func (r *DeliveryRouter) Cancel(ctx context.Context, id outbox.ID) error {
	e, err := r.find(ctx, id)
	if err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	if !e.State.Pending() {
		return fmt.Errorf("cancel: %w", &StateError{id, e.State, "only what waits can be cancelled"})
	}
	reason := "cancelled by an operator"
	if n := len(e.Receipts); n > 0 {
		reason += fmt.Sprintf(" after %d of %d parts", n, len(e.Parts))
	}
	if b, err := r.bot(e.Target.Bot); err == nil && b.owns() {
		err = b.end(ctx, e, outbox.Ending{IDs: []outbox.ID{id}, State: outbox.Cancelled, Reason: reason})
		if err != nil {
			return fmt.Errorf("cancel: %w", err)
		}
		return nil
	}
	return r.alone(ctx, e.Target.Bot, outbox.Batch{Ended: []outbox.Ending{{IDs: []outbox.ID{id}, State: outbox.Cancelled, Reason: reason}}})
}

// Retry lets an entry that waits for a backoff be tried now. A wait that the
// platform asked for is kept.
func (r *DeliveryRouter) Retry(ctx context.Context, id outbox.ID) error {
	e, err := r.find(ctx, id)
	if err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	if e.State != outbox.Waiting && e.State != outbox.Queued {
		why := "it does not wait for a retry"
		if e.State == outbox.Dead {
			why = "replay the dead letter instead"
		}
		return fmt.Errorf("retry: %w", &StateError{id, e.State, why})
	}
	b, err := r.bot(e.Target.Bot)
	if err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.owned {
		return fmt.Errorf("retry: %w", outbox.ErrNotOwner)
	}
	l := b.lane(b.resolve(e.Target))
	defer func() { b.place(l, time.Now()) }()
	switch {
	case l.busy && l.items[0].id == id:
		return fmt.Errorf("retry: %w", &StateError{id, outbox.Sending, "it is being sent"})
	case len(l.items) == 0 || l.items[0].id != id:
		return fmt.Errorf("retry: %w", &StateError{id, e.State, "it is not the first of its chat, or not due"})
	}
	if l.doubtful {
		l.doubtful = false
		b.doubt.lanes--
	}
	l.until, l.retrying = time.Time{}, false
	return nil
}

// MarkDead takes a chat for unreachable on an operator's word: what waits for it
// becomes dead letters.
func (r *DeliveryRouter) MarkDead(ctx context.Context, t chat.Target, reason string) error {
	b, err := r.bot(t.Bot)
	if err != nil {
		return fmt.Errorf("mark %s: %w", t, err)
	}
	now := time.Now()
	b.mu.Lock()
	owned := b.owned
	batch := outbox.Batch{Owner: b.owner, At: now}
	if owned {
		b.bury(b.resolve(t).Chat, reason, operatorCode, &batch, now)
	}
	b.mu.Unlock()
	if !owned {
		d := outbox.DeadTarget{Chat: t.Chat, Reason: reason, Code: operatorCode, Since: now, At: now, Count: 1, ProbeAt: now.Add(r.opts.ProbeEvery)}
		return r.alone(ctx, t.Bot, outbox.Batch{At: now, Dead: []outbox.DeadTarget{d}})
	}
	if _, err := b.apply(ctx, batch); err != nil {
		return fmt.Errorf("mark %s: %w", t, err)
	}
	return nil
}

// operatorCode stands where a platform's error code would.
const operatorCode = "operator"

// Hold lets nothing of a bot leave until Release; calls under way end.
func (r *DeliveryRouter) Hold(name chat.BotName) error { return r.setHold(name, true) }

// Release ends a hold.
func (r *DeliveryRouter) Release(name chat.BotName) error { return r.setHold(name, false) }

func (r *DeliveryRouter) setHold(name chat.BotName, on bool) error {
	b, err := r.bot(name)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onHold = on
	b.notify()
	return nil
}

// Room waits until fewer than most bulk entries of a bot that this process owns
// are pending, so that a broadcast does not fill the outbox.
func (r *DeliveryRouter) Room(ctx context.Context, name chat.BotName, most int) error {
	b, err := r.bot(name)
	if err != nil {
		return err
	}
	for {
		b.mu.Lock()
		if b.owned && b.pending[outbox.Bulk] < most {
			b.mu.Unlock()
			return nil
		}
		if b.room == nil {
			b.room = make(chan struct{})
		}
		room := b.room
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-room:
		}
	}
}

// find reads an entry that must be there.
func (r *DeliveryRouter) find(ctx context.Context, id outbox.ID) (outbox.Entry, error) {
	e, ok, err := r.Message(ctx, id)
	if err == nil && !ok {
		err = fmt.Errorf("%s: %w", id, ErrNotFound)
	}
	return e, err
}

func (b *bot) owns() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.owned
}

// end ends an entry that waits in a lane. If it is in none, others may have
// stored it.
func (b *bot) end(ctx context.Context, e outbox.Entry, ending outbox.Ending) error {
	b.mu.Lock()
	l := b.lane(b.resolve(e.Target))
	it, ok := b.withdraw(l, e.ID)
	b.place(l, time.Now())
	batch := outbox.Batch{Owner: b.owner, At: time.Now(), Ended: []outbox.Ending{ending}}
	b.mu.Unlock()
	if !ok {
		return &StateError{e.ID, e.State, "it is being sent, or has just been stored; try again"}
	}
	_, err := b.apply(ctx, batch)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if b.owned && b.owner == batch.Owner {
			b.add(b.lane(b.resolve(e.Target)), it)
			b.place(b.lane(b.resolve(e.Target)), time.Now())
		}
		return err
	}
	b.forgetKey(l.target, &e)
	b.uncount([]item{it})
	b.probeEnded(l.target.Chat)
	return nil
}

// alone changes what is stored for a bot for which nobody sends. It takes the
// bot's lock, and fails if another process owns it.
func (r *DeliveryRouter) alone(ctx context.Context, name chat.BotName, batch outbox.Batch) error {
	_, err := r.applyAlone(ctx, name, batch)
	return err
}

func (r *DeliveryRouter) applyAlone(ctx context.Context, name chat.BotName, batch outbox.Batch) (outbox.Applied, error) {
	if r.opts.Seize == nil {
		return outbox.Applied{}, outbox.ErrNotOwner
	}
	release, err := r.opts.Seize(name)
	if err != nil {
		return outbox.Applied{}, err
	}
	defer release()
	if batch.Owner, err = r.box.Acquire(ctx, name); err != nil {
		return outbox.Applied{}, err
	}
	applied, err := r.box.Apply(ctx, batch)
	if err == nil && buries(batch) {
		r.opts.OnDead()
	}
	return applied, err
}
