package limiter_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/limiter"
)

func TestNew_namesTheFieldOfABadNumber(t *testing.T) {
	good := limiter.DefaultConfig()
	tests := []struct {
		name  string
		edit  func(*limiter.Config)
		field string
	}{
		{"rate zero", func(c *limiter.Config) { c.MessagesPerSecond = 0 }, "MessagesPerSecond"},
		{"rate negative", func(c *limiter.Config) { c.MessagesPerSecond = -1 }, "MessagesPerSecond"},
		{"rate not a number", func(c *limiter.Config) { c.MessagesPerSecond = math.NaN() }, "MessagesPerSecond"},
		{"rate infinite", func(c *limiter.Config) { c.MessagesPerSecond = math.Inf(1) }, "MessagesPerSecond"},
		{"rate absurdly low", func(c *limiter.Config) { c.MessagesPerSecond = 1e-300 }, "MessagesPerSecond"},
		{"rate absurdly high", func(c *limiter.Config) { c.MessagesPerSecond = 1e10 }, "MessagesPerSecond"},
		{"burst zero", func(c *limiter.Config) { c.BurstSize = 0 }, "BurstSize"},
		{"burst negative", func(c *limiter.Config) { c.BurstSize = -5 }, "BurstSize"},
		{"burst absurd", func(c *limiter.Config) { c.BurstSize = math.MaxInt }, "BurstSize"},
		{"bucket takes years to fill", func(c *limiter.Config) { c.MessagesPerSecond, c.BurstSize = 0.001, 1_000_000 }, "BurstSize"},
		{"delay negative", func(c *limiter.Config) { c.PerChannelDelay = -1 }, "PerChannelDelay"},
		{"delay absurd", func(c *limiter.Config) { c.PerChannelDelay = math.MaxInt64 }, "PerChannelDelay"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := good
			tt.edit(&cfg)
			_, err := limiter.New(cfg)
			if err == nil || !strings.Contains(err.Error(), tt.field+":") {
				t.Errorf("New(%+v) error = %v, want one that names %s", cfg, err, tt.field)
			}
		})
	}
	_, err := limiter.New(limiter.Config{PerChannelDelay: -1})
	for _, field := range []string{"MessagesPerSecond", "BurstSize", "PerChannelDelay"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("New() error = %v, want all mistakes, also %s", err, field)
		}
	}
	if _, err := limiter.New(good, limiter.WithChannelRules(limiter.ChannelRules{Group: limiter.Rule{Every: -1, Burst: 1}})); err == nil {
		t.Error("New() with a negative rule = nil, want an error")
	}
}

func TestNew_acceptsTheExtremes(t *testing.T) {
	for _, cfg := range []limiter.Config{
		{MessagesPerSecond: 1e9, BurstSize: 1_000_000},
		{MessagesPerSecond: 1.0 / 86400, BurstSize: 1, PerChannelDelay: 24 * time.Hour},
		{MessagesPerSecond: 0.1, BurstSize: 1},
		{MessagesPerSecond: 10, BurstSize: 1},
	} {
		l, err := limiter.New(cfg)
		if err != nil {
			t.Errorf("New(%+v) = %v", cfg, err)
			continue
		}
		if cfg.BurstSize > 1 {
			mustReserve(t, l, start, limiter.Call{Cost: cfg.BurstSize})
			continue
		}
		every := time.Duration(math.Ceil(1e9 / cfg.MessagesPerSecond))
		mustReserve(t, l, start, limiter.Call{})
		refused(t, l, start.Add(every-1), limiter.Call{})
		mustReserve(t, l, start.Add(every), limiter.Call{})
	}
}

func TestPreset_hasTheDocumentedNumbers(t *testing.T) {
	for name, want := range map[string]limiter.Config{
		"telegram": {MessagesPerSecond: 25, BurstSize: 30, PerChannelDelay: 50 * time.Millisecond},
		"discord":  {MessagesPerSecond: 1, BurstSize: 5, PerChannelDelay: time.Second},
		"slack":    {MessagesPerSecond: 1, BurstSize: 1, PerChannelDelay: time.Second},
		"whatsapp": {MessagesPerSecond: 50, BurstSize: 80, PerChannelDelay: 100 * time.Millisecond},
		"matrix":   limiter.DefaultConfig(),
		"":         {MessagesPerSecond: 1, BurstSize: 5, PerChannelDelay: time.Second},
	} {
		l := limiter.ForPlatform(name)
		if diff := cmp.Diff(want, l.Config()); diff != "" {
			t.Errorf("ForPlatform(%q).Config() (-want +got):\n%s", name, diff)
		}
		if l.Scope() != name {
			t.Errorf("ForPlatform(%q).Scope() = %q", name, l.Scope())
		}
	}
	l := newLimiter(t, 1, 1, 0)
	if l.Scope() != "default" {
		t.Errorf("New().Scope() = %q, want default", l.Scope())
	}
	if l := limiter.ForPlatform("slack", limiter.WithScope("slack-9f")); l.Scope() != "slack-9f" {
		t.Errorf("Scope() = %q, want the option's", l.Scope())
	}
}

