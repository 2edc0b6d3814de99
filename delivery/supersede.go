package delivery

import (
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

// newest names what pending entries of a target are the newest word on.
type newest struct {
	target chat.Target
	key    string
}

// supersede takes the pending entry out of its lane that e takes the place of,
// and says so in e. One that is being sent, or was sent in part, stays. The
// caller holds the mutex and calls superseded when e is stored, or is not.
func (b *bot) supersede(l *lane, e *outbox.Entry) *item {
	if e.Supersede == "" {
		return nil
	}
	id, ok := b.latest[newest{l.target, e.Supersede}]
	if !ok || l.begun(id) {
		return nil
	}
	it, ok := b.withdraw(l, id)
	if !ok {
		return nil
	}
	e.Supersedes = id
	return &it
}

// superseded lets go of the older entry if the new one was stored, and puts it
// back if it was not. The caller holds the mutex.
func (b *bot) superseded(a arrival, l *lane, fresh bool) {
	e := a.entry
	switch {
	case fresh && a.older != nil:
		b.uncount([]item{*a.older})
	case a.older != nil:
		b.add(l, *a.older)
	}
	if fresh && e.Supersede != "" {
		b.latest[newest{l.target, e.Supersede}] = e.ID
	}
}

// withdraw takes an entry out of its lane that no call is being made for. The
// caller holds the mutex, and places the lane.
func (b *bot) withdraw(l *lane, id outbox.ID) (item, bool) {
	first := len(l.items) > 0 && l.items[0].id == id
	it, ok := l.withdraw(id)
	if ok && first && l.doubtful {
		l.doubtful = false
		b.doubt.lanes--
	}
	return it, ok
}

// forgetKey lets go of the supersede key of an entry that has ended. The caller
// holds the mutex.
func (b *bot) forgetKey(t chat.Target, e *outbox.Entry) {
	if e == nil || e.Supersede == "" {
		return
	}
	name := newest{t, e.Supersede}
	if b.latest[name] == e.ID {
		delete(b.latest, name)
	}
}

// begun reports whether a part of the entry was sent.
func (l *lane) begun(id outbox.ID) bool {
	return len(l.items) > 0 && l.items[0].id == id && l.items[0].begun
}
