package inbound

import (
	"context"
	"slices"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

const (
	mostPerChat = 16          // turns of one chat in memory
	page        = 100         // turns read at once
	rereadPause = time.Second // after the journal could not be read
)

// session is a chat's turns: one runs at a time, in the order of their events.
// Only the first few are in memory, so that no chat takes the room of all; the
// others are in the journal.
type session struct {
	key       chat.Target
	turns     []Turn        // by their ids; the first may be running
	until     time.Time     // when a turn that failed is tried again
	readTo    outbox.TurnID // turns after it that are not in memory are to be read
	spilledTo outbox.TurnID // the last of those; 0 when there are none
	overdrawn bool          // the first turn runs without room of its own
	unread    bool          // the last reading failed
}

// place is where a turn may wait.
type place int

const (
	inMemory place = iota + 1 // room is taken for it
	onDisk                    // there is no room
)

// add puts a turn where it belongs, and gives the change in the turns held in
// memory. It can be older than turns that are there: those who accept don't
// wait for each other.
func (s *session) add(t Turn, in place, most int) int {
	if t.ID > s.readTo && (s.spilledTo > 0 || in == onDisk) {
		s.spilledTo = max(s.spilledTo, t.ID)
		return 0
	}
	if in == onDisk { // what is younger waits there with it
		n := s.shrink(1)
		s.leave(t.ID)
		return -n
	}
	i := len(s.turns)
	for i > 1 && s.turns[i-1].ID > t.ID {
		i--
	}
	s.turns = slices.Insert(s.turns, i, t)
	s.readTo = max(s.readTo, t.ID)
	return 1 - s.shrink(most)
}

// shrink leaves all but the first turns to the journal, and says how many.
func (s *session) shrink(keep int) int {
	if len(s.turns) <= keep {
		return 0
	}
	gone := s.turns[keep:]
	n := len(gone)
	for _, t := range gone {
		s.leave(t.ID)
	}
	clear(gone)
	s.turns = s.turns[:keep]
	return n
}

// leave notes that a turn is in the journal only.
func (s *session) leave(t outbox.TurnID) {
	s.readTo = min(s.readTo, t-1)
	s.spilledTo = max(s.spilledTo, t)
}

func (s *session) holds(t outbox.TurnID) bool {
	return slices.ContainsFunc(s.turns, func(other Turn) bool { return other.ID == t })
}

// refill reads the session's next turns when few are left in memory. When
// there is no room, one is read nevertheless if none is left, so that chats
// can't wait for each other's room. The session is the caller's to run.
func (p *Pipeline) refill(ctx context.Context, s *session) error {
	p.mu.Lock()
	had, spilled := len(s.turns), s.spilledTo > 0
	p.mu.Unlock()
	if !spilled || had > p.perChat/2 {
		return nil
	}
	room, taken := 0, 0
	for room < p.perChat-had && p.room.TryAcquire(1) {
		room++
	}
	defer func() { p.room.Release(int64(room - taken)) }()
	if room == 0 && had > 0 {
		return nil
	}
	r, err := p.reread(ctx, s, max(room, 1))
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if !s.unread && ctx.Err() == nil {
			p.log.ErrorContext(ctx, "waiting turns were not read: it is tried again until they are", "target", s.key.String(), "err", err)
		}
		s.unread = true
		return err
	}
	s.unread = false
	if s.readTo != r.after || len(s.turns) != had {
		return nil // older turns were recovered meanwhile: they come first
	}
	s.turns = append(s.turns, r.turns...)
	s.readTo = r.to
	if s.spilledTo <= r.to {
		s.spilledTo = 0
	}
	s.overdrawn = room == 0 && len(r.turns) > 0
	taken = min(room, len(r.turns))
	return nil
}

// reading is what the journal said of a chat between two turns.
type reading struct {
	after, to outbox.TurnID
	turns     []Turn
}

// reread gives up to n of the session's turns from the journal.
func (p *Pipeline) reread(ctx context.Context, s *session, n int) (reading, error) {
	// Who accepts has stored turns that are not queued yet. Once each of them
	// has left the gate, these are known, and what comes later is younger.
	leave, err := p.enter(ctx, s.key.Bot, wholeGate)
	if err != nil {
		return reading{}, err
	}
	p.mu.Lock()
	r := reading{after: s.readTo, to: s.readTo}
	last := s.spilledTo
	held := make([]outbox.TurnID, len(s.turns))
	for i, t := range s.turns {
		held[i] = t.ID
	}
	p.mu.Unlock()
	leave()
	for r.to < last && len(r.turns) < n {
		turns, err := p.journal.Unfinished(ctx, s.key.Bot, r.to, page)
		if err != nil {
			return reading{}, err
		}
		for _, t := range turns {
			if t.ID > last || len(r.turns) == n {
				break
			}
			r.to = t.ID
			if t.Event.Source == s.key && !slices.Contains(held, t.ID) {
				r.turns = append(r.turns, p.again(ctx, t)...)
			}
		}
		if len(r.turns) < n && (len(turns) < page || turns[page-1].ID > last) {
			r.to = last
		}
	}
	return r, nil
}

// again gives a turn that the journal gave, if it is in. One that is not
// admitted there is decided anew, as after a restart.
func (p *Pipeline) again(ctx context.Context, t Turn) []Turn {
	if t.Admitted {
		return []Turn{t}
	}
	return p.sift(ctx, []Turn{t})
}
