package delivery

import (
	"context"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

// maxHops ends the search for a chat's newest id, and an entry's way from one
// id to the next, in case moves form a ring.
const maxHops = 8

// deadChat is a chat that can't be reached, and whether a message is on its
// way to find out if that is still so.
type deadChat struct {
	outbox.DeadTarget
	probing bool
}

// resolve follows a chat's moves to its newest id. The caller holds the mutex.
func (b *bot) resolve(t chat.Target) chat.Target {
	for range maxHops {
		to, ok := b.moved[t.Chat]
		if !ok {
			break
		}
		t.Chat = to
	}
	return t
}

// refuses is deadError for a caller without the mutex.
func (b *bot) refuses(t chat.Target, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.deadError(t, now)
}

// deadError refuses a message to a dead chat, except for one that may find out
// whether it is still dead. The caller holds the mutex.
func (b *bot) deadError(t chat.Target, now time.Time) error {
	d, ok := b.dead[b.resolve(t).Chat]
	if !ok || !d.probing && !now.Before(d.ProbeAt) {
		return nil
	}
	return &DeadTargetError{Target: t, Reason: d.Reason, Since: d.Since}
}

// probing notes that a message to a dead chat is on its way.
func (b *bot) probing(t chat.Target) {
	if d, ok := b.dead[b.resolve(t).Chat]; ok {
		d.probing = true
	}
}

// probeEnded lets the next message through once the probe interval is over.
// The caller holds the mutex.
func (b *bot) probeEnded(id chat.ChatID) {
	if d, ok := b.dead[id]; ok {
		d.probing = false
	}
}

// bury marks the chat of a flight dead and gives up on all that waits for it.
// The caller holds the mutex.
func (b *bot) bury(f *flight, fail *chat.SendError, batch *outbox.Batch, now time.Time) {
	id := f.lane.target.Chat
	d, ok := b.dead[id]
	if !ok {
		d = &deadChat{DeadTarget: outbox.DeadTarget{Chat: id, Since: now}}
		b.dead[id] = d
	}
	d.Reason, d.Code, d.At = fail.Error(), fail.Code, now
	d.Count++
	d.probing, d.ProbeAt = false, now.Add(b.opts.ProbeEvery)
	batch.Dead = append(batch.Dead, d.DeadTarget)
	b.forgetOldest(batch)

	burial := outbox.Burial{Chat: id, UpTo: f.id, Reason: "dead target: " + fail.Error()}
	for t, l := range b.lanes {
		if t.Chat != id {
			continue
		}
		for _, items := range [][]item{l.items, l.future} {
			for _, it := range items {
				burial.UpTo = max(burial.UpTo, it.id)
				b.letGo(it)
			}
		}
		b.count(-l.clear())
		if l.busy {
			l.items[0].body = nil
			burial.Spared = append(burial.Spared, l.items[0].id)
		}
		b.place(l, now)
	}
	batch.Buried = append(batch.Buried, burial)
}

// forgetOldest keeps the dead targets within their bound.
func (b *bot) forgetOldest(batch *outbox.Batch) {
	if len(b.dead) <= b.opts.MaxDead {
		return
	}
	var oldest *deadChat
	for _, d := range b.dead {
		if oldest == nil || d.At.Before(oldest.At) {
			oldest = d
		}
	}
	delete(b.dead, oldest.Chat)
	batch.Revived = append(batch.Revived, oldest.Chat)
}

// revive takes a chat off the dead targets.
func (b *bot) revive(ctx context.Context, id chat.ChatID) error {
	b.mu.Lock()
	if !b.owned {
		b.mu.Unlock()
		return outbox.ErrNotOwner
	}
	id = b.resolve(chat.Target{Chat: id}).Chat
	_, ok := b.dead[id]
	delete(b.dead, id)
	owner := b.owner
	b.mu.Unlock()
	if !ok {
		return nil
	}
	b.log.InfoContext(ctx, "the chat can be reached again", "target", chat.Target{Bot: b.name, Chat: id}.String())
	_, err := b.box.Apply(ctx, outbox.Batch{Owner: owner, Revived: []chat.ChatID{id}})
	return err
}

// move rewrites a chat's id on the platform's word.
func (b *bot) move(ctx context.Context, from, to chat.ChatID) error {
	b.mu.Lock()
	if !b.owned {
		b.mu.Unlock()
		return outbox.ErrNotOwner
	}
	batch := outbox.Batch{Owner: b.owner}
	b.rename(from, to, &batch)
	b.mu.Unlock()
	if len(batch.Moves) == 0 {
		return nil
	}
	_, err := b.box.Apply(ctx, batch)
	b.notify()
	return err
}

// moveWith follows a move that a send found out: the entry and its lane go to
// the new chat, and are tried again at once. The caller holds the mutex.
func (b *bot) moveWith(f *flight, to chat.ChatID, set *outbox.Settlement, batch *outbox.Batch) {
	hops := 0
	for _, a := range f.entry.Log {
		if a.Kind == chat.Moved.String() {
			hops++
		}
	}
	if to == "" || to == f.target.Chat || hops >= maxHops {
		set.State = outbox.Dead
		return
	}
	b.rename(f.target.Chat, to, batch)
	set.Due = time.Time{}
}

// rename gives every lane of a chat its new id; a lane that the new chat has
// already takes their entries in, by id. The caller holds the mutex.
func (b *bot) rename(from, to chat.ChatID, batch *outbox.Batch) {
	if from == to || b.moved[from] == to || b.resolve(chat.Target{Chat: from}).Chat == to {
		return // it is known
	}
	b.addMove(outbox.Move{From: from, To: to})
	b.limiter.Follow(time.Now(), string(from), string(to))
	batch.Moves = append(batch.Moves, outbox.Move{From: from, To: to})
	now := time.Now()
	var lanes []*lane
	for t, l := range b.lanes {
		if t.Chat == from {
			lanes = append(lanes, l)
		}
	}
	for _, l := range lanes {
		b.unlist(l)
		delete(b.lanes, l.target)
		l.target.Chat = to
		l.until = time.Time{}
		if other, ok := b.lanes[l.target]; ok {
			if l.busy && other.busy {
				other.absorb(l) // its call goes on; what it leaves joins too
				continue
			}
			b.unlist(other)
			if l.busy {
				l, other = other, l
			}
			other.absorb(l)
			l = other
		}
		b.lanes[l.target] = l
		b.place(l, now)
	}
}

// addMove remembers a move. The newest word wins, so that moves can't form a
// ring. The caller holds the mutex.
func (b *bot) addMove(m outbox.Move) {
	delete(b.moved, m.To)
	b.moved[m.From] = m.To
}
