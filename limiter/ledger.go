package limiter

import (
	"math"
	"time"
)

// Ledger is the arithmetic of the shared form for one call: a Store loads what
// it keeps into one, calls a method, and keeps what has become of it. Times are
// readings: nanoseconds of a clock of the store's that never steps back. The
// zero Ledger is that of a scope, and of a channel, of which nothing is known yet.
type Ledger struct {
	Seq                         int64 // of the scope's last reservation
	Token, Ceiling, Delay, Rule Gauge
	// Readings at which penalties end: on the whole bucket, the method, the
	// method in this channel, and the channel.
	Closed, Method, ChannelMethod, Channel int64
}

// Gauge is one bucket of a Ledger.
type Gauge struct {
	Full  int64 // the reading at which the bucket is full again
	Since int64 // reservations older than this one have nothing to give back
	Last  int64 // the reservation that was made last
	Low   int64 // the lowest level that one after Since found
}

func (g *Gauge) level(t int64) int64 { return max(g.Full-t, 0) }

// take is the reservation seq, to be used at that reading.
func (g *Gauge) take(at, amount, seq int64) {
	if found := g.level(at); found == 0 {
		g.Since, g.Low = seq, math.MaxInt64
	} else {
		g.Low = min(g.Low, found)
	}
	g.Full, g.Last = max(g.Full, at)+amount, seq
}

// giveBack lowers the level by what the reservation seq took, as far as no
// later one profits twice: one that found less would have found a full bucket.
func (g *Gauge) giveBack(t, amount, seq int64) {
	amount = min(amount, g.level(t))
	if seq < g.Since || amount == 0 {
		return
	}
	if seq != g.Last {
		amount = min(amount, g.Low)
		g.Low -= amount
	}
	g.Full -= amount
}

// Reserve takes a slot in every bucket of the ask, or in none.
func (l *Ledger) Reserve(t int64, a Ask) Answer {
	if a.Mode == Take {
		l.Seq++
		l.Token.takeUpTo(t, a.Token, a.Call.cost(), l.Seq)
		l.Ceiling.takeUpTo(t, a.Ceiling, a.Call.cost(), l.Seq)
		return Answer{Granted: true, Ticket: Ticket{Seq: l.Seq}}
	}
	ahead := max(wait(a.Token, &l.Token, t, a.Call.cost()), wait(a.Ceiling, &l.Ceiling, t, a.Call.cost()), 0)
	blocked, left := l.refused(t, a)
	switch {
	case ahead == never:
		return Answer{Wait: Never}
	case ahead > 0 && a.Mode != Ahead && (left == 0 || blocked != Bucket{}):
		return Answer{Wait: time.Duration(ahead)}
	case left > 0:
		return Answer{Wait: time.Duration(left), Blocked: blocked}
	}
	// All is counted as of the instant at which the slot is used. These instants
	// never go back, so no interval holds more than the numbers say.
	at := t + ahead
	l.Seq++
	l.Token.take(at, a.Call.cost()*int64(a.Token.Every), l.Seq)
	l.Ceiling.take(at, a.Call.cost()*int64(a.Ceiling.Every), l.Seq)
	if a.Call.Channel != "" {
		l.Delay.take(at, int64(a.Delay.Every), l.Seq)
		l.Rule.take(at, a.Call.cost()*int64(a.Rule.Every), l.Seq)
	}
	return Answer{Granted: true, Wait: time.Duration(ahead), Ticket: Ticket{Seq: l.Seq}}
}

// refused returns what refuses the call apart from the levels of the token's
// buckets, and for how long.
func (l *Ledger) refused(t int64, a Ask) (Bucket, int64) {
	if left := l.Closed - t; left > 0 {
		return Bucket{}, left
	}
	method, here, channel := Bucket{Method: a.Call.Method}, Bucket{Channel: a.Call.Channel, Method: a.Call.Method}, Bucket{Channel: a.Call.Channel}
	if left := max(l.Method, l.ChannelMethod) - t; left > 0 {
		if l.Method >= l.ChannelMethod {
			return method, left
		}
		return here, left
	}
	if a.Call.Channel == "" {
		return Bucket{}, 0
	}
	return channel, max(l.Channel-t, wait(a.Delay, &l.Delay, t, 1), wait(a.Rule, &l.Rule, t, a.Call.cost()), 0)
}

// wait returns how long the bucket refuses the cost; zero or less if not at all.
func wait(r Rule, g *Gauge, t, cost int64) int64 {
	n := numbersOf(r)
	if !n.on() {
		return 0
	}
	return n.wait(g.level(t), cost)
}

// takeUpTo takes the cost, or what there is down to a debt of one slot for a bucket of several.
func (g *Gauge) takeUpTo(t int64, r Rule, cost, seq int64) {
	n := numbersOf(r)
	if !n.on() {
		return
	}
	room := max(n.depth+spare(r)-g.level(t), 0)
	g.take(t, min(min(max(cost, 0), n.burst)*n.every, room), seq)
}

// spare is RateLimiter's debt.
func spare(r Rule) int64 {
	if r.Burst > 1 {
		return int64(r.Every)
	}
	return 0
}

// Cancel gives back the slots of a reservation.
func (l *Ledger) Cancel(t int64, a Ask, seq int64) {
	cost := a.Call.cost()
	l.Token.giveBack(t, cost*int64(a.Token.Every), seq)
	l.Ceiling.giveBack(t, cost*int64(a.Ceiling.Every), seq)
	if a.Call.Channel != "" {
		l.Delay.giveBack(t, int64(a.Delay.Every), seq)
		l.Rule.giveBack(t, cost*int64(a.Rule.Every), seq)
	}
}

// Penalise closes the bucket, which is one of those that the ask's call draws from.
func (l *Ledger) Penalise(t int64, a Ask, b Bucket, d time.Duration) {
	if b != (Bucket{}) {
		l.Seq++
		l.Token.takeUpTo(t, a.Token, 1, l.Seq)
	}
	end := &l.Closed
	switch {
	case b.Method != "" && b.Channel != "":
		end = &l.ChannelMethod
	case b.Method != "":
		end = &l.Method
	case b.Channel != "":
		end = &l.Channel
	}
	*end = max(*end, t+int64(d))
}

// Empty makes the token's buckets empty, for when it is not known what they held.
func (l *Ledger) Empty(t int64, a Ask) {
	for g, r := range map[*Gauge]Rule{&l.Token: a.Token, &l.Ceiling: a.Ceiling} {
		n := numbersOf(r)
		g.Full, g.Since = max(g.Full, t+n.depth), l.Seq+1
	}
}

// Standing returns what the call finds.
func (l *Ledger) Standing(t int64) Standing {
	left := func(end int64) time.Duration { return time.Duration(max(end-t, 0)) }
	return Standing{
		Token: left(l.Token.Full), Ceiling: left(l.Ceiling.Full), Delay: left(l.Delay.Full), Rule: left(l.Rule.Full),
		Closed: left(l.Closed), Method: left(l.Method), ChannelMethod: left(l.ChannelMethod), Channel: left(l.Channel),
	}
}
