package limiter

import "time"

// Follow lets a chat that got a new id carry on with what its old one has left:
// of both ids' delays, levels and penalties the new one gets the longer. What
// was reserved for either before can't be given back any more.
func (l *RateLimiter) Follow(now time.Time, from, to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.table.find(from)
	if old == nil || from == to {
		return
	}
	t := l.reading(now)
	left, penalty := *old, l.table.penalty(old) // looking the other up may forget it
	ch := l.channel(t, to)
	l.seq++
	l.unsaved = true
	ch.gap.follow(left.gap.full, l.seq)
	if l.rule(ch).on() {
		ch.own.follow(left.own.full, l.seq)
	}
	if p := l.table.penalty(ch); penalty.until > p.until {
		l.table.close(ch, penalty)
	}
	if !ch.nameless() {
		l.table.touch(ch)
	}
}

// follow lets the bucket be full no earlier than at that reading.
func (s *state) follow(full int64, seq uint64) {
	if full > s.full {
		s.full = full
		s.clear(seq)
	}
}

// follow lets the slot be back no earlier than at that reading.
func (s *spacing) follow(full int64, seq uint64) {
	if full > s.full {
		s.full, s.since = full, seq
	}
}
