package limiter

import (
	"context"
	"fmt"
	"math"
	"time"
)

const (
	// storeBound is how long the forms without a context may take in a store.
	storeBound = time.Second
	// lookAgain bounds waits for what another process may end early, by Reset or Cancel.
	lookAgain = time.Second
)

// WithStore makes the limiter one of several, in different processes, that
// share the state of their scope in the store: the shared form, for programs in
// which several processes send with one token. Penalise, Reset, Reserve and Wait
// then hold for all of them. A slot of the token's bucket is given in the order
// in which processes ask, one to each process that waits, and used only if no
// penalty came meanwhile. A Reset or Cancel by another process is noticed within a second.
//
// TryReserve, Take, PenaliseAt and Cancel ask the store too, for a second at
// most, and read the store's clock instead of their argument. If the store fails
// them, nothing is granted, and a penalty is obeyed by this process at least.
// Anchors and Follow concern penalties of this process alone: the store is what goes on after a restart.
func WithStore(s Store) Option { return func(l *RateLimiter) { l.store = s } }

// ask returns the question that c is to the store.
func (l *RateLimiter) ask(c Call, m Mode) Ask {
	c.Cost = int(c.cost())
	return Ask{
		Scope: l.scope, Call: c, Mode: m,
		Token: l.perToken.rule(), Ceiling: l.perCeiling.rule(), Delay: l.perGap.rule(), Rule: l.ruleOf(c.Channel).rule(),
	}
}

// rule is the inverse of numbersOf.
func (n *numbers) rule() Rule { return Rule{Every: time.Duration(n.every), Burst: int(n.burst)} }

// bounded is the context of the forms that have none. Their callers ask, and
// give slots back, whatever becomes of the work that the slots are for.
func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), storeBound) //nolint:forbidigo // there is none to derive it from, and this bounds it
}

// own returns by which penalty of this process c is refused, and for how long.
func (l *RateLimiter) own(now time.Time, c Call) (b Bucket, left time.Duration) {
	for _, limit := range l.explainOwn(now, c) {
		if limit.Penalty && limit.Wait > left {
			b, left = limit.Bucket, limit.Wait
		}
	}
	return b, left
}

// try asks the store once.
func (l *RateLimiter) try(ctx context.Context, now time.Time, c Call, m Mode) (Answer, error) {
	if b, left := l.own(now, c); left > 0 && m != Take {
		return Answer{Wait: left, Blocked: b}, nil
	}
	a, err := l.store.Reserve(ctx, l.ask(c, m))
	if err != nil {
		return Answer{}, fmt.Errorf("reserve in the shared store: %w", err)
	}
	return a, nil
}

// reservation is what Cancel needs of a granted answer.
func (l *RateLimiter) reservation(c Call, t Ticket) Reservation {
	return Reservation{limiter: l, bucket: Bucket{Channel: c.Channel}, seq: uint64(t.Seq), cost: c.cost(), shared: t.Shared} //nolint:gosec // a count
}

// tryShared is TryReserve for a limiter with a store.
func (l *RateLimiter) tryShared(now time.Time, c Call) (r Reservation, next time.Time, ok bool) {
	ctx, cancel := bounded()
	defer cancel()
	a, err := l.try(ctx, now, c, Try)
	switch {
	case err != nil:
		l.log.Warn("rate limit: the shared store fails", "err", err)
		return Reservation{}, now.Add(lookAgain), false
	case a.Granted:
		return l.reservation(c, a.Ticket), now, true
	}
	return Reservation{bucket: a.Blocked}, after(now, int64(a.Wait)), false
}

// reserveShared takes the next slot for c and waits for it, while its caller is
// first in line. If something else than the token's bucket refuses the call, it
// returns for how long, so that the line goes on without it.
func (l *RateLimiter) reserveShared(ctx context.Context, c Call, waits func(time.Duration)) (r Reservation, retry time.Duration, err error) {
	for {
		changed := l.Changed()
		a, err := l.try(ctx, clock(), c, Ahead)
		switch {
		case err != nil:
			return Reservation{}, 0, err
		case a.Wait == Never:
			return Reservation{}, 0, fmt.Errorf("reserve %d slots: %w", c.cost(), ErrCost)
		case a.Granted && a.Wait <= 0:
			return l.reservation(c, a.Ticket), 0, nil
		case !a.Granted && a.Blocked != Bucket{}:
			return Reservation{}, min(a.Wait, lookAgain), nil
		}
		waits(a.Wait)
		if !a.Granted {
			if err := pause(ctx, min(a.Wait, lookAgain), changed); err != nil {
				return Reservation{}, 0, err
			}
			continue
		}
		r := l.reservation(c, a.Ticket)
		if ok, err := l.arrives(ctx, c, a.Wait); !ok {
			l.giveBack(context.WithoutCancel(ctx), &r)
			if err != nil {
				return Reservation{}, 0, err
			}
			continue
		}
		return r, 0, nil
	}
}

