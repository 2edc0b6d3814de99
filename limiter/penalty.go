package limiter

import "time"

const (
	// A platform that says "wait" means some time at least, and never longer
	// than a week: anything else is a number of another unit.
	minPenalty = 50 * time.Millisecond
	maxPenalty = 7 * 24 * time.Hour
	// maxMethods is how many penalties on methods are kept.
	maxMethods = 1024
)

// PenaliseAt closes the bucket for d from now on: until then no call that
// draws from it is granted, not even to a caller that already waits. Durations
// below 50 ms, negative ones too, count as 50 ms; those above 7 days as 7 days.
// A penalty is only ever lengthened. One on anything but the token's own bucket
// also takes a slot from that, so that the bot's other calls slow down slightly.
//
// If no room is left to remember another penalty, the next wider bucket is closed.
func (l *RateLimiter) PenaliseAt(now time.Time, b Bucket, d time.Duration) {
	if l.store == nil {
		l.penaliseOwn(now, b, d)
		return
	}
	ctx, cancel := bounded()
	defer cancel()
	if err := l.penaliseShared(ctx, now, b, d); err != nil {
		l.log.Warn("rate limit: the shared store fails", "err", err)
	}
}

// penaliseOwn closes the bucket in this process.
func (l *RateLimiter) penaliseOwn(now time.Time, b Bucket, d time.Duration) {
	length := int64(min(max(d, minPenalty), maxPenalty))
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.reading(now)
	l.unsaved = true
	if b != (Bucket{}) {
		l.seq++
		takeUpTo(&l.token, t, &l.perToken, l.debt(), 1, l.seq)
	}
	l.impose(t, b, length)
}

// impose closes the bucket, or a wider one if there is no room for it.
func (l *RateLimiter) impose(t int64, b Bucket, length int64) {
	if b.Method != "" {
		if l.imposeMethod(t, b, length) {
			return
		}
		b.Method = ""
	}
	if b.Channel != "" {
		if ch := l.channel(t, b.Channel); !ch.nameless() {
			p := l.table.penalty(ch)
			p.lengthen(t, length)
			l.table.close(ch, p)
			l.table.touch(ch)
			return
		}
	}
	l.closed.lengthen(t, length)
	l.unsaved = true
}

// imposeMethod returns false if there is no room.
func (l *RateLimiter) imposeMethod(t int64, b Bucket, length int64) bool {
	p, known := l.methods[b]
	if !known && len(l.methods) >= maxMethods {
		for name, old := range l.methods {
			if old.wait(t) == 0 {
				delete(l.methods, name)
			}
		}
		if len(l.methods) >= maxMethods {
			return false
		}
	}
	if !known {
		p.until = longAgo
	}
	p.lengthen(t, length)
	l.methods[b] = p
	l.unsavedMethods = true
	return true
}
