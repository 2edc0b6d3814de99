package limiter

import "fmt"

const (
	// maxIdle is how many channels are kept that have nothing to remember.
	maxIdle = 4096
	// usualBusy is how many are kept, unless an option says otherwise, while a
	// penalty, the delay or a rule of theirs is unfinished; mostBusy is the most.
	usualBusy = 65536
	mostBusy  = 1 << 24
	// sweepStep is how many channels are looked at when one is added. More than
	// one, so that a crowd of idle ones shrinks again.
	sweepStep = 4
	// sweepEvery is after how many look-ups one is looked at, for the same reason.
	sweepEvery = 64
)

// channel is what the limiter remembers of one chat, in the 64 bytes of one
// line of the processor's cache. What few chats have is in the table's maps.
type channel struct {
	text  [inPlace]byte // its name, unless that is longer
	size  uint8         // of the name; 0 if it is no channel, or shared by all that found no room
	flags flags
	gap   spacing
	own   state // of rule
}

// flags are facts about a channel.
type flags uint8

const (
	isUnsaved flags = 1 << iota // among the table's unsaved ones
	isUsed                      // since it was looked at for the last time to make room
	isGroup
	isClosed // has a penalty, in the table, which may be over
)

func (ch *channel) is(f flags) bool { return ch.flags&f != 0 }

// nameless is true for a channel that is none, or that is shared.
func (ch *channel) nameless() bool { return ch.size == 0 }

// spacing is the state of a bucket with one slot.
type spacing struct {
	full  int64  // the reading at which it is full again
	since uint64 // the reservation that took the slot
}

func (s *spacing) level(t int64) int64 { return max(s.full-t, 0) }

// giveBack is state's, for a bucket that each reservation finds full.
func (s *spacing) giveBack(t, amount int64, seq uint64) bool {
	level := s.level(t)
	if level == 0 || seq < s.since {
		return false
	}
	s.full -= min(amount, level)
	return true
}

// raise lifts the bucket to the level if it is below that. What was reserved
// before can't be given back any more.
func (s *spacing) raise(t, level int64, seq uint64) {
	if level > s.level(t) {
		s.full, s.since = t+level, seq+1
	}
}

// idle is true if forgetting the channel changes no answer.
func (tb *table) idle(t int64, ch *channel) bool {
	return max(ch.gap.full, ch.own.full) <= t && (!ch.is(isClosed) || tb.penalties[ch].until <= t)
}

func (l *RateLimiter) validMaxBusy() error {
	if l.maxBusy < 1 || l.maxBusy > mostBusy {
		return fmt.Errorf("WithMaxChannels: %d is not between 1 and %d", l.maxBusy, mostBusy)
	}
	return nil
}

// group returns which of the overflow channels a channel belongs to.
func (l *RateLimiter) group(name string) int {
	if l.rules.IsGroup != nil && l.rules.IsGroup(name) {
		return 1
	}
	return 0
}

// channel returns the state of the channel of that name, which becomes the one
// used last; if there is no room for it, the state that all such share.
func (l *RateLimiter) channel(t int64, name string) *channel {
	if name == l.table.recentName {
		return l.table.recent
	}
	return l.lookUp(t, name)
}

// lookUp is channel for one that is not the one used last.
func (l *RateLimiter) lookUp(t int64, name string) *channel {
	tb := &l.table
	if ch := tb.find(name); ch != nil {
		ch.flags |= isUsed
		tb.recent, tb.recentName = ch, name
		if tb.n > maxIdle && l.seq%sweepEvery == 0 {
			l.sweep(t, 1)
		}
		return ch
	}
	if tb.n >= maxIdle {
		l.sweep(t, sweepStep)
	}
	group := l.group(name)
	if l.full() {
		if tb.overflow[group] == nil {
			tb.overflow[group] = new(channel)
			l.open(tb.overflow[group], group)
		}
		return tb.overflow[group]
	}
	tb.recent, tb.recentName = tb.add(name), name
	l.open(tb.recent, group)
	return tb.recent
}

// full is true if there is no room for another channel.
func (l *RateLimiter) full() bool { return l.table.n >= maxIdle+l.maxBusy }

// rule returns the numbers of the platform's rule for the channel.
func (l *RateLimiter) rule(ch *channel) *numbers {
	if ch.is(isGroup) {
		return &l.perGroup
	}
	return &l.perChat
}

// open makes the channel's buckets full.
func (l *RateLimiter) open(ch *channel, group int) {
	if group == 1 {
		ch.flags |= isGroup
	}
	ch.gap = spacing{full: longAgo, since: l.seq + 1}
	ch.own = state{full: longAgo, since: l.seq + 1}
}

// sweep looks at some channels in turn and forgets those that are idle and were
// not used since they were looked at before.
func (l *RateLimiter) sweep(t int64, steps int) {
	tb := &l.table
	for range steps {
		if tb.n < maxIdle {
			return
		}
		if tb.hand++; tb.hand >= tb.ids {
			tb.hand = 0
		}
		ch := tb.at(tb.hand)
		switch {
		case ch.nameless() || ch == tb.recent || !tb.idle(t, ch):
		case ch.is(isUsed):
			ch.flags &^= isUsed
		default:
			tb.remove(tb.hand)
		}
	}
}