func TestProfile_parsesItsOwnName(t *testing.T) {
	for _, p := range []limiter.Profile{limiter.ProfilePreset, limiter.ProfileStandard, limiter.ProfilePlatform} {
		if got, err := limiter.ParseProfile(p.String()); err != nil || got != p {
			t.Errorf("ParseProfile(%q) = %v, %v", p.String(), got, err)
		}
	}
	if _, err := limiter.ParseProfile("fast"); err == nil {
		t.Error("ParseProfile(fast) = nil error")
	}
	if _, err := limiter.ForProfile("slack", 0, limiter.Overrides{}); err == nil {
		t.Error("ForProfile with the zero profile = nil error")
	}
}

// TestForProfile_keepsEachPlatformsWindow sends as fast as the limiter lets it
// and looks at every window of the length that the platform counts over.
func TestForProfile_keepsEachPlatformsWindow(t *testing.T) {
	tests := []struct {
		name     string
		platform string
		profile  limiter.Profile
		channel  string
		many     bool // a new channel for each call
		window   time.Duration
		most     int
	}{
		{"telegram group, 20 a minute", "telegram", limiter.ProfileStandard, "-100123", false, time.Minute, 20},
		{"telegram channel by name", "telegram", limiter.ProfileStandard, "@news", false, time.Minute, 20},
		{"telegram group under platform", "telegram", limiter.ProfilePlatform, "-100123", false, time.Minute, 20},
		{"telegram private chat", "telegram", limiter.ProfileStandard, "4711", false, 10 * time.Second, 11},
		{"telegram over all chats", "telegram", limiter.ProfilePlatform, "c", true, 10 * time.Second, 300},
		{"discord channel", "discord", limiter.ProfilePlatform, "c", false, 5250 * time.Millisecond, 5},
		{"discord channel, standard", "discord", limiter.ProfileStandard, "c", false, 5250 * time.Millisecond, 5},
		{"discord token", "discord", limiter.ProfilePlatform, "c", true, time.Second, 50},
		{"slack channel", "slack", limiter.ProfilePlatform, "C1", false, 20 * time.Second, 20},
		{"slack workspace", "slack", limiter.ProfilePlatform, "C", true, time.Minute, 300},
		{"whatsapp pair", "whatsapp", limiter.ProfilePlatform, "4915112345", false, 6 * time.Second, 45},
		{"whatsapp number", "whatsapp", limiter.ProfileStandard, "4915", true, time.Second, 80},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := forProfile(t, tt.platform, tt.profile)
			var sent []time.Time
			for now, n := start, 0; now.Before(start.Add(3 * tt.window)); n++ {
				c := limiter.Call{Channel: tt.channel}
				if tt.many {
					c.Channel += string(rune('a'+n%26)) + string(rune('a'+n/26%26))
				}
				_, next, ok := l.TryReserve(now, c)
				if ok {
					sent = append(sent, now)
					continue
				}
				now = next
			}
			first, worst := 0, 0
			for i := range sent {
				for sent[i].Sub(sent[first]) >= tt.window {
					first++
				}
				worst = max(worst, i-first+1)
			}
			if worst > tt.most || worst < tt.most/2 {
				t.Errorf("%d calls in one window of %v, want at most %d and not far fewer", worst, tt.window, tt.most)
			}
		})
	}
}

func TestForProfile_overrides(t *testing.T) {
	delay, rate, burst := 3*time.Second, 100.0, 7
	l, err := limiter.ForProfile("telegram", limiter.ProfileStandard,
		limiter.Overrides{PerChannelDelay: &delay, MessagesPerSecond: &rate, BurstSize: &burst}, limiter.WithScope("telegram-1"))
	if err != nil {
		t.Fatal(err)
	}
	want := limiter.Config{MessagesPerSecond: 100, BurstSize: 7, PerChannelDelay: delay}
	if diff := cmp.Diff(want, l.Config()); diff != "" {
		t.Errorf("Config() (-want +got):\n%s", diff)
	}
	c := limiter.Call{Channel: "-1001"} // a group: its rule would allow one every 4 s after 5
	for i := range 20 {
		mustReserve(t, l, at(3*float64(i)), c)
	}
	bad := 0.0
	if _, err := limiter.ForProfile("telegram", limiter.ProfileStandard, limiter.Overrides{MessagesPerSecond: &bad}); err == nil {
		t.Error("an explicit rate of 0 is accepted")
	}
}
