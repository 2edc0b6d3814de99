package limiter

import (
	"fmt"
	"strings"
	"time"
)

// Platforms that have numbers of their own.
const (
	telegram = "telegram"
	discord  = "discord"
	slack    = "slack"
	whatsapp = "whatsapp"
)

// Profile says which of a platform's numbers a limiter follows.
type Profile int

// The profiles. The zero value is none of them.
const (
	// ProfilePreset is the preset's three numbers and nothing else.
	ProfilePreset Profile = iota + 1
	// ProfileStandard is the preset and, in addition, the rules that the
	// platform has for its chats and for the whole token.
	ProfileStandard
	// ProfilePlatform is the platform's own rules alone, for a bot in many channels.
	ProfilePlatform
)

// String returns the profile's name in the configuration.
func (p Profile) String() string {
	switch p {
	case ProfilePreset:
		return "preset"
	case ProfileStandard:
		return "standard"
	case ProfilePlatform:
		return "platform"
	}
	return fmt.Sprintf("Profile(%d)", int(p))
}

// ParseProfile returns the profile of that name.
func ParseProfile(name string) (Profile, error) {
	for p := ProfilePreset; p <= ProfilePlatform; p++ {
		if p.String() == name {
			return p, nil
		}
	}
	return 0, fmt.Errorf("profile %q is not one of preset, standard, platform", name)
}

// Preset returns the three numbers that suit the platform, and those of
// DefaultConfig for a name that it doesn't know.
func Preset(platform string) Config {
	switch platform {
	case telegram:
		// About 30 messages a second over all chats (Bots FAQ, "Broadcasting to
		// users"; read 2026-11-30), with a sixth kept in hand.
		return Config{MessagesPerSecond: 25, BurstSize: 30, PerChannelDelay: 50 * time.Millisecond}
	case discord:
		// Far below the 50 requests a second of the documentation ("Rate
		// Limits"), since 5 messages in 5 s per channel is what is seen.
		return Config{MessagesPerSecond: 1, BurstSize: 5, PerChannelDelay: time.Second}
	case slack:
		// About one message a second in a channel ("Rate limits", chat.postMessage; read 2026-11-30).
		return Config{MessagesPerSecond: 1, BurstSize: 1, PerChannelDelay: time.Second}
	case whatsapp:
		// 80 messages a second per number, inbound ones included ("Throughput"; read 2026-11-30).
		return Config{MessagesPerSecond: 50, BurstSize: 80, PerChannelDelay: 100 * time.Millisecond}
	}
	return DefaultConfig()
}

// platformRules are what the platform itself counts.
type platformRules struct {
	token    Rule // over all calls of the token
	channels ChannelRules
}

// rulesOf returns the platform's own rules; ok is false if none are known.
func rulesOf(platform string) (r platformRules, ok bool) {
	switch platform {
	case telegram:
		return platformRules{
			// 30 a second over all chats (Bots FAQ; read 2026-11-30), less a tenth.
			token: PerSecond(27, 30),
			channels: ChannelRules{
				// One message a second in one chat, short bursts pass (Bots FAQ; read 2026-11-30).
				Chat: PerSecond(0.9, 2),
				// 20 messages a minute in one group (Bots FAQ; read 2026-11-30): 5 at
				// once and one every 4 s never make more than 20 in any minute.
				Group:   Rule{Every: 4 * time.Second, Burst: 5},
				IsGroup: telegramGroup,
			},
		}, true
	case discord:
		return platformRules{
			// 50 requests a second for a bot ("Rate Limits", global; read
			// 2026-11-30): 45 and a burst of 5 never make more in any second.
			token: PerSecond(45, 5),
			// 5 messages in 5 s per channel (seen in X-RateLimit headers, not
			// promised), with 0.25 s for the network: 2 at once and one every
			// 1.75 s never make more than 5 in any 5.25 s.
			channels: ChannelRules{Chat: Rule{Every: 1750 * time.Millisecond, Burst: 2}},
		}, true
	case slack:
		return platformRules{
			// "Several hundred per minute" per workspace ("Rate limits",
			// chat.postMessage; read 2026-11-30): at most 300 in any minute.
			token: PerSecond(270.0/60, 30),
			// About one message a second in one channel (the same page).
			channels: ChannelRules{Chat: PerSecond(0.95, 1)},
		}, true
	case whatsapp:
		return platformRules{
			// 80 messages a second per number ("Throughput"; read 2026-11-30):
			// 72 and a burst of 8 never make more in any second.
			token: PerSecond(72, 8),
			// One message every 6 s to one user, up to 45 borrowed from the
			// future ("Pair rate limits"; read 2026-11-30).
			channels: ChannelRules{Chat: Rule{Every: 6 * time.Second, Burst: 40}},
		}, true
	}
	return platformRules{}, false
}

// telegramGroup is true for ids of groups (-1001234), and for @names, which
// only public groups and channels have.
func telegramGroup(channel string) bool {
	return strings.HasPrefix(channel, "-") || strings.HasPrefix(channel, "@")
}

// Overrides are the numbers that a user set explicitly. A nil field was not set.
type Overrides struct {
	MessagesPerSecond *float64
	BurstSize         *int
	// PerChannelDelay replaces the profile's rules for chats and groups too.
	PerChannelDelay *time.Duration
}

// ForProfile returns a limiter with the platform's numbers under p, except
// those that o sets. Its scope is the platform's name unless an option names
// another. Mistakes in o are errors that name the field.
func ForProfile(platform string, p Profile, o Overrides, opts ...Option) (*RateLimiter, error) {
	cfg := Preset(platform)
	own := []Option{WithScope(platform), forPlatform(platform)}
	rules, known := rulesOf(platform)
	switch p {
	case ProfilePreset:
	case ProfileStandard:
		own = append(own, WithChannelRules(rules.channels))
		if platform != telegram { // whose bulk limit can be bought off; the preset's rate is below it
			own = append(own, withCeiling(rules.token))
		}
	case ProfilePlatform:
		if known {
			cfg = Config{MessagesPerSecond: float64(time.Second) / float64(rules.token.Every), BurstSize: rules.token.Burst}
			own = append(own, WithChannelRules(rules.channels))
		}
	default:
		return nil, fmt.Errorf("new limiter for %s: unknown profile %v", platform, p)
	}
	if o.MessagesPerSecond != nil {
		cfg.MessagesPerSecond = *o.MessagesPerSecond
	}
	if o.BurstSize != nil {
		cfg.BurstSize = *o.BurstSize
	}
	if o.PerChannelDelay != nil {
		cfg.PerChannelDelay = *o.PerChannelDelay
		own = append(own, WithChannelRules(ChannelRules{}))
	}
	return New(cfg, append(own, opts...)...)
}

// ForPlatform returns a limiter with the platform's preset; a name that is not
// known has the numbers of DefaultConfig. Its scope is the platform's name
// unless an option names another. It panics if an option carries numbers that
// New would refuse.
func ForPlatform(platform string, opts ...Option) *RateLimiter {
	l, err := ForProfile(platform, ProfilePreset, Overrides{}, opts...)
	if err != nil {
		panic(err) // the presets are valid, so an option of the caller's is not
	}
	return l
}
