package limiter

import "time"

const (
	// farthest bounds readings, so that sums of them stay within an int64.
	farthest = int64(1) << 61
	// longAgo is before every reading.
	longAgo = -2 * farthest
	// jitter is how far readings may go back without a step of the clock:
	// callers read it before they get the lock.
	jitter = int64(10 * time.Millisecond)
	// allOver is a time after which nothing is left unfinished: every bucket is
	// full, every penalty has ended.
	allOver = int64(2 * maxDepth)
)

// clock is the one reading of time in this package, for the forms that really
// wait; all others get the time from their caller.
func clock() time.Time {
	return time.Now() //nolint:forbidigo // a caller who waits for a slot can't tell when it will ask
}

// reading turns a time into nanoseconds since base. Readings never go back:
// where the clock was stepped back, time stands still for that moment and goes
// on from there. So a step back grants nothing and lengthens no wait.
func (l *RateLimiter) reading(now time.Time) int64 {
	t := int64(now.Sub(l.base))
	if uint64(t-l.last) > uint64(allOver) { //nolint:gosec // wraps around on purpose: what lies before last is large
		return l.stepped(now, t)
	}
	l.last = t
	return t
}

// stepped is reading for the first time of all, and for one that lies before
// the last one, or so far after it that everything is over.
func (l *RateLimiter) stepped(now time.Time, t int64) int64 {
	t = min(max(t, -farthest), farthest)
	switch {
	case t > l.last:
		l.base, l.last = now, 0
		l.fill()
		l.table.init()
		clear(l.methods)
	case monotonic(now) && monotonic(l.base), l.last-t < jitter:
		// It was read first and got the lock last; so it is at least as late as last.
	default:
		l.base = now.Add(-time.Duration(l.last))
	}
	return l.last
}

// monotonic is true for a time that was read from a clock that never steps.
func monotonic(t time.Time) bool { return t != t.Round(0) }

// fill makes the token's buckets full and open.
func (l *RateLimiter) fill() {
	l.token = state{full: longAgo, since: l.seq + 1}
	l.ceiling = l.token
	l.closed = penalty{until: longAgo}
}
