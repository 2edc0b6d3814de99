package limiter

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Never is the wait for a call that no full bucket could ever pay.
const Never = time.Duration(math.MaxInt64)

// The names of limits, as an operator reads them.
const (
	nameBucket   = "bucket"
	nameCeiling  = "platform ceiling"
	namePenalty  = "penalty"
	nameMethod   = "method penalty"
	nameDelay    = "channel delay"
	nameRule     = "channel rule"
	nameClosed   = "channel penalty"
	nameStore    = "shared store"
	mostLimits   = 16  // that can refuse one call
	mostRefusing = 100 // channels and methods that Levels lists
)

// Limit is one limit that refuses a call now.
type Limit struct {
	// Name is "bucket" (the token's own), "platform ceiling", "penalty" (on all
	// calls), "method penalty", "channel delay", "channel rule" or "channel penalty";
	// with a store that does not answer, "shared store".
	Name string
	// Bucket is what the limit is on; zero is the token's own bucket.
	Bucket Bucket
	// Wait is how long it refuses; Never if asking again is useless.
	Wait time.Duration
	// Penalty is true if the platform asked for the wait.
	Penalty bool
}

// limits collects at most mostLimits without an allocation.
type limits struct {
	n    int
	list [mostLimits]Limit
}

func (ls *limits) add(name string, b Bucket, wait int64) {
	if wait <= 0 {
		return
	}
	penalty := name == namePenalty || name == nameMethod || name == nameClosed
	ls.list[ls.n] = Limit{Name: name, Bucket: b, Wait: time.Duration(wait), Penalty: penalty}
	ls.n++
}

// longerFirst orders limits by their wait.
func longerFirst(a, b Limit) int { return cmp.Compare(b.Wait, a.Wait) }

// Explain returns every limit that refuses c now, the longest wait first;
// nothing if the call could go. It changes nothing, and allocates only for an answer.
func (l *RateLimiter) Explain(now time.Time, c Call) []Limit {
	if l.store == nil {
		return l.explainOwn(now, c)
	}
	var found limits
	l.explainShared(c, &found)
	for _, limit := range l.explainOwn(now, c) {
		if limit.Penalty {
			found.add(limit.Name, limit.Bucket, int64(limit.Wait))
		}
	}
	return found.sorted()
}

// explainOwn is Explain for what this process knows.
func (l *RateLimiter) explainOwn(now time.Time, c Call) []Limit {
	var found limits
	l.mu.Lock()
	l.explain(l.peek(now), c, &found)
	l.mu.Unlock()
	return found.sorted()
}

func (ls *limits) sorted() []Limit {
	if ls.n == 0 {
		return nil
	}
	slices.SortStableFunc(ls.list[:ls.n], longerFirst)
	return slices.Clone(ls.list[:ls.n])
}

func (l *RateLimiter) explain(t int64, c Call, found *limits) {
	cost := c.cost()
	found.add(nameBucket, Bucket{}, l.perToken.wait(l.token.level(t), cost))
	if l.perCeiling.on() {
		found.add(nameCeiling, Bucket{}, l.perCeiling.wait(l.ceiling.level(t), cost))
	}
	found.add(namePenalty, Bucket{}, l.closed.wait(t))
	if c.Method != "" {
		whole, here := Bucket{Method: c.Method}, Bucket{Channel: c.Channel, Method: c.Method}
		found.add(nameMethod, whole, l.methodLeft(t, whole))
		if here != whole {
			found.add(nameMethod, here, l.methodLeft(t, here))
		}
	}
	if c.Channel == "" {
		return
	}
	b := Bucket{Channel: c.Channel}
	var gap, own int64
	if ch := l.known(c.Channel); ch != nil {
		gap, own = ch.gap.level(t), ch.own.level(t)
		found.add(nameClosed, b, l.channelLeft(t, ch))
	}
	found.add(nameDelay, b, gap)
	if rule := l.ruleOf(c.Channel); rule.on() {
		found.add(nameRule, b, rule.wait(own, cost))
	}
}

// peek is reading without taking note of it.
func (l *RateLimiter) peek(now time.Time) int64 {
	return min(max(int64(now.Sub(l.base)), l.last), farthest)
}

