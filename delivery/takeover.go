package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

// load begins a run: what is stored from here on may or may not be in the
// backlog.
func (b *bot) load(abort context.CancelCauseFunc, verbose bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.abort, b.loading, b.verbose = abort, true, verbose
}

// takeOver becomes the owner and loads the backlog.
func (b *bot) takeOver(ctx context.Context) error {
	owner, err := b.box.Acquire(ctx, b.name)
	if err != nil {
		return err
	}
	backlog, err := b.box.Load(ctx, owner)
	if err != nil {
		return err
	}
	now := time.Now()
	settled, err := b.interrupted(ctx, backlog.Heads, now)
	if err != nil {
		return err
	}
	b.restore(b.limiter, backlog.Anchors, now)
	moves := b.learn(backlog)
	settled = append(settled, b.hopeless(backlog.Heads, now)...)
	// From here on the stored buckets are those of a run that has not ended.
	anchors := b.limiter.Snapshot(now)
	_, err = b.box.Apply(ctx, outbox.Batch{
		Owner: owner, At: now, Settled: settled, Moves: moves, Anchors: []limiter.Anchors{anchors},
	})
	if err != nil {
		return err
	}
	// The former owner's calls are settled: from here on only ours count.
	if err := b.box.Note(b.name, 0, outbox.Call{}); err != nil {
		return err
	}
	b.fill(owner, backlog, settled)
	b.opts.OnLoad(b.name)
	return nil
}

// interrupted settles what was being sent when the last owner died.
func (b *bot) interrupted(ctx context.Context, heads []outbox.Head, now time.Time) ([]outbox.Settlement, error) {
	var ids []outbox.ID
	called := map[outbox.ID]bool{}
	for _, h := range heads {
		if h.State == outbox.Sending {
			ids = append(ids, h.ID)
			called[h.ID] = h.Called
		}
	}
	entries, err := b.box.Read(ctx, ids...)
	if err != nil {
		return nil, err
	}
	var settled []outbox.Settlement
	for _, e := range entries {
		if !called[e.ID] {
			settled = append(settled, outbox.Untouched(e))
			continue
		}
		s := b.opts.Rules.Interrupted(e, now)
		b.log.WarnContext(ctx, "the last run ended during a call", "entry", e.ID.String(), "target", e.Target.String(), "state", s.State.String())
		settled = append(settled, s)
	}
	return settled, nil
}

// learn takes in where chats are and which are dead. It gives the moves again
// of chats that still have entries under an older id: those were being stored
// while their chat moved.
func (b *bot) learn(backlog outbox.Backlog) []outbox.Move {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.moved)
	for _, m := range backlog.Moves {
		b.addMove(m)
	}
	clear(b.dead)
	for _, d := range backlog.Dead {
		b.dead[d.Chat] = &deadChat{DeadTarget: d}
	}
	var again []outbox.Move
	for _, h := range backlog.Heads {
		m := outbox.Move{From: h.Chat, To: b.resolve(chat.Target{Chat: h.Chat}).Chat}
		if m.From != m.To && !slices.Contains(again, m) {
			again = append(again, m)
		}
	}
	return again
}

// hopeless gives up on what was stored for a dead chat by a process that could
// not know that it is dead.
func (b *bot) hopeless(heads []outbox.Head, now time.Time) []outbox.Settlement {
	b.mu.Lock()
	defer b.mu.Unlock()
	var settled []outbox.Settlement
	for _, h := range heads {
		d, ok := b.dead[b.resolve(chat.Target{Chat: h.Chat}).Chat]
		if ok && now.Before(d.ProbeAt) && h.State == outbox.Queued {
			settled = append(settled, outbox.Settlement{
				ID: h.ID, State: outbox.Dead, Reason: "dead target: " + d.Reason, MayBeDuplicate: h.MayBeDuplicate,
			})
		}
	}
	return settled
}

// fill puts the backlog into lanes.
func (b *bot) fill(owner outbox.Owner, backlog outbox.Backlog, settled []outbox.Settlement) {
	ended := map[outbox.ID]bool{}
	for _, s := range settled {
		ended[s.ID] = !s.State.Pending()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owner, b.owned, b.loading, b.stopping = owner, true, false, false
	var begun []outbox.Head // an attempt was made, so they are the first of their lanes
	for _, h := range backlog.Heads {
		b.loadedTo = max(b.loadedTo, h.ID)
		switch {
		case ended[h.ID]:
		case h.State == outbox.Queued:
			b.add(b.loaded(h))
		default:
			begun = append(begun, h)
		}
	}
	for _, h := range slices.Backward(begun) {
		l, it := b.loaded(h)
		l.pushFirst(it)
		switch {
		case h.Called, h.State == outbox.Waiting && h.MayBeDuplicate:
			b.suspect(l, time.Now())
		case h.Due.After(l.until):
			l.until, l.retrying = h.Due, true
		}
	}
	b.assumeOutage()
	for _, e := range b.early {
		if e.ID <= b.loadedTo {
			b.count(-1)
			continue
		}
		b.add(b.lane(b.resolve(e.Target)), newItem(e))
	}
	b.early = nil
	now := time.Now()
	for _, l := range b.lanes {
		b.place(l, now)
	}
}

// loaded gives the lane and the item of an entry of the backlog. One that waits
// for a dead chat is on its way to find out if that is still so.
func (b *bot) loaded(h outbox.Head) (*lane, item) {
	b.count(1)
	t := b.resolve(chat.Target{Bot: b.name, Chat: h.Chat, Thread: h.Thread})
	b.probing(t)
	return b.lane(t), item{id: h.ID, due: micros(h.NotBefore), priority: h.Priority}
}
