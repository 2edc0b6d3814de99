package delivery

import (
	"context"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

const (
	lostChats  = 5           // so many chats "not found" …
	lostWithin = time.Minute // … within this time, and no success in between, are the platform's own fault
	holdProbe  = time.Minute // then one message in this time finds out whether that is still so
)

// hold stops a bot whose platform suddenly knows none of its chats: a wrong
// server or a damaged one must not cost all of them.
type hold struct {
	lost  []lostChat // the latest, oldest first
	on    bool
	until time.Time // when the next message may find out
}

type lostChat struct {
	id chat.ChatID
	at time.Time
}

// distrust takes in that the platform does not know a chat. It reports true if
// that is not to be believed; then the marks of the chats before are undone.
// The caller holds the mutex.
func (b *bot) distrust(id chat.ChatID, batch *outbox.Batch, now time.Time) bool {
	if b.hold.on {
		return true
	}
	recent := b.hold.lost[:0]
	for _, l := range b.hold.lost {
		if now.Sub(l.at) < lostWithin && l.id != id {
			recent = append(recent, l)
		}
	}
	b.hold.lost = append(recent, lostChat{id, now})
	if len(b.hold.lost) < lostChats {
		return false
	}
	for _, l := range b.hold.lost {
		if _, ok := b.dead[l.id]; ok {
			delete(b.dead, l.id)
			batch.Revived = append(batch.Revived, l.id)
		}
	}
	b.hold = hold{on: true, until: now.Add(holdProbe)}
	return true
}

// trust ends a hold: a message arrived. The caller holds the mutex.
func (b *bot) trust() {
	if b.hold.on {
		b.notify()
	}
	b.hold = hold{}
}

// held reports whether no message may leave now; once a minute one may. The
// caller holds the mutex.
func (b *bot) held(now time.Time) bool {
	return b.hold.on && (b.inFlight > 0 || now.Before(b.hold.until))
}

// logHold tells an operator that a bot is held.
func (b *bot) logHold(ctx context.Context) {
	b.log.ErrorContext(ctx, "the platform knows none of the bot's chats any more: sending is held, and tried once a minute; check that the bot's server and token are the right ones")
}
