package limiter

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// The widest numbers that are still sensible. They also keep every sum of
// nanoseconds far away from the end of an int64.
const (
	minRate  = 1.0 / (24 * 60 * 60) // one slot a day
	maxRate  = 1e9                  // one slot a nanosecond
	maxBurst = 1_000_000
	maxDelay = 24 * time.Hour
	maxDepth = 30 * 24 * time.Hour // the time that an empty bucket needs to fill
)

// Config holds the three numbers of a limiter that users set.
type Config struct {
	// MessagesPerSecond is the rate at which the token's bucket fills.
	MessagesPerSecond float64
	// BurstSize is how many slots a full bucket holds.
	BurstSize int
	// PerChannelDelay is the shortest time between two calls to one channel;
	// zero means that there is none.
	PerChannelDelay time.Duration
}

// DefaultConfig returns the numbers for a platform that nothing is known of:
// one message a second, a burst of five, one second between two calls to one channel.
func DefaultConfig() Config {
	return Config{MessagesPerSecond: 1, BurstSize: 5, PerChannelDelay: time.Second}
}

// validate lists every mistake in c; each message begins with the field's name.
func (c Config) validate() error {
	var errs []error
	rate := c.MessagesPerSecond
	rateOK := rate >= minRate && rate <= maxRate // false for NaN as well
	if !rateOK {
		errs = append(errs, fmt.Errorf("MessagesPerSecond: %v is not between one a day and %g", rate, maxRate))
	}
	burstOK := c.BurstSize >= 1 && c.BurstSize <= maxBurst
	if !burstOK {
		errs = append(errs, fmt.Errorf("BurstSize: %d is not between 1 and %d", c.BurstSize, maxBurst))
	}
	if rateOK && burstOK && float64(c.BurstSize)/rate > maxDepth.Seconds() {
		errs = append(errs, fmt.Errorf("BurstSize: %d slots at %v a second take longer than %v to fill", c.BurstSize, rate, maxDepth))
	}
	if c.PerChannelDelay < 0 || c.PerChannelDelay > maxDelay {
		errs = append(errs, fmt.Errorf("PerChannelDelay: %v is not between 0 and %v", c.PerChannelDelay, maxDelay))
	}
	return errors.Join(errs...)
}

// Rule is one limit that a platform itself sets: a slot every Every, and at
// most Burst of them at once. The zero value is no limit. In no interval does
// a Rule let through more than Burst + interval / Every.
type Rule struct {
	Every time.Duration
	Burst int
}

// PerSecond returns the Rule of rate slots a second with the given burst.
func PerSecond(rate float64, burst int) Rule {
	return Rule{Every: time.Duration(math.Ceil(float64(time.Second) / rate)), Burst: burst}
}

func (r Rule) validate(field string) error {
	if r == (Rule{}) {
		return nil
	}
	if r.Every <= 0 || r.Every > maxDelay {
		return fmt.Errorf("%s.Every: %v is not between 1ns and %v", field, r.Every, maxDelay)
	}
	if r.Burst < 1 || r.Burst > maxBurst || time.Duration(r.Burst) > maxDepth/r.Every {
		return fmt.Errorf("%s.Burst: %d is not between 1 and %d, or takes longer than %v to fill", field, r.Burst, maxBurst, maxDepth)
	}
	return nil
}

// ChannelRules are the rules that a platform has for each of its chats, in
// addition to PerChannelDelay.
type ChannelRules struct {
	// Chat is the rule of a private chat, and of every chat if IsGroup is nil.
	Chat Rule
	// Group is the rule of a chat that IsGroup is true for.
	Group Rule
	// IsGroup tells groups from private chats by their id. It is called with
	// the limiter's lock held and must return at once.
	IsGroup func(channel string) bool
}

func (r ChannelRules) validate() error {
	return errors.Join(r.Chat.validate("ChannelRules.Chat"), r.Group.validate("ChannelRules.Group"))
}
