package limiter

import (
	"context"
	"time"
)

// Store keeps the state of limiters that several processes share. Each method is
// one atomic step, whichever process calls it. All processes of a scope must ask with the same numbers.
//
// A store has one clock for all who ask. A clock that steps back grants nothing
// extra and lengthens no wait. Penalties survive a restart of the store's
// machine; levels of buckets need not, but then a bucket starts empty.
//
// A store bounds what it keeps of a scope's channels as a limiter does: those
// that find no room share one row for each rule, and a penalty that finds none
// goes to the next wider bucket. An implementation is held to all this by
// storetest.RunLimits; a Ledger has the arithmetic. It is safe for concurrent use.
type Store interface {
	// Reserve takes a slot in every bucket of the ask, or in none.
	Reserve(ctx context.Context, a Ask) (Answer, error)
	// Cancel gives back what the reservation took, at most, and not more than
	// would be there if it had never been. It does nothing if that is unknown.
	Cancel(ctx context.Context, a Ask, t Ticket) error
	// Penalise closes the bucket for d at least, and takes a slot from the
	// token's bucket if b is another. d is within 50 ms and 7 days.
	Penalise(ctx context.Context, a Ask, b Bucket, d time.Duration) error
	// Peek returns what a reservation would find, and changes nothing.
	Peek(ctx context.Context, a Ask) (Standing, error)
	// Reset fills the scope's buckets, forgets its channels and ends its penalties.
	Reset(ctx context.Context, scope string) error
}

// Mode says what a reservation may do when the token's bucket has no slot left.
type Mode int

// The modes. The zero value is none of them.
const (
	// Try takes slots that are open now, and refuses otherwise.
	Try Mode = iota + 1
	// Ahead takes the next slot of the token's bucket, even if it opens later:
	// first come, first served, over all processes. What a channel, a method or
	// a penalty refuses is refused here too.
	Ahead
	// Take takes what is there, refuses nothing, and leaves channels alone.
	Take
)

// Ask is one question to a Store: the call, and the numbers of its buckets.
type Ask struct {
	Scope string
	Call  Call // with a cost of at least 1
	Mode  Mode // of Reserve
	// Token and Delay are the three numbers of a Config; Ceiling is the
	// platform's limit over the whole token; Rule is that of the chat or group.
	// The zero Rule is no limit.
	Token, Ceiling, Delay, Rule Rule
	// At is the time to count with, for tests. If it is zero, as in every
	// program, the store reads its own clock as part of the step.
	At time.Time
}

// Answer is what Reserve says.
type Answer struct {
	// Granted is true if slots were taken: they may be used once Wait is over.
	Granted bool
	// Wait is, if nothing was taken, when to ask again; Never if that is useless.
	Wait    time.Duration
	Blocked Bucket // that refused; the zero Bucket is the token's own
	Ticket  Ticket // of slots that were taken
}

// Ticket tells a reservation from others, for Cancel.
type Ticket struct {
	Seq    int64
	Shared bool // the channel had no room of its own
}

// Standing is what a call finds in its buckets at one instant.
type Standing struct {
	Token, Ceiling, Delay, Rule time.Duration // until each bucket is full again
	// How long penalties still hold: on the whole bucket, the method, the
	// method in this channel, and the channel.
	Closed, Method, ChannelMethod, Channel time.Duration
}

// penalty returns the longest penalty that the call meets.
func (s *Standing) penalty() time.Duration {
	return max(s.Closed, s.Method, s.ChannelMethod, s.Channel)
}

// explain adds the limits that refuse the call.
func (s *Standing) explain(a Ask, found *limits) {
	token, ceiling, rule := numbersOf(a.Token), numbersOf(a.Ceiling), numbersOf(a.Rule)
	found.add(nameBucket, Bucket{}, token.wait(int64(s.Token), a.Call.cost()))
	if ceiling.on() {
		found.add(nameCeiling, Bucket{}, ceiling.wait(int64(s.Ceiling), a.Call.cost()))
	}
	found.add(namePenalty, Bucket{}, int64(s.Closed))
	found.add(nameMethod, Bucket{Method: a.Call.Method}, int64(s.Method))
	found.add(nameMethod, Bucket{Channel: a.Call.Channel, Method: a.Call.Method}, int64(s.ChannelMethod))
	b := Bucket{Channel: a.Call.Channel}
	found.add(nameClosed, b, int64(s.Channel))
	found.add(nameDelay, b, int64(s.Delay))
	if rule.on() {
		found.add(nameRule, b, rule.wait(int64(s.Rule), a.Call.cost()))
	}
}
