package limiter

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Reserve waits until it has taken a slot for c, or until ctx ends. It asks
// again after each wait, since a penalty may have come. ErrCost is returned at
// once if the call can never be paid for.
func (l *RateLimiter) Reserve(ctx context.Context, c Call) (Reservation, error) {
	for asked := 0; ; asked++ {
		if err := ctx.Err(); err != nil {
			return Reservation{}, fmt.Errorf("wait for a slot: %w", err)
		}
		changed := l.Changed()
		now := clock()
		r, next, ok := l.TryReserve(now, c)
		if ok {
			return r, nil
		}
		if !l.affordable(c) {
			return Reservation{}, fmt.Errorf("reserve %d slots: %w", c.cost(), ErrCost)
		}
		wait := next.Sub(now)
		if asked == 0 {
			l.log.DebugContext(ctx, "rate limit: waiting", "channel", l.shown(c.Channel), "wait", wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
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
// process, and imposes the penalty even if ctx has ended.
func (l *RateLimiter) Penalise(_ context.Context, b Bucket, d time.Duration) error {
	l.PenaliseAt(clock(), b, d)
	return nil
}

// Reset fills the token's bucket, forgets all channels and ends all penalties.
// Callers that wait ask again at once. It never fails in process.
func (l *RateLimiter) Reset(_ context.Context) error {
	l.reset()
	return nil
}
