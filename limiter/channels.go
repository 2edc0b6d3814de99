package limiter

import "strings"

const (
	// maxIdle is how many channels are kept that have nothing to remember.
	maxIdle = 4096
	// maxBusy is how many are kept while a penalty, the delay or a rule of
	// theirs is unfinished.
	maxBusy = 65536
	// sweepStep is how many channels at the end of the list are looked at when
	// one is added. More than one, so that a crowd of idle ones shrinks again.
	sweepStep = 4
)

// channel is what the limiter remembers of one chat.
type channel struct {
	name       string
	prev, next *channel // in the table's list
	unsaved    int      // place among the table's unsaved channels, from 1; 0 if not there
	rule       *numbers
	gap        state
	own        state // of rule
	penalty    penalty
}

// idle is true if forgetting the channel changes no answer.
func (ch *channel) idle(t int64) bool {
	return max(ch.gap.full, ch.own.full, ch.penalty.until) <= t
}

// table holds the channels, the one used last first in its list.
type table struct {
	byName   map[string]*channel
	list     channel  // the ring's head; next is the newest, prev the oldest
	recent   *channel // the one looked up last
	unsaved  []*channel
	spare    *channel    // evicted, to be used again
	overflow [2]*channel // shared by all chats, and all groups, that found no room
}

func (tb *table) init() {
	*tb = table{byName: make(map[string]*channel)}
	tb.list.next, tb.list.prev = &tb.list, &tb.list
}

// touch notes that the channel's anchors have to be stored.
func (tb *table) touch(ch *channel) {
	if ch.unsaved == 0 {
		tb.unsaved = append(tb.unsaved, ch)
		ch.unsaved = len(tb.unsaved)
	}
}

// saved takes the channel from the unsaved ones.
func (tb *table) saved(ch *channel) {
	if ch.unsaved == 0 {
		return
	}
	last := len(tb.unsaved) - 1
	moved := tb.unsaved[last]
	tb.unsaved[ch.unsaved-1] = moved
	moved.unsaved = ch.unsaved
	tb.unsaved[last] = nil
	tb.unsaved = tb.unsaved[:last]
	ch.unsaved = 0
}

func (tb *table) unlink(ch *channel) {
	ch.prev.next, ch.next.prev = ch.next, ch.prev
}

func (tb *table) pushFront(ch *channel) {
	ch.prev, ch.next = &tb.list, tb.list.next
	ch.prev.next, ch.next.prev = ch, ch
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
	if ch := l.table.recent; ch != nil && ch.name == name {
		return ch
	}
	return l.lookUp(t, name)
}

// lookUp is channel for one that is not the one used last.
func (l *RateLimiter) lookUp(t int64, name string) *channel {
	tb := &l.table
	ch, ok := tb.byName[name]
	if ok {
		tb.unlink(ch)
		tb.pushFront(ch)
		tb.recent = ch
		if len(tb.byName) > maxIdle {
			l.sweep(t, 1)
		}
		return ch
	}
	if len(tb.byName) >= maxIdle {
		l.sweep(t, sweepStep)
	}
	group := l.group(name)
	if len(tb.byName) >= maxIdle+maxBusy {
		if tb.overflow[group] == nil {
			tb.overflow[group] = l.newChannel("", group)
		}
		return tb.overflow[group]
	}
	ch = l.newChannel(strings.Clone(name), group)
	tb.byName[ch.name] = ch
	tb.pushFront(ch)
	tb.recent = ch
	return ch
}

func (l *RateLimiter) newChannel(name string, group int) *channel {
	ch := l.table.spare
	if ch == nil {
		ch = new(channel)
	}
	l.table.spare = nil
	rule := &l.perChat
	if group == 1 {
		rule = &l.perGroup
	}
	*ch = channel{name: name, rule: rule}
	ch.gap = state{full: longAgo, since: l.seq + 1}
	ch.own, ch.penalty.until = ch.gap, longAgo
	return ch
}

// sweep looks at the channels that were used longest ago and forgets the idle
// ones among them; the others get a second chance at the front of the list.
func (l *RateLimiter) sweep(t int64, steps int) {
	tb := &l.table
	for range steps {
		ch := tb.list.prev
		if len(tb.byName) < maxIdle || ch == tb.recent {
			return
		}
		tb.unlink(ch)
		if !ch.idle(t) {
			tb.pushFront(ch)
			continue
		}
		delete(tb.byName, ch.name)
		tb.saved(ch)
		tb.spare = ch
	}
}
