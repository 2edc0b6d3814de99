package limiter

import (
	"math"
	"time"
)

// Anchors are what a limiter needs to go on after a restart. The outbox stores
// them in the commits that it makes anyway. All times are wall-clock times.
type Anchors struct {
	Scope string
	At    time.Time // when they were taken
	// Tokens is how many slots the token's bucket held at At. A penalty may
	// make it negative, by one slot at most.
	Tokens float64
	// Ceiling is the same for the platform's limit over the whole token. If it
	// is not stored, that bucket starts empty.
	Ceiling float64
	// PenaltyUntil is when the closed bucket opens; zero if it is open.
	PenaltyUntil time.Time
	PenaltyFor   time.Duration // what that penalty was imposed for
	// Clean is set by the caller when it stores the last anchors of an orderly
	// stop, and has to be unset in the store before the next process sends:
	// without it slots may have been taken since At. Anchors that a limiter
	// gives never have it, and after Restore there are some to store.
	Clean bool
	// Cleared says that Reset was called since anchors were taken before: all
	// channels that are stored for the scope are void.
	Cleared  bool
	Channels []ChannelAnchor
}

// ChannelAnchor is the state of one channel, or, if Method is set, a penalty on
// that method (within the channel, if it has one). Zero times are over.
type ChannelAnchor struct {
	Channel, Method string
	DelayUntil      time.Time // when the per-channel delay is over
	RuleUntil       time.Time // when the bucket of the platform's rule is full again
	PenaltyUntil    time.Time
	PenaltyFor      time.Duration // what the penalty was imposed for
}

// TakeAnchors returns the token's bucket and those channels that changed since
// it was called before; changed is false if there is nothing to store. If the
// commit that stores them fails, hand them to ReturnAnchors.
func (l *RateLimiter) TakeAnchors(now time.Time) (a Anchors, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tb := &l.table
	if !l.unsaved && !l.unsavedMethods && !l.cleared && len(tb.unsaved) == 0 {
		return Anchors{}, false
	}
	t := l.reading(now)
	a = l.header(now, t)
	a.Cleared = l.cleared
	if len(tb.unsaved) > 0 {
		a.Channels = make([]ChannelAnchor, 0, len(tb.unsaved))
	}
	for i, ch := range tb.unsaved {
		ch.flags, tb.unsaved[i] = ch.flags&^isUnsaved, nil
		if !ch.nameless() && !l.table.idle(t, ch) {
			a.Channels = append(a.Channels, l.anchor(now, t, ch))
		}
	}
	tb.unsaved = tb.unsaved[:0]
	if l.unsavedMethods {
		a.Channels = l.appendMethods(a.Channels, now, t)
	}
	l.unsaved, l.unsavedMethods, l.cleared = false, false, false
	return a, true
}

// ReturnAnchors takes back anchors that could not be stored: what they hold
// counts as changed again.
func (l *RateLimiter) ReturnAnchors(a Anchors) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsaved = true
	l.cleared = l.cleared || a.Cleared
	for _, c := range a.Channels {
		if c.Method != "" {
			l.unsavedMethods = true
		} else if ch := l.table.find(c.Channel); ch != nil {
			l.table.touch(ch)
		}
	}
}

// Snapshot returns everything that is unfinished, for an orderly stop (the
// caller sets Clean) and for display. What counts as changed stays as it is.
func (l *RateLimiter) Snapshot(now time.Time) Anchors {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.reading(now)
	a := l.header(now, t)
	a.Cleared = l.cleared
	l.table.each(func(ch *channel) {
		if !l.table.idle(t, ch) {
			a.Channels = append(a.Channels, l.anchor(now, t, ch))
		}
	})
	a.Channels = l.appendMethods(a.Channels, now, t)
	return a
}

// wall returns the time that lies ahead of now by d nanoseconds, without the
// monotonic reading that a stored time doesn't have; the zero time if d is not positive.
func wall(now time.Time, d int64) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return now.Round(0).Add(time.Duration(d))
}

// header returns the anchors without channels.
func (l *RateLimiter) header(now time.Time, t int64) Anchors {
	a := Anchors{Scope: l.scope, At: now.Round(0)}
	a.Tokens = l.perToken.slots(l.token.level(t))
	if l.perCeiling.on() {
		a.Ceiling = l.perCeiling.slots(l.ceiling.level(t))
	}
	if left := l.closed.wait(t); left > 0 {
		a.PenaltyUntil, a.PenaltyFor = wall(now, left), time.Duration(l.closed.length)
	}
	return a
}

func (l *RateLimiter) anchor(now time.Time, t int64, ch *channel) ChannelAnchor {
	a := ChannelAnchor{
		Channel:    l.table.name(ch),
		DelayUntil: wall(now, ch.gap.level(t)),
		RuleUntil:  wall(now, ch.own.level(t)),
	}
	p := l.table.penalty(ch)
	if left := p.wait(t); left > 0 {
		a.PenaltyUntil, a.PenaltyFor = wall(now, left), time.Duration(p.length)
	}
	return a
}