// arrives waits for a slot that lies ahead, and reports whether it may be used:
// a penalty may have come.
func (l *RateLimiter) arrives(ctx context.Context, c Call, ahead time.Duration) (bool, error) {
	if err := pause(ctx, ahead, nil); err != nil {
		return false, err
	}
	s, err := l.store.Peek(ctx, l.ask(c, Ahead))
	if err != nil {
		return false, fmt.Errorf("ask the shared store for penalties: %w", err)
	}
	_, left := l.own(clock(), c)
	return s.penalty() == 0 && left == 0, nil
}

// cancelShared is Cancel for a limiter with a store.
func (l *RateLimiter) cancelShared(r *Reservation) {
	ctx, cancel := bounded()
	defer cancel()
	l.giveBack(ctx, r)
}

// giveBack returns the slots to the store, and takes no longer than the forms without a context.
func (l *RateLimiter) giveBack(ctx context.Context, r *Reservation) {
	ctx, cancel := context.WithTimeout(ctx, storeBound)
	defer cancel()
	c := Call{Channel: r.bucket.Channel, Cost: int(r.cost)}
	if err := l.store.Cancel(ctx, l.ask(c, Ahead), Ticket{Seq: int64(min(r.seq, math.MaxInt64)), Shared: r.shared}); err != nil {
		l.log.WarnContext(ctx, "rate limit: the shared store fails", "err", err) // the slots are lost, and flow back
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wake()
}

// takeShared is Take for a limiter with a store.
func (l *RateLimiter) takeShared(now time.Time, c Call) {
	ctx, cancel := bounded()
	defer cancel()
	if _, err := l.try(ctx, now, c, Take); err != nil {
		l.log.Warn("rate limit: the shared store fails", "err", err)
	}
}

// penaliseShared imposes the penalty on all processes; if the store fails, on this one.
func (l *RateLimiter) penaliseShared(ctx context.Context, now time.Time, b Bucket, d time.Duration) error {
	d = min(max(d, minPenalty), maxPenalty)
	err := l.store.Penalise(ctx, l.ask(Call{Channel: b.Channel, Method: b.Method}, Ahead), b, d)
	if err != nil {
		l.penaliseOwn(now, b, d)
		return fmt.Errorf("penalise in the shared store: %w", err)
	}
	return nil
}

// resetShared resets the scope for all processes.
func (l *RateLimiter) resetShared(ctx context.Context) error {
	err := l.store.Reset(ctx, l.scope)
	l.reset()
	if err != nil {
		return fmt.Errorf("reset the shared store: %w", err)
	}
	return nil
}

// explainShared is Explain for a limiter with a store. A store that doesn't
// answer is a limit too.
func (l *RateLimiter) explainShared(c Call, found *limits) {
	ctx, cancel := bounded()
	defer cancel()
	a := l.ask(c, Try)
	s, err := l.store.Peek(ctx, a)
	if err != nil {
		found.add(nameStore, Bucket{}, int64(lookAgain))
		return
	}
	s.explain(a, found)
}

// levelsShared replaces the levels of the token's buckets by those in the store.
func (l *RateLimiter) levelsShared(v *Levels) {
	ctx, cancel := bounded()
	defer cancel()
	s, err := l.store.Peek(ctx, l.ask(Call{}, Try))
	if err != nil {
		v.Tokens, v.Ceiling = 0, 0
		return
	}
	v.Tokens = l.perToken.slots(int64(s.Token))
	if v.HasCeiling {
		v.Ceiling = l.perCeiling.slots(int64(s.Ceiling))
	}
	v.Penalty = max(v.Penalty, s.Closed)
}

// pause waits for d, until changed is closed, or until ctx ends.
func pause(ctx context.Context, d time.Duration, changed <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("wait for a slot: %w", ctx.Err())
	case <-changed:
	case <-timer.C:
	}
	return nil
}
