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

// deadReason begins the reason of what was given up on with its chat.
const deadReason = "dead target: "

// bury marks a chat dead and gives up on all that waits for it. The caller
// holds the mutex.
func (b *bot) bury(id chat.ChatID, reason, code string, batch *outbox.Batch, now time.Time) {
	d, ok := b.dead[id]
	if !ok {
		d = &deadChat{DeadTarget: outbox.DeadTarget{Chat: id, Since: now}}
		b.dead[id] = d
	}
	d.Reason, d.Code, d.At = reason, code, now
	d.Count++
	d.probing, d.ProbeAt = false, now.Add(b.opts.ProbeEvery)
	batch.Dead = append(batch.Dead, d.DeadTarget)
	b.forgetOldest(batch)

	end := outbox.Ending{State: outbox.Dead, Reason: deadReason + reason}
	for _, l := range b.lanesOf(id) { // but for what is being sent, whose own answer decides
		gone := l.clear()
		b.uncount(gone)
		for _, it := range gone {
			end.IDs = append(end.IDs, it.id)
		}
		b.place(l, now)
	}
	for name := range b.latest {
		if name.target.Chat == id {
			delete(b.latest, name)
		}
	}
	if len(end.IDs) > 0 {
		batch.Ended = append(batch.Ended, end)
	}
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
	b.addMove(from, to)
	b.limiter.Follow(time.Now(), string(from), string(to))
	move := outbox.Move{From: from, To: to}
	now := time.Now()
	for _, l := range b.lanesOf(from) {
		for _, items := range [][]item{l.items, l.future} {
			for _, it := range items {
				move.IDs = append(move.IDs, it.id)
			}
		}
		b.unlist(l)
		b.dropLane(l)
		l.target.Chat = to
		l.until = time.Time{}
		if other, ok := b.lanes[l.target]; ok {
			if l.busy && other.busy {
				other.absorb(l) // its call goes on; what it leaves joins too
				continue
			}
			b.unlist(other)
			b.dropLane(other)
			if l.busy {
				l, other = other, l
			}
			other.absorb(l)
			l = other
		}
		b.keepLane(l)
		b.place(l, now)
	}
	for name, id := range b.latest {
		if name.target.Chat == from {
			delete(b.latest, name)
			name.target.Chat = to
			b.latest[name] = id
		}
	}
	batch.Moves = append(batch.Moves, move)
}

// addMove remembers a move. The newest word wins, so that moves can't form a
// ring. The caller holds the mutex.
func (b *bot) addMove(from, to chat.ChatID) {
	delete(b.moved, to)
	b.moved[from] = to
}
