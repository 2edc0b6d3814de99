package delivery

import (
	"context"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

// countEvery is how old the number of waiting entries may be by which a process
// that does not own the bot decides whether there is room.
const countEvery = time.Second

// backlogSize is how many entries wait, as the store says.
type backlogSize struct {
	at time.Time
	n  int
}

// admitOutside refuses what can't be taken for a bot that another process owns.
// What its owner has in memory is asked of the store.
func (b *bot) admitOutside(ctx context.Context, entries []outbox.Entry) error {
	b.mu.Lock()
	owned, size := b.owned, b.outside
	b.mu.Unlock()
	if owned || len(entries) == 0 {
		return nil
	}
	now := time.Now()
	if size.at.IsZero() || now.Sub(size.at) > countEvery {
		n, err := b.box.Count(ctx, outbox.Filter{
			Bot: b.name, States: []outbox.State{outbox.Queued, outbox.Sending, outbox.Waiting},
		})
		if err != nil {
			return err
		}
		size = backlogSize{now, n}
	}
	size.n += len(entries)
	if size.n > b.opts.MaxPending {
		return outbox.ErrFull
	}
	for _, e := range entries {
		d, dead, err := b.box.DeadTarget(ctx, b.name, e.Target.Chat)
		if err != nil {
			return err
		}
		if dead && now.Before(d.ProbeAt) {
			return &DeadTargetError{Target: e.Target, Reason: d.Reason, Since: d.Since}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outside = size
	return nil
}

// Adopt takes over what other processes have stored for a bot that this one
// owns. It does nothing for another bot, and does not wait.
func (r *DeliveryRouter) Adopt(name chat.BotName) {
	b, err := r.bot(name)
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.strange = true
	b.notify()
}

// beginAdopting reports whether there is something to adopt now. The caller
// holds the mutex.
func (b *bot) beginAdopting() bool {
	if !b.strange || b.adopting || !b.owned || b.stopping {
		return false
	}
	b.strange, b.adopting = false, true
	b.active++
	return true
}

// adopt takes over what others have stored, and gives up at once on what is for
// a dead chat or has been superseded.
func (b *bot) adopt(ctx context.Context) {
	b.mu.Lock()
	owner := b.owner
	b.mu.Unlock()
	more, err := true, error(nil)
	for more && err == nil {
		more, err = b.adoptSome(ctx, owner)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.adopting = false
	if !b.strange && b.outsiders == 0 {
		b.adopted = true
	}
	b.finished()
	if err != nil {
		b.lost(err)
	}
}

// adoptSome adopts up to some thousand entries; more is false if none was left.
func (b *bot) adoptSome(ctx context.Context, owner outbox.Owner) (more bool, err error) {
	applied, err := b.commit(ctx, outbox.Batch{Owner: owner, At: time.Now(), Adopt: true})
	if err != nil || len(applied.Adopted) == 0 {
		return false, err
	}
	b.mu.Lock()
	if !b.owned || b.owner != owner { // the next run finds them on disk
		b.mu.Unlock()
		return false, nil
	}
	var f filling
	now := time.Now()
	for _, h := range applied.Adopted {
		b.fill(&f, h, now)
	}
	b.mu.Unlock()
	if len(f.ended)+len(f.moves) == 0 {
		return true, nil
	}
	_, err = b.commit(ctx, outbox.Batch{Owner: owner, At: now, Ended: f.ended, Moves: f.moved()})
	return true, err
}
