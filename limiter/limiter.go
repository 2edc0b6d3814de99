// Package limiter answers when a bot may send: at most so many messages a
// second over all its chats, at most so many in one chat, and nothing at all
// while the platform said "wait".
//
// A RateLimiter belongs to one token of one platform. A caller either asks
// and decides itself (TryReserve, which takes the time as an argument), or
// lets the limiter wait for it (Reserve, Wait). A slot is taken in every
// bucket that the call draws from, or in none.
package limiter

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// ErrCost means that no full bucket could ever pay the call's cost.
var ErrCost = errors.New("the call costs more than a full bucket holds")

// Call is one call with the bot's token.
type Call struct {
	// Channel is the chat that the call goes to; a call without one draws from
	// the token's bucket alone.
	Channel string
	// Method is the platform's name of the call, for penalties on one method. It may be empty.
	Method string
	// Cost is how many slots the call takes, for one that the platform counts
	// as several messages; 0 means 1. The per-channel delay counts calls, whatever they cost.
	Cost int
}

// cost returns the slots that c takes.
func (c Call) cost() int64 {
	if c.Cost == 0 {
		return 1
	}
	return int64(c.Cost)
}

// Bucket names one limit: a channel's, a method's, or a method's within a
// channel. The zero value is the token's own bucket, which every call draws from.
type Bucket struct {
	Channel, Method string
}

// RateLimiter limits the calls of one token, within one process or, with
// WithStore, over several. It is made by
// New, ForPlatform or ForProfile, starts no goroutine, and is safe for
// concurrent use. Its memory is bounded: it keeps the 4,096 channels used last,
// and more only while their limits have something to remember.
//
// Time is an argument. Readings may come from a clock that steps back: that
// grants nothing extra, and locks nobody out for longer than a bucket needs to
// fill, or than a penalty was imposed for.
type RateLimiter struct {
	cfg   Config
	scope string
	rules ChannelRules
	log   *slog.Logger
	mask  bool // channels are phone numbers

	maxBusy int           // channels
	store   Store         // nil: the state is in this process
	line    chan struct{} // holds who waits for the token's bucket first

	perToken, perCeiling, perGap, perChat, perGroup numbers

	mu      sync.Mutex
	base    time.Time // readings are nanoseconds since then
	last    int64     // reading
	seq     uint64    // of the reservation made last
	token   state
	ceiling state // the platform's own limit over the whole token, if it is on
	closed  penalty
	table   table
	methods map[Bucket]penalty
	changed chan struct{} // closed when a slot may open early; nil while nobody listens

	unsaved        bool // the token's bucket changed since its anchors were taken
	unsavedMethods bool
	cleared        bool // Reset was called since
}

// Option changes how New builds a limiter.
type Option func(*RateLimiter)

// WithScope names what the limiter is for. All limiters of one token must
// share one scope.
func WithScope(name string) Option { return func(l *RateLimiter) { l.scope = name } }

// WithChannelRules adds the platform's rules for each chat; it replaces those
// of a profile.
func WithChannelRules(r ChannelRules) Option { return func(l *RateLimiter) { l.rules = r } }

// WithMaxChannels sets how many channels are remembered while a penalty, the
// delay or a rule of theirs is unfinished: 65,536 if it is not given. Each takes
// about 80 bytes, and more while it is closed or within a burst. Beyond that, all further channels share one delay and one rule,
// and a penalty on one of them closes the token's bucket. Numbers outside of 1 to 16,777,216 are an error of New.
func WithMaxChannels(n int) Option { return func(l *RateLimiter) { l.maxBusy = n } }

// WithLogger sets where the limiter says, at debug level, that a caller waits.
// Without it nothing is logged.
func WithLogger(log *slog.Logger) Option { return func(l *RateLimiter) { l.log = log } }

// withCeiling adds a second limit over the whole token.
func withCeiling(r Rule) Option {
	return func(l *RateLimiter) { l.perCeiling = numbersOf(r) }
}

// forPlatform sets what depends on the platform, apart from its numbers.
func forPlatform(name string) Option {
	return func(l *RateLimiter) { l.mask = name == whatsapp }
}

