package policy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// Algorithm is how requests are counted.
type Algorithm int

// The algorithms. The zero value is the default.
const (
	// AlgorithmWindow counts from the first request on; once the window is
	// over, the next request begins a new one. Two windows' requests may meet at the seam.
	AlgorithmWindow Algorithm = iota
	// AlgorithmSlidingLog remembers each request: no interval as long as the
	// window ever holds more than the maximum. It needs 8 bytes per request.
	AlgorithmSlidingLog
)

// String returns the algorithm's name in the configuration.
func (a Algorithm) String() string {
	switch a {
	case AlgorithmWindow:
		return "window"
	case AlgorithmSlidingLog:
		return "sliding_log"
	}
	return fmt.Sprintf("Algorithm(%d)", int(a))
}

// ParseAlgorithm returns the algorithm of that name.
func ParseAlgorithm(name string) (Algorithm, error) {
	for a := AlgorithmWindow; a <= AlgorithmSlidingLog; a++ {
		if a.String() == name {
			return a, nil
		}
	}
	return 0, fmt.Errorf("algorithm %q is not one of window, sliding_log", name)
}

// maxLog bounds the requests per identity that AlgorithmSlidingLog remembers.
const maxLog = 10_000

// SlidingWindowConfig sets a SlidingWindowRateLimitPolicy.
type SlidingWindowConfig struct {
	// MaxRequests is how many requests an identity has in a window; 0 turns the policy off.
	MaxRequests int
	// Window is how long they are counted.
	Window time.Duration
	// Lockout is for how long an identity that asks for more is locked; 0
	// refuses only until the window is over.
	Lockout time.Duration
	// Algorithm is how they are counted.
	Algorithm Algorithm
}

// DefaultSlidingWindowConfig returns a policy that is off, which is safe while
// developing, with a window of a minute and no lock-out.
func DefaultSlidingWindowConfig() SlidingWindowConfig {
	return SlidingWindowConfig{Window: time.Minute}
}

func (c SlidingWindowConfig) validate() error {
	var errs []error
	switch most := math.MaxUint32 - 1; {
	case c.MaxRequests < 0 || c.MaxRequests > most:
		errs = append(errs, fmt.Errorf("MaxRequests: %d is not between 0 and %d", c.MaxRequests, most))
	case c.Algorithm == AlgorithmSlidingLog && c.MaxRequests > maxLog:
		errs = append(errs, fmt.Errorf("MaxRequests: %d is more than the %d that sliding_log remembers", c.MaxRequests, maxLog))
	}
	if c.Window <= 0 || c.Window > maxDuration {
		errs = append(errs, outOfRange("Window", c.Window, 1))
	}
	if c.Lockout < 0 || c.Lockout > maxDuration {
		errs = append(errs, outOfRange("Lockout", c.Lockout, 0))
	}
	if c.Algorithm < AlgorithmWindow || c.Algorithm > AlgorithmSlidingLog {
		errs = append(errs, fmt.Errorf("Algorithm: %v is not known", c.Algorithm))
	}
	return errors.Join(errs...)
}

func outOfRange(field string, d, least time.Duration) error {
	return fmt.Errorf("%s: %v is not between %v and %v", field, d, least, maxDuration)
}

// SlidingWindowRateLimitPolicy allows each identity so many requests per
// window, within each scope. It is safe for concurrent use. It remembers
// 100,000 identities; one more replaces one whose window is over, else one
// with requests left, and those that are refused or locked last, the oldest
// first. With AlgorithmSlidingLog it does so too once it remembers eight
// million requests. Windows and locks are in memory only.
//
// A window is [start, start+Window): a request at its very end is in the next
// one. Requests that are refused are not counted, and lengthen neither window nor lock.
type SlidingWindowRateLimitPolicy struct {
	limit           int
	window, lockout int64

	mu    sync.Mutex
	store *store
	logs  *logs // nil with AlgorithmWindow
}

var _ ConcurrentPolicy = (*SlidingWindowRateLimitPolicy)(nil)

// NewSlidingWindowRateLimitPolicy returns the policy, or an error that lists
// each mistake in cfg by its field.
func NewSlidingWindowRateLimitPolicy(cfg SlidingWindowConfig) (*SlidingWindowRateLimitPolicy, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("new sliding window policy: %w", err)
	}
	p := &SlidingWindowRateLimitPolicy{
		limit: cfg.MaxRequests, window: int64(cfg.Window), lockout: int64(cfg.Lockout),
		store: newStore(maxIdentities),
	}
	if cfg.Algorithm == AlgorithmSlidingLog {
		p.logs = newLogs(cfg.MaxRequests)
	}
	return p, nil
}

// Enabled is false if the policy allows everything.
func (p *SlidingWindowRateLimitPolicy) Enabled() bool { return p.limit > 0 }

// ConcurrentSafe is true.
func (p *SlidingWindowRateLimitPolicy) ConcurrentSafe() bool { return true }

