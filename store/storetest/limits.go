package storetest

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/chatgateway/gateway/limiter"
)

// Limits is a limiter.Store in memory, for tests of one process.
type Limits struct {
	mu     sync.Mutex
	scopes map[string]*limitScope
}

// limitScope is what is kept of one scope.
type limitScope struct {
	reading  int64 // of a clock that never steps back
	wall     int64 // which the wall clock showed then
	token    limiter.Ledger
	channels map[string]limiter.Ledger
	methods  map[limiter.Bucket]int64
}

var _ limiter.Store = (*Limits)(nil)

// NewLimits returns an empty store.
func NewLimits() *Limits { return &Limits{scopes: map[string]*limitScope{}} }

// begin returns the scope, its reading, and the wall clock.
func (m *Limits) begin(a limiter.Ask) (s *limitScope, t, wall int64) {
	wall = cmp.Or(a.At, time.Now()).UnixNano() //nolint:forbidigo // a store has a clock of its own
	s, ok := m.scopes[a.Scope]
	if !ok {
		s = &limitScope{reading: wall, wall: wall, channels: map[string]limiter.Ledger{}, methods: map[limiter.Bucket]int64{}}
		m.scopes[a.Scope] = s
	}
	return s, s.reading + max(wall-s.wall, 0), wall
}

func (s *limitScope) load(c limiter.Call) limiter.Ledger {
	l, ch := s.token, s.channels[c.Channel]
	l.Delay, l.Rule, l.Channel = ch.Delay, ch.Rule, ch.Channel
	if c.Method != "" {
		l.Method = s.methods[limiter.Bucket{Method: c.Method}]
	}
	if c.Method != "" && c.Channel != "" {
		l.ChannelMethod = s.methods[limiter.Bucket{Channel: c.Channel, Method: c.Method}]
	}
	return l
}

func (s *limitScope) save(c limiter.Call, l limiter.Ledger) {
	s.token = limiter.Ledger{Seq: l.Seq, Token: l.Token, Ceiling: l.Ceiling, Closed: l.Closed}
	if c.Channel != "" {
		s.channels[c.Channel] = limiter.Ledger{Delay: l.Delay, Rule: l.Rule, Channel: l.Channel}
	}
	if c.Method != "" {
		s.methods[limiter.Bucket{Method: c.Method}] = l.Method
	}
	if c.Method != "" && c.Channel != "" {
		s.methods[limiter.Bucket{Channel: c.Channel, Method: c.Method}] = l.ChannelMethod
	}
}

// Reserve takes slots.
func (m *Limits) Reserve(ctx context.Context, a limiter.Ask) (limiter.Answer, error) {
	var answer limiter.Answer
	err := m.step(ctx, a, func(t int64, l *limiter.Ledger) { answer = l.Reserve(t, a) })
	return answer, err
}

// Cancel gives slots back.
func (m *Limits) Cancel(ctx context.Context, a limiter.Ask, ticket limiter.Ticket) error {
	return m.step(ctx, a, func(t int64, l *limiter.Ledger) { l.Cancel(t, a, ticket.Seq) })
}

// Penalise closes a bucket.
func (m *Limits) Penalise(ctx context.Context, a limiter.Ask, b limiter.Bucket, d time.Duration) error {
	return m.step(ctx, a, func(t int64, l *limiter.Ledger) { l.Penalise(t, a, b, d) })
}

// Peek looks and changes nothing.
func (m *Limits) Peek(ctx context.Context, a limiter.Ask) (limiter.Standing, error) {
	var standing limiter.Standing
	err := m.step(ctx, a, func(t int64, l *limiter.Ledger) { standing = l.Standing(t) })
	return standing, err
}

// Reset forgets the scope.
func (m *Limits) Reset(ctx context.Context, scope string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.scopes[scope]; ok {
		s.token = limiter.Ledger{Seq: s.token.Seq} // those before can't be given back
		clear(s.channels)
		clear(s.methods)
	}
	return ctx.Err()
}

// step lets f work on what is kept for the call.
func (m *Limits) step(ctx context.Context, a limiter.Ask, f func(t int64, l *limiter.Ledger)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s, t, wall := m.begin(a)
	l := s.load(a.Call)
	before := l
	f(t, &l)
	if l != before || wall < s.wall { // as a database would, which writes only what it must
		s.reading, s.wall = t, wall
		s.save(a.Call, l)
	}
	return nil
}