// New returns a limiter with the numbers of cfg, a full bucket and the scope
// "default". Numbers that make no sense are an error that lists each of them by its field.
func New(cfg Config, opts ...Option) (*RateLimiter, error) {
	l := &RateLimiter{cfg: cfg, scope: "default", maxBusy: usualBusy, line: make(chan struct{}, 1)}
	for _, opt := range opts {
		opt(l)
	}
	if err := errors.Join(cfg.validate(), l.rules.validate(), l.validMaxBusy()); err != nil {
		return nil, fmt.Errorf("new limiter %q: %w", l.scope, err)
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	l.perToken = numbersOf(PerSecond(cfg.MessagesPerSecond, cfg.BurstSize))
	if cfg.PerChannelDelay > 0 {
		l.perGap = numbersOf(Rule{Every: cfg.PerChannelDelay, Burst: 1})
	}
	l.perChat, l.perGroup = numbersOf(l.rules.Chat), numbersOf(l.rules.Group)
	l.fill()
	l.table.init()
	l.methods = make(map[Bucket]penalty)
	return l, nil
}

// Scope returns the name that the limiter's state is stored under.
func (l *RateLimiter) Scope() string { return l.scope }

// Config returns the numbers that the limiter was made with.
func (l *RateLimiter) Config() Config { return l.cfg }

// after returns the time at which to ask again.
func after(now time.Time, wait int64) time.Time {
	if wait == never {
		return time.Time{}
	}
	return now.Add(time.Duration(wait))
}

// TryReserve takes a slot for c in every bucket that it draws from, or in
// none, and never waits. If ok, the call may go at once. If not, next is when
// to ask again, r.Blocked names the bucket that refused, and nothing was taken.
// A later penalty moves that time further away, so a caller asks again after
// waiting; what may bring it nearer is told by Changed. If the cost is negative or
// above what a full bucket holds, next is the zero time: asking again is useless.
func (l *RateLimiter) TryReserve(now time.Time, c Call) (r Reservation, next time.Time, ok bool) {
	if l.store != nil {
		return l.tryShared(now, c)
	}
	cost := c.cost()
	l.mu.Lock()
	t := l.reading(now)
	level := l.token.level(t)
	wait := l.perToken.wait(level, cost)
	var ceiling int64
	if l.perCeiling.on() {
		ceiling = l.ceiling.level(t)
		wait = max(wait, l.perCeiling.wait(ceiling, cost))
	}
	if wait > 0 || l.closed.until > t {
		wait = max(wait, l.closed.wait(t))
	}
	if wait > 0 {
		l.mu.Unlock()
		return Reservation{}, after(now, wait), false
	}
	if len(l.methods) > 0 && c.Method != "" {
		if b, wait := l.methodWait(t, c); wait > 0 {
			l.mu.Unlock()
			return Reservation{bucket: b}, after(now, wait), false
		}
	}
	var ch *channel
	var gap, own int64
	if c.Channel != "" {
		ch = l.channel(t, c.Channel)
		gap, own = ch.gap.level(t), ch.own.level(t)
		if wait := l.channelWait(t, ch, gap, own, cost); wait > 0 {
			l.mu.Unlock()
			return Reservation{bucket: Bucket{Channel: c.Channel}}, after(now, wait), false
		}
	}
	l.seq++
	l.unsaved = true
	l.token.take(level, t+level+cost*l.perToken.every, l.seq)
	if l.perCeiling.on() {
		l.ceiling.take(ceiling, t+ceiling+cost*l.perCeiling.every, l.seq)
	}
	if ch != nil {
		l.takeChannel(t, ch, own, cost)
	}
	r = Reservation{limiter: l, bucket: Bucket{Channel: c.Channel}, seq: l.seq, cost: cost, shared: ch != nil && ch.nameless()}
	l.mu.Unlock()
	return r, now, true
}

// channelWait returns how long the channel refuses a call, given the levels of
// its delay and of its rule.
func (l *RateLimiter) channelWait(t int64, ch *channel, gap, own, cost int64) int64 {
	wait := gap
	if l.rule(ch).on() {
		wait = max(wait, l.rule(ch).wait(own, cost))
	}
	if ch.is(isClosed) {
		wait = max(wait, l.table.closed(t, ch))
	}
	return wait
}

func (l *RateLimiter) takeChannel(t int64, ch *channel, own, cost int64) {
	ch.gap.full, ch.gap.since = t+l.perGap.every, l.seq // a bucket of one slot, which was full
	if l.rule(ch).on() {
		ch.own.take(own, t+own+cost*l.rule(ch).every, l.seq)
	}
	if !ch.is(isUnsaved) {
		l.table.touch(ch)
	}
}

// methodWait returns how long the call's method is closed, and by which bucket.
func (l *RateLimiter) methodWait(t int64, c Call) (b Bucket, wait int64) {
	for _, name := range []Bucket{{Method: c.Method}, {Channel: c.Channel, Method: c.Method}} {
		p, ok := l.methods[name]
		if !ok {
			continue
		}
		w := p.wait(t)
		if w <= 0 {
			delete(l.methods, name)
			continue
		}
		if w > wait {
			b, wait = name, w
		}
	}
	return b, wait
}

// debt returns by how much penalties may raise the level beyond that of an
// empty bucket: one slot, so that a penalty is felt by a busy bot too. A bucket
// of one slot has none, since one slot is all that it may be late by.
func (l *RateLimiter) debt() int64 {
	if l.perToken.burst > 1 {
		return l.perToken.every
	}
	return 0
}

// Take counts a call that nobody asked for, such as an incoming message where
// the platform counts those too. It takes what is there from the token's
// bucket, at most the call's cost, and refuses nothing.
func (l *RateLimiter) Take(now time.Time, c Call) {
	if l.store != nil {
		l.takeShared(now, c)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.reading(now)
	l.seq++
	l.unsaved = true
	takeUpTo(&l.token, t, &l.perToken, l.debt(), c.cost(), l.seq)
	if l.perCeiling.on() {
		takeUpTo(&l.ceiling, t, &l.perCeiling, 0, c.cost(), l.seq)
	}
}

// takeUpTo raises the bucket's level by the cost, or to the top.
func takeUpTo(s *state, t int64, n *numbers, spare, cost int64, seq uint64) {
	level := s.level(t)
	room := max(n.depth+spare-level, 0)
	s.take(level, t+level+min(min(max(cost, 0), n.burst)*n.every, room), seq)
}

func (l *RateLimiter) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fill()
	l.table.init()
	clear(l.methods)
	l.unsaved, l.unsavedMethods, l.cleared = true, false, true
	l.wake()
}

// Changed returns a channel that is closed once a slot may open earlier than
// TryReserve told: after Cancel, Reset and Restore. Each call of Changed after
// that returns a new one, so get it before asking.
func (l *RateLimiter) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

// wake closes the channel that listeners wait on.
func (l *RateLimiter) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Reservation is the slots of one call. Don't copy it once Cancel may be
// called on it: each copy would give back the same slots.
type Reservation struct {
	limiter *RateLimiter // nil if nothing was taken or all was given back
	bucket  Bucket
	seq     uint64
	cost    int64
	shared  bool // the channel had no room of its own
}

// Blocked names the bucket that refused. The zero Bucket is the token's own:
// no other channel has a slot either. For a reservation that was granted it is the zero value.
func (r *Reservation) Blocked() Bucket {
	if r.seq != 0 {
		return Bucket{}
	}
	return r.bucket
}

// Cancel gives the slots back that were taken and not used, and no more: what
// would have flowed over since then, had they not been taken, is gone. Calling
// it twice, or on a reservation that was refused, does nothing.
func (r *Reservation) Cancel(now time.Time) {
	l := r.limiter
	if l == nil {
		return
	}
	r.limiter = nil
	if l.store != nil {
		l.cancelShared(r)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.reading(now)
	changed := l.token.giveBack(t, r.cost*l.perToken.every, r.seq)
	l.unsaved = l.unsaved || changed
	if l.perCeiling.on() && l.ceiling.giveBack(t, r.cost*l.perCeiling.every, r.seq) {
		changed = true
	}
	if ch := l.reserved(r); ch != nil {
		gap := ch.gap.giveBack(t, l.perGap.every, r.seq)
		if own := ch.own.giveBack(t, r.cost*l.rule(ch).every, r.seq); own || gap {
			changed = true
			l.table.touch(ch)
		}
	}
	if changed {
		l.wake()
	}
}

// reserved returns the channel that r took a slot of, nil if it is forgotten.
func (l *RateLimiter) reserved(r *Reservation) *channel {
	if r.shared {
		return l.table.overflow[l.group(r.bucket.Channel)]
	}
	return l.table.find(r.bucket.Channel)
}