// Check decides about one request, and counts it if it is allowed. Its only
// error is ErrNoTime.
func (p *SlidingWindowRateLimitPolicy) Check(_ context.Context, q Query) (Decision, error) {
	if p.limit == 0 {
		return Decision{Allowed: true}, nil
	}
	p.mu.Lock()
	t, ok := p.store.reading(q.Now)
	if !ok {
		p.mu.Unlock()
		return Decision{}, ErrNoTime
	}
	wait := p.check(t, p.store.hash(q.Scope, q.Identity))
	p.mu.Unlock()
	return Decision{Allowed: wait == 0, RetryAfter: time.Duration(wait)}, nil
}

// check returns how long a request at t has to wait; zero allows it.
func (p *SlidingWindowRateLimitPolicy) check(t int64, hash uint64) int64 {
	s := p.store
	place, known := s.find(hash)
	var e *entry
	if known {
		e = s.entry(place)
	} else {
		place = p.room(t)
		e = s.add(hash, place)
	}
	if e.locked {
		if t < e.at {
			return e.at - t
		}
		e.locked, e.count = false, 0
	}
	if p.logs != nil {
		p.logs.drop(place, e, t-p.window)
	} else if e.count > 0 && t-e.at >= p.window {
		e.count = 0
	}
	if int(e.count) < p.limit {
		p.allow(place, e, t)
		return 0
	}
	return p.deny(place, e, t)
}

// allow counts a request.
func (p *SlidingWindowRateLimitPolicy) allow(place uint32, e *entry, t int64) {
	if e.class == denied {
		p.store.move(place, e, below)
	}
	if e.count == 0 {
		e.at, e.renewed = t, p.store.lists[below].newest != place
	}
	if p.logs != nil {
		if p.logs.grows(place, e) {
			p.makeRoom(place, t)
		}
		p.logs.add(place, e, t)
		e.at = t
	}
	e.count++
}

// deny refuses a request, and locks the identity if the policy does that.
func (p *SlidingWindowRateLimitPolicy) deny(place uint32, e *entry, t int64) int64 {
	if e.class != denied {
		p.store.move(place, e, denied)
	}
	if p.lockout > 0 {
		if p.logs != nil {
			p.logs.clear(place, e)
		}
		e.at, e.count, e.locked = t+p.lockout, 0, true
		return p.lockout
	}
	begin := e.at
	if p.logs != nil {
		begin = p.logs.oldest(place)
	}
	return p.window - (t - begin)
}

// over is true if forgetting the entry changes no answer. For a log its last
// request counts.
func (p *SlidingWindowRateLimitPolicy) over(e *entry, t int64) bool {
	if e.locked {
		return t >= e.at
	}
	return e.count == 0 || t-e.at >= p.window
}

// room returns a place for a new entry, and forgets another one if it must.
func (p *SlidingWindowRateLimitPolicy) room(t int64) uint32 {
	place, ok := p.store.fresh()
	if !ok {
		p.forget(p.cheapest(t, none))
		place, _ = p.store.fresh()
	}
	return place
}

// sortSteps is how many entries are put where they belong before one is forgotten.
const sortSteps = 32

// cheapest returns the place of the entry that is forgotten next, other than
// that of except; none if there is no other.
func (p *SlidingWindowRateLimitPolicy) cheapest(t int64, except uint32) uint32 {
	p.sort(t)
	place := none
	for class := range p.store.lists {
		oldest := p.store.lists[class].oldest
		if oldest != none && oldest == except {
			oldest = p.store.entry(oldest).prev
		}
		switch {
		case oldest == none:
		case p.over(p.store.entry(oldest), t):
			return oldest
		case place == none:
			place = oldest
		}
	}
	return place
}

// sort looks at the oldest entries below the ceiling. Check, which is called
// far more often, leaves an entry where it is when it reaches the ceiling, or
// begins another window; so here the former move to their class, and the
// latter become the newest of it.
func (p *SlidingWindowRateLimitPolicy) sort(t int64) {
	for range sortSteps {
		place := p.store.lists[below].oldest
		if place == none {
			return
		}
		e := p.store.entry(place)
		switch {
		case p.over(e, t):
			return
		case int(e.count) >= p.limit:
			p.store.move(place, e, full)
		case e.renewed:
			e.renewed = false
			p.store.move(place, e, below)
		default:
			return
		}
	}
}

func (p *SlidingWindowRateLimitPolicy) forget(place uint32) {
	if p.logs != nil {
		p.logs.clear(place, p.store.entry(place))
	}
	p.store.giveUp(place)
}

// makeRoom forgets other entries than the one at that place until its log may grow.
func (p *SlidingWindowRateLimitPolicy) makeRoom(place uint32, t int64) {
	for p.logs.crowded() {
		other := p.cheapest(t, place)
		if other == none {
			return
		}
		p.forget(other)
	}
}
