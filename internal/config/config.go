// Package config reads gateway.yaml: strictly, with every mistake listed at once
// by the key's path, its place in the file and a hint. It fills in the defaults,
// expands ${NAME}, and lays flags and the GATEWAY_* environment over the settings
// of the process. What belongs to a platform, a handler or a registered policy
// stays raw until its owner decodes it with Section.Decode.
package config

import (
	"log/slog"
	"reflect"
	"time"
)

// Config is the whole configuration, with every default filled in.
type Config struct {
	// File is the file that was read; empty if there was none.
	File string
	// Warnings are what is odd but no mistake: keys without a value, and unknown
	// keys if the reading was lenient. Section.Decode adds to them.
	Warnings []*KeyError

	Gateway     Gateway             `yaml:"gateway"`
	Bots        map[string]*Bot     `yaml:"bots"`
	Handlers    map[string]*Handler `yaml:"handlers"`
	Delivery    Delivery            `yaml:"delivery"`
	DeadTargets DeadTargets         `yaml:"dead_targets"`
	Store       Store               `yaml:"store"`
	HTTP        HTTP                `yaml:"http"`
	Log         Log                 `yaml:"log"`

	secret map[string]bool // paths of values that were made from a secret's variable
}

// Gateway holds the settings of the process and of what comes in.
type Gateway struct {
	DataDir          Path          `yaml:"data_dir"` // of the control store and the control socket
	RateLimit        RateLimit     `yaml:"rate_limit"`
	InboundRetention time.Duration `yaml:"inbound_retention"` // how long events are kept
	Drain            Drain         `yaml:"drain"`
	Admission        Admission     `yaml:"admission"`
}

// Drain says how a shutdown waits for what is under way.
type Drain struct {
	Timeout time.Duration `yaml:"timeout_seconds"`
}

// Admission bounds the turns that run at once.
type Admission struct {
	MaxConcurrent int `yaml:"max_concurrent" min:"0"` // 0: chosen by the number of CPUs
}

// SlidingWindow is the name of the built-in policy, the default.
const SlidingWindow = "sliding_window"

// RateLimit is the inbound limit per identity. Under a policy of another name
// than SlidingWindow, the keys of the built-in one (MaxRequests, Window, Lockout,
// Algorithm) stay at their defaults here, and the policy's factory decodes its
// own keys, whatever their names, with Decode.
type RateLimit struct {
	Section `yaml:"-"`

	Policy      string        `yaml:"policy"`
	MaxRequests int           `yaml:"max_requests" min:"0"` // 0: off
	Window      time.Duration `yaml:"window_seconds" min:">0"`
	Lockout     time.Duration `yaml:"lockout_seconds"`
	Algorithm   string        `yaml:"algorithm" oneof:"window|sliding_log"`
	Scope       string        `yaml:"scope" oneof:"bot|chat|platform|gateway"`
	OnError     string        `yaml:"on_error" oneof:"deny|allow"`
	Notice      string        `yaml:"notice"` // empty: silence; {retry_after} stands for the wait
}

// Bot is one login on a platform. Its platform decodes the keys that are not here.
type Bot struct {
	Section `yaml:"-"`

	Name     string // its key under bots:
	Platform string `yaml:"platform"`
	Handler  string `yaml:"handler"`
	Limits   Limits `yaml:"limits"`
}

// Limits are a bot's outbound limits. A nil pointer was not set.
type Limits struct {
	Profile           string         `yaml:"profile" oneof:"preset|standard|platform"`
	MessagesPerSecond *float64       `yaml:"messages_per_second" min:">0"`
	BurstSize         *int           `yaml:"burst_size" min:"1"`
	PerChannelDelay   *time.Duration `yaml:"per_channel_delay"`
	Scope             *string        `yaml:"scope"` // bots of one scope share one limiter
}

// Handler answers the turns of the bots that name it. Its kind decodes the keys
// that are not here.
type Handler struct {
	Section `yaml:"-"`

	Name string // its key under handlers:
	Kind string `yaml:"kind"`
}

// Delivery says how messages are tried and how long they are kept.
type Delivery struct {
	MaxAttempts      int           `yaml:"max_attempts" min:"1"`
	DeadLetterMinAge time.Duration `yaml:"dead_letter_min_age"`
	OnUncertain      string        `yaml:"on_uncertain" oneof:"resend|label|hold"`
	SendTimeout      time.Duration `yaml:"send_timeout" min:">0"`
	MaxPending       int           `yaml:"max_pending" min:"1"`
	Retention        time.Duration `yaml:"retention"`
	DeadRetention    time.Duration `yaml:"dead_retention"`
}