func (l *RateLimiter) appendMethods(as []ChannelAnchor, now time.Time, t int64) []ChannelAnchor {
	for name, p := range l.methods {
		if left := p.wait(t); left > 0 {
			as = append(as, ChannelAnchor{
				Channel: name.Channel, Method: name.Method,
				PenaltyUntil: wall(now, left), PenaltyFor: time.Duration(p.length),
			})
		}
	}
	return as
}

// slots returns how many slots a bucket of that level holds.
func (n *numbers) slots(level int64) float64 { return float64(n.depth-level) / float64(n.every) }

// levelOf is the inverse of slots, rounded so that a bucket never gains; what
// is no number of slots counts as none.
func (n *numbers) levelOf(slots float64) int64 {
	if math.IsNaN(slots) || slots < 0 {
		return n.depth
	}
	used := max(float64(n.burst)-slots, 0) * float64(n.every)
	return min(int64(math.Ceil(used)), n.depth)
}

// Restore continues from stored anchors. After an orderly end (Clean) the
// token's bucket goes on from where it was; otherwise it starts empty, since
// slots may have been taken after the last commit. Channels and penalties are
// as stored, and nothing holds longer than it would if it began now: a
// penalty no longer than it was imposed for. Anchors from the future, left by a clock that
// was stepped back, count as taken now. What the limiter already knows is kept
// where it is stricter; anchors without any content change nothing, so that
// the very first start has a full bucket.
func (l *RateLimiter) Restore(now time.Time, a Anchors) {
	if a.At.IsZero() && a.Tokens == 0 && !a.Clean && a.PenaltyUntil.IsZero() && len(a.Channels) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.reading(now)
	from := now.Round(0) // stored times are relative to this
	var since int64      // how long ago the anchors were taken
	if a.At.After(from) {
		from = a.At
	} else {
		since = int64(from.Sub(a.At))
	}
	l.restoreToken(t, since, a)
	l.unsaved = true // so that Clean is unset
	left := func(until time.Time, most int64) int64 {
		return min(max(int64(until.Sub(from)), 0), most)
	}
	if d := left(a.PenaltyUntil, most(a.PenaltyFor)); d > 0 {
		l.closed.restore(t, d, most(a.PenaltyFor))
	}
	for _, c := range a.Channels {
		d := left(c.PenaltyUntil, most(c.PenaltyFor))
		if c.Method != "" {
			l.restoreMethod(t, c, d)
			continue
		}
		delay, rule := left(c.DelayUntil, l.perGap.depth), left(c.RuleUntil, l.ruleOf(c.Channel).depth)
		if c.Channel == "" || max(d, delay, rule) == 0 {
			continue
		}
		ch := l.channel(t, c.Channel)
		ch.gap.raise(t, delay, l.seq)
		ch.own.raise(t, rule, l.seq)
		if !ch.nameless() {
			p := l.table.penalty(ch)
			p.restore(t, d, most(c.PenaltyFor))
			l.table.close(ch, p)
		} else {
			l.closed.restore(t, d, most(c.PenaltyFor))
		}
	}
	l.wake()
}

// most bounds what a stored penalty may last; one whose length is not known
// counts as of the longest sort, since too early is worse than too late.
func most(length time.Duration) int64 {
	if length <= 0 {
		return int64(maxPenalty)
	}
	return int64(min(length, maxPenalty))
}

func (l *RateLimiter) restoreToken(t, since int64, a Anchors) {
	var debt int64 // that a penalty left
	if a.Tokens < 0 {
		debt = min(int64(math.Ceil(min(-a.Tokens, 1)*float64(l.perToken.every))), l.debt())
	}
	level, ceiling := l.perToken.depth+max(debt-since, 0), l.perCeiling.depth
	if a.Clean {
		level, ceiling = l.perToken.levelOf(a.Tokens)+debt-since, 0
		if l.perCeiling.on() {
			ceiling = l.perCeiling.levelOf(a.Ceiling) - since
		}
	}
	l.token.raise(t, level, l.seq)
	l.ceiling.raise(t, ceiling, l.seq)
}

func (l *RateLimiter) restoreMethod(t int64, c ChannelAnchor, d int64) {
	if d <= 0 {
		return
	}
	b := Bucket{Channel: c.Channel, Method: c.Method}
	p, known := l.methods[b]
	if !known && len(l.methods) >= maxMethods {
		l.closed.restore(t, d, most(c.PenaltyFor))
		return
	}
	p.restore(t, d, most(c.PenaltyFor))
	l.methods[b] = p
}

// raise lifts the bucket to the level if it is below that. What was reserved
// before can't be given back any more.
func (s *state) raise(t, level int64, seq uint64) {
	if level > s.level(t) {
		s.full = t + level
		s.clear(seq + 1)
	}
}

// restore imposes what is left of a penalty.
func (p *penalty) restore(t, left, length int64) {
	if left > p.wait(t) {
		*p = penalty{until: t + left, length: length}
	}
}
