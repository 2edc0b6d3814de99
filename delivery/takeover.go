package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

// begin begins a run.
func (b *bot) begin(abort context.CancelCauseFunc, verbose bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.abort, b.verbose = abort, verbose
}

// filling is what is found out while entries are put into lanes.
type filling struct {
	begun  []outbox.Head               // an attempt was made, so they are the first of their lanes
	ended  []outbox.Ending             // without an attempt
	moves  map[chat.ChatID][]outbox.ID // entries under an id that their chat no longer has
	target map[chat.ChatID]chat.ChatID // what it has instead
}

// takeOver becomes the owner and loads the backlog, page by page.
func (b *bot) takeOver(ctx context.Context) error {
	owner, err := b.box.Acquire(ctx, b.name)
	if err != nil {
		return err
	}
	backlog, err := b.box.Load(ctx, owner)
	if err != nil {
		return err
	}
	b.restore(b.limiter, backlog.Anchors, time.Now())
	b.learn(backlog)
	var f filling
	for after := outbox.ID(0); ; {
		heads, err := b.box.Heads(ctx, owner, after)
		if err != nil {
			return err
		}
		if len(heads) == 0 {
			break
		}
		after = heads[len(heads)-1].ID
		b.fillAll(&f, heads)
	}
	now := time.Now()
	settled, err := b.interrupted(ctx, f.begun, now)
	if err != nil {
		return err
	}
	// From here on the stored buckets are those of a run that has not ended.
	anchors := b.limiter.Snapshot(now)
	batch := outbox.Batch{
		Owner: owner, At: now, Settled: settled, Ended: f.ended, Moves: f.moved(), Anchors: []limiter.Anchors{anchors},
	}
	if _, err := b.box.Apply(ctx, batch); err != nil {
		return err
	}
	if buries(batch) {
		b.opts.OnDead()
	}
	// The former owner's calls are settled: from here on only ours count.
	if err := b.box.Note(b.name, 0, outbox.Call{}); err != nil {
		return err
	}
	b.open(owner, f.begun, settled)
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

// learn takes in where chats are now and which are dead.
func (b *bot) learn(backlog outbox.Backlog) {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.moved)
	for _, m := range backlog.Moves {
		b.addMove(m.From, m.To)
	}
	clear(b.dead)
	for _, d := range backlog.Dead {
		b.dead[d.Chat] = &deadChat{DeadTarget: d}
	}
}

func (b *bot) fillAll(f *filling, heads []outbox.Head) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, h := range heads {
		b.fill(f, h, now)
	}
}

// fill puts a stored entry into its lane, or gives up on what was stored for a
// dead chat by a process that could not know. The caller holds the mutex.
func (b *bot) fill(f *filling, h outbox.Head, now time.Time) {
	t := b.resolve(chat.Target{Bot: b.name, Chat: h.Chat, Thread: h.Thread})
	if t.Chat != h.Chat { // it was being stored while its chat moved
		if f.moves == nil {
			f.moves, f.target = map[chat.ChatID][]outbox.ID{}, map[chat.ChatID]chat.ChatID{}
		}
		f.moves[h.Chat], f.target[h.Chat] = append(f.moves[h.Chat], h.ID), t.Chat
	}
	if d, ok := b.dead[t.Chat]; ok && now.Before(d.ProbeAt) && h.State == outbox.Queued {
		f.ended = append(f.ended, outbox.Ending{IDs: []outbox.ID{h.ID}, State: outbox.Dead, Reason: deadReason + d.Reason})
		return
	}
	b.count(h.Priority, 1)
	b.probing(t)
	if h.State != outbox.Queued || h.Begun {
		f.begun = append(f.begun, h)
		return
	}
	l := b.lane(t)
	if h.Supersede != "" {
		e := outbox.Entry{ID: h.ID, Supersede: h.Supersede}
		if it := b.supersede(l, &e); it != nil {
			b.uncount([]item{*it})
			f.ended = append(f.ended, outbox.Ending{IDs: []outbox.ID{it.id}, State: outbox.Cancelled, Reason: outbox.SupersededBy(h.ID)})
		}
		b.latest[newest{l.target, h.Supersede}] = h.ID
	}
	b.add(l, newHead(h))
	b.place(l, now)
}

func newHead(h outbox.Head) item {
	return item{id: h.ID, due: micros(h.NotBefore), priority: int8(h.Priority), begun: h.Begun} //nolint:gosec // 1 to 3
}

// moved gives the moves again of chats that still have entries under an older id.
func (f *filling) moved() []outbox.Move {
	var moves []outbox.Move
	for from, ids := range f.moves {
		moves = append(moves, outbox.Move{From: from, To: f.target[from], IDs: ids})
	}
	return moves
}

// open lets the entries of the backlog be sent, those that had begun first.
// What others have stored meanwhile is adopted next.
func (b *bot) open(owner outbox.Owner, begun []outbox.Head, settled []outbox.Settlement) {
	ended := map[outbox.ID]bool{}
	for _, s := range settled {
		ended[s.ID] = !s.State.Pending()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owner, b.owned, b.stopping, b.strange, b.adopted = owner, true, false, true, false
	for _, h := range slices.Backward(begun) {
		if ended[h.ID] {
			b.count(h.Priority, -1)
			continue
		}
		b.resumeFirst(h)
	}
	b.assumeOutage()
	now := time.Now()
	for _, l := range b.lanes {
		b.place(l, now)
	}
}

// resumeFirst puts an entry before all others of its lane, since an attempt was
// made. The caller holds the mutex.
func (b *bot) resumeFirst(h outbox.Head) {
	l := b.lane(b.resolve(chat.Target{Bot: b.name, Chat: h.Chat, Thread: h.Thread}))
	l.pushFirst(newHead(h))
	if h.Supersede != "" && b.latest[newest{l.target, h.Supersede}] < h.ID {
		b.latest[newest{l.target, h.Supersede}] = h.ID
	}
	switch {
	case h.Called, h.State == outbox.Waiting && h.MayBeDuplicate:
		b.suspect(l, time.Now())
	case h.Due.After(l.until):
		l.until, l.retrying = h.Due, true
	}
}