// methodLeft returns how long the penalty on b still holds.
func (l *RateLimiter) methodLeft(t int64, b Bucket) int64 {
	p, ok := l.methods[b]
	if !ok {
		return 0
	}
	return p.wait(t)
}

// channelLeft returns how long the channel's penalty still holds.
func (l *RateLimiter) channelLeft(t int64, ch *channel) int64 {
	p := l.table.penalty(ch)
	return p.wait(t)
}

// known returns the state that a call to the channel is counted on, without
// making it the one used last; nil if there is nothing to remember of it.
func (l *RateLimiter) known(name string) *channel {
	if ch := l.table.find(name); ch != nil {
		return ch
	}
	if l.full() {
		return l.table.overflow[l.group(name)]
	}
	return nil
}

// Levels is how full a limiter's buckets are at one instant.
type Levels struct {
	Scope string
	// Tokens is how many slots the token's bucket holds of Depth, and Rate how
	// many flow back in a second. A penalty may make Tokens negative, by one slot at most.
	Tokens float64
	Depth  int
	Rate   float64
	// HasCeiling is true if the platform's own limit over the whole token is
	// on, too; Ceiling is how many slots that holds.
	HasCeiling bool
	Ceiling    float64
	// Penalty is how long the whole bucket is still closed; zero if it is open.
	Penalty time.Duration
	// Channels is how many channels are remembered.
	Channels int
	// Refusing are the channels and methods that refuse a call now, each with
	// the limit that does so longest, the longest of all first; at most 100 of RefusingTotal.
	Refusing      []Limit
	RefusingTotal int
}

// Levels returns how full the buckets are, and what is closed. It changes
// nothing; it looks at all channels, so it is for an operator and not for each
// call. With a store, Tokens, Ceiling and Penalty are those of all processes, zero if
// the store fails, and what is Refusing is what this process knows alone.
func (l *RateLimiter) Levels(now time.Time) Levels {
	v := l.levelsOwn(now)
	if l.store != nil {
		l.levelsShared(&v)
	}
	return v
}

func (l *RateLimiter) levelsOwn(now time.Time) Levels {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.peek(now)
	v := Levels{
		Scope:    l.scope,
		Tokens:   l.perToken.slots(l.token.level(t)),
		Depth:    int(l.perToken.burst),
		Rate:     float64(time.Second) / float64(l.perToken.every),
		Penalty:  time.Duration(l.closed.wait(t)),
		Channels: l.table.n,
	}
	if l.perCeiling.on() {
		v.HasCeiling, v.Ceiling = true, l.perCeiling.slots(l.ceiling.level(t))
	}
	l.table.each(func(ch *channel) { v.refuses(l.longest(t, ch)) })
	for b, p := range l.methods {
		v.refuses(Limit{Name: nameMethod, Bucket: b, Wait: time.Duration(p.wait(t)), Penalty: true})
	}
	return v
}

// longest returns which of its limits the channel refuses a call by for the
// longest time; with a wait of zero if it refuses none.
func (l *RateLimiter) longest(t int64, ch *channel) Limit {
	r := Limit{Name: nameClosed, Wait: time.Duration(l.channelLeft(t, ch)), Penalty: true}
	if gap := time.Duration(ch.gap.level(t)); gap > r.Wait {
		r = Limit{Name: nameDelay, Wait: gap}
	}
	if l.rule(ch).on() {
		if own := time.Duration(l.rule(ch).wait(ch.own.level(t), 1)); own > r.Wait {
			r = Limit{Name: nameRule, Wait: own}
		}
	}
	r.Bucket.Channel = l.table.name(ch)
	return r
}

// refuses adds the limit to the list, if its wait is among the longest.
func (v *Levels) refuses(r Limit) {
	if r.Wait <= 0 {
		return
	}
	v.RefusingTotal++
	n := len(v.Refusing)
	if n == mostRefusing && v.Refusing[n-1].Wait >= r.Wait {
		return
	}
	if n == mostRefusing {
		v.Refusing = v.Refusing[:n-1]
	}
	at, _ := slices.BinarySearchFunc(v.Refusing, r, longerFirst)
	v.Refusing = slices.Insert(v.Refusing, at, r)
}