// DeadTargets says how long a dead target is believed to be dead.
type DeadTargets struct {
	TTL        time.Duration `yaml:"ttl"`
	ProbeEvery time.Duration `yaml:"probe_every"`
	Max        int           `yaml:"max" min:"1"`
}

// Store names the control store.
type Store struct {
	Driver string `yaml:"driver"`
	Path   Path   `yaml:"path"` // empty: gateway.db in the data folder
}

// HTTP is the control API.
type HTTP struct {
	Listen string `yaml:"listen"` // empty: off
}

// Log is what the process writes to standard error.
type Log struct {
	Level  string `yaml:"level" oneof:"debug|info|warn|error"`
	Format string `yaml:"format" oneof:"auto|text|json"` // auto: text on a terminal
}

// Slog gives the level for log/slog.
func (l Log) Slog() slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return slog.LevelInfo
	}
	return level
}

// Default gives the configuration of an empty file and an empty environment.
func Default() *Config {
	const day = 24 * time.Hour
	return &Config{
		Gateway: Gateway{
			DataDir: "./data",
			RateLimit: RateLimit{
				Policy:    SlidingWindow,
				Window:    time.Minute,
				Algorithm: "window",
				Scope:     "bot",
				OnError:   "deny",
				Notice:    "Too many messages. Please try again in {retry_after}.",
			},
			InboundRetention: 7 * day,
			Drain:            Drain{Timeout: 15 * time.Second},
		},
		Bots:     map[string]*Bot{},
		Handlers: map[string]*Handler{defaultHandler: {Name: defaultHandler, Kind: echoKind}},
		Delivery: Delivery{
			MaxAttempts:      5,
			DeadLetterMinAge: 6 * time.Hour,
			OnUncertain:      "resend",
			SendTimeout:      30 * time.Second,
			MaxPending:       1_000_000,
			Retention:        7 * day,
			DeadRetention:    30 * day,
		},
		DeadTargets: DeadTargets{TTL: 30 * day, ProbeEvery: time.Hour, Max: 10_000},
		Store:       Store{Driver: "sqlite"},
		HTTP:        HTTP{Listen: "127.0.0.1:8080"},
		Log:         Log{Level: "info", Format: "auto"},
	}
}

const (
	defaultHandler = "default"
	echoKind       = "echo"
	defaultProfile = "standard"
)

// RequireBots gives ErrNoBots if there is no bot to serve.
func (c *Config) RequireBots() error {
	if len(c.Bots) == 0 {
		return ErrNoBots
	}
	return nil
}

// decodeNode takes the bot's common keys and keeps its platform's.
func (b *Bot) decodeNode(d *decoder, n *node, path string) {
	b.Handler, b.Limits.Profile = defaultHandler, defaultProfile
	b.take(d, n, path, reflect.ValueOf(b).Elem(), nil)
}

// decodeNode takes the handler's common keys and keeps its kind's.
func (h *Handler) decodeNode(d *decoder, n *node, path string) {
	h.take(d, n, path, reflect.ValueOf(h).Elem(), nil)
}

// decodeNode takes the common keys; those of another policy than the built-in
// one are kept for it.
func (r *RateLimit) decodeNode(d *decoder, n *node, path string) {
	if n.kind == nullNode {
		d.rep.warn(&KeyError{Path: path, Line: n.line, Column: n.column, Msg: "has no value and is left out"})
		return
	}
	v := reflect.ValueOf(r).Elem()
	if policy := n.find("policy"); policy != nil && policy.kind == scalarNode && !policy.broken {
		r.Policy = policy.text
	}
	r.take(d, n, path, v, r.ownsKey)
	if r.Policy != SlidingWindow {
		return
	}
	for _, e := range r.rest {
		d.unknownKey(n, path, e, r.taken, nil)
	}
	r.rest = nil
}

// ownsKey tells whether a key is decoded here under the chosen policy.
func (r *RateLimit) ownsKey(name string) bool {
	switch name {
	case "policy", "scope", "on_error", "notice":
		return true
	}
	return r.Policy == SlidingWindow
}

// take decodes the keys of v, the struct around s, that owns allows (nil: all),
// and keeps the others.
func (s *Section) take(d *decoder, n *node, path string, v reflect.Value, owns func(string) bool) {
	var fields []field
	for _, f := range fieldsOf(v.Type()) {
		if owns == nil || owns(f.name) {
			fields = append(fields, f)
		}
	}
	s.from = d.from
	s.keep(n, path, d.decodeFields(n, path, v, fields), names(fields))
}
