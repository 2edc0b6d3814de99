package limiter

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Reserve waits until it has taken a slot for c, or until ctx ends. It asks
// again after each wait, since a penalty may have come. Who came first goes
// first, unless its own channel or method refuses it: then the others go on
// without it. ErrCost is returned at once if the call can never be paid for.
func (l *RateLimiter) Reserve(ctx context.Context, c Call) (Reservation, error) {
	told := false
	waits := func(d time.Duration) {
		if !told {
			l.log.DebugContext(ctx, "rate limit: waiting", "channel", l.shown(c.Channel), "wait", d)
		}
		told = true
	}
	reserve := l.reserveOwn
	if l.store != nil {
		reserve = l.reserveShared
	}
	for {
		if err := l.enter(ctx, c); err != nil {
			return Reservation{}, err
		}
		changed := l.Changed()
		r, retry, err := reserve(ctx, c, waits)
		l.leave()
		if err != nil || retry == 0 {
			return r, err
		}
		waits(retry)
		if err := pause(ctx, retry, changed); err != nil {
			return Reservation{}, err
		}
	}
}

// enter waits until the caller is first in the line of those that wait for the
// token's bucket. Channels of Go serve their senders in the order in which they came.
func (l *RateLimiter) enter(ctx context.Context, c Call) error {
	if !l.affordable(c) {
		return fmt.Errorf("reserve %d slots: %w", c.cost(), ErrCost)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("wait for a slot: %w", err)
	}
	select {
	case l.line <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a slot: %w", ctx.Err())
	}
}

// leave lets the next one in line.
func (l *RateLimiter) leave() { <-l.line }

// reserveOwn takes a slot for c in this process, as reserveShared does in a store.
func (l *RateLimiter) reserveOwn(ctx context.Context, c Call, waits func(time.Duration)) (r Reservation, retry time.Duration, err error) {
	for {
		changed := l.Changed()
		now := clock()
		r, next, ok := l.TryReserve(now, c)
		if ok {
			return r, 0, nil
		}
		wait := next.Sub(now)
		if r.Blocked() != (Bucket{}) {
			return Reservation{}, wait, nil
		}
		waits(wait)
		if err := pause(ctx, wait, changed); err != nil {
			return Reservation{}, 0, err
		}
	}
}

// Wait waits until it has taken one slot for a call to the channel, or until ctx ends.
func (l *RateLimiter) Wait(ctx context.Context, channel string) error {
	_, err := l.Reserve(ctx, Call{Channel: channel})
	return err
}

// affordable is false if no full bucket could pay the call.
func (l *RateLimiter) affordable(c Call) bool {
	for _, n := range []*numbers{&l.perToken, &l.perCeiling, l.ruleOf(c.Channel)} {
		if n.on() && n.wait(0, c.cost()) == never {
			return false
		}
	}
	return true
}

// ruleOf returns the numbers of the platform's rule for the channel.
func (l *RateLimiter) ruleOf(channel string) *numbers {
	switch {
	case channel == "":
		return &numbers{}
	case l.group(channel) == 1:
		return &l.perGroup
	}
	return &l.perChat
}

// shown returns the channel as it may appear in a log.
func (l *RateLimiter) shown(channel string) string {
	const visible = 4
	if !l.mask || channel == "" {
		return channel
	}
	return strings.Repeat("*", max(len(channel)-visible, visible)) + channel[max(len(channel)-visible, 0):]
}

// Penalise is PenaliseAt with the time read by the limiter. It never fails in
// process, and imposes the penalty even if ctx has ended; with a store that
// fails, the error is returned and this process alone obeys.
func (l *RateLimiter) Penalise(ctx context.Context, b Bucket, d time.Duration) error {
	if l.store != nil {
		return l.penaliseShared(ctx, clock(), b, d)
	}
	l.penaliseOwn(clock(), b, d)
	return nil
}

// Reset fills the token's bucket, forgets all channels and ends all penalties.
// Callers that wait ask again at once, in other processes within a second. It
// never fails in process.
func (l *RateLimiter) Reset(ctx context.Context) error {
	if l.store != nil {
		return l.resetShared(ctx)
	}
	l.reset()
	return nil
}
