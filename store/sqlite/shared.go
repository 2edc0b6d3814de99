package sqlite

import (
	"fmt"
	"math"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

// shared is what a transaction does once for all its changes: it reads a bot's
// epoch once, and writes of a limiter's anchors only the latest. It belongs to
// whoever holds the pen.
type shared struct {
	epochs  map[chat.BotName]int64
	anchors map[string]*scopeAnchors
}

// scopeAnchors are a scope's latest anchors of this transaction.
type scopeAnchors struct {
	fresh    bool // this transaction has some
	cleared  bool
	state    limiter.Anchors
	channels map[channelKey]channelAnchor
}

type channelKey struct{ channel, method string }

type channelAnchor struct {
	limiter.ChannelAnchor
	at time.Time
}

// reset begins a transaction.
func (sh *shared) reset() {
	if sh.epochs == nil {
		sh.epochs, sh.anchors = map[chat.BotName]int64{}, map[string]*scopeAnchors{}
	}
	clear(sh.epochs)
	for _, a := range sh.anchors {
		a.fresh, a.cleared = false, false
		clear(a.channels)
	}
}

// take notes anchors to be written at the transaction's end.
func (sh *shared) take(a limiter.Anchors) {
	scope := sh.anchors[a.Scope]
	if scope == nil {
		scope = &scopeAnchors{channels: map[channelKey]channelAnchor{}}
		sh.anchors[a.Scope] = scope
	}
	if a.Cleared {
		scope.cleared = true
		clear(scope.channels)
	}
	for _, c := range a.Channels {
		scope.channels[channelKey{c.Channel, c.Method}] = channelAnchor{c, a.At}
	}
	a.Channels = nil // they are the caller's
	scope.fresh, scope.state = true, a
}

// fence refuses the batch of a process that lost the bot, before anything is
// written.
func (s *Store) fence(o outbox.Owner) error {
	if o == (outbox.Owner{}) {
		return nil
	}
	epoch, known := s.shared.epochs[o.Bot]
	if !known {
		err := s.stmt.epoch.each(func() error {
			epoch = s.stmt.epoch.integer(0)
			return nil
		}, text(o.Bot))
		if err != nil {
			return fmt.Errorf("read epoch: %w", err)
		}
		s.shared.epochs[o.Bot] = epoch
	}
	if epoch == 0 || epoch != o.Epoch {
		return fmt.Errorf("%s: epoch %d, now %d: %w", o.Bot, o.Epoch, epoch, outbox.ErrNotOwner)
	}
	return nil
}

// storeAnchors writes what take has noted.
func (s *Store) storeAnchors() error {
	for scope, a := range s.shared.anchors {
		if !a.fresh {
			continue
		}
		st := a.state
		err := s.stmt.anchorState.run(text(scope), realNumber(st.Tokens), realNumber(st.Ceiling), integer(microsUp(st.At)),
			integer(microsUp(st.PenaltyUntil)), integer(st.PenaltyFor.Microseconds()), flag(st.Clean))
		if err != nil {
			return err
		}
		if a.cleared {
			if err := s.stmt.clearChannels.run(text(scope)); err != nil {
				return err
			}
		}
		for key, c := range a.channels {
			err := s.stmt.anchorChannel.run(text(scope), text(key.channel), text(key.method), integer(micros(c.at)),
				integer(microsUp(c.DelayUntil)), integer(microsUp(c.RuleUntil)), integer(microsUp(c.PenaltyUntil)),
				integer(c.PenaltyFor.Microseconds()))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// storable refuses anchors that no column takes, before they meet others.
func storable(anchors []limiter.Anchors) error {
	for _, a := range anchors {
		if math.IsNaN(a.Tokens) || math.IsNaN(a.Ceiling) {
			return fmt.Errorf("anchors of %s: their slots are not a number", a.Scope)
		}
	}
	return nil
}
