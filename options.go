package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/handlers"
	"github.com/chatgateway/gateway/inbound"
	"github.com/chatgateway/gateway/internal/config"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/policy"
)

// Config is the content of gateway.yaml with every default filled in.
type Config = config.Config

// The words of a handler, for programs that import this package alone.
type (
	// Turn is an event that is to be answered.
	Turn = inbound.Turn
	// Message is content to be sent.
	Message = chat.Message
	// Handler answers turns.
	Handler = inbound.Handler
	// HandlerFunc lets a function be a handler.
	HandlerFunc = inbound.HandlerFunc
)

// Option changes how a gateway is built.
type Option func(*options)

type options struct {
	log      *slog.Logger
	handlers map[string]inbound.Handler
	standby  bool
	hold     bool
}

// WithStandby lets New wait while another gateway runs on the data folder, and
// take over as soon as that ends, however it ends. Without it New fails.
func WithStandby() Option { return func(o *options) { o.standby = true } }

// WithHold starts every bot on hold: nothing is sent until an operator releases
// it.
func WithHold() Option { return func(o *options) { o.hold = true } }

// WithLogger sets where the gateway logs to. Without it, it is silent.
func WithLogger(log *slog.Logger) Option {
	return func(o *options) { o.log = log }
}

// WithHandler gives the bots whose configuration names this handler a handler
// written in Go, in place of the one that stands under handlers:.
func WithHandler(name string, h Handler) Option {
	return func(o *options) { o.handlers[name] = h }
}

// LoadOptions say where a configuration comes from. The zero value reads
// ./gateway.yaml if it is there, and the environment.
type LoadOptions struct {
	Path    string            // the file; it must exist
	Lenient bool              // an unknown key is a warning
	Flags   map[string]string // settings given on the command line, by their key
}

// LoadConfig reads and checks a whole configuration, the platforms' own keys
// included. The error lists all mistakes, one a line.
func LoadConfig(o LoadOptions) (*Config, error) { return config.Load(o.config()) }

// ParseConfig is LoadConfig for a text in place of a file.
func ParseConfig(text []byte, o LoadOptions) (*Config, error) { return config.Parse(text, o.config()) }

func (o LoadOptions) config() config.Options {
	return config.Options{
		Path: o.Path, Lenient: o.Lenient, Flags: o.Flags,
		Platforms: platformNames(), Kinds: []string{echoKind}, Policies: []string{config.SlidingWindow},
		Check: checkConfig,
	}
}

// echoKind is the handler kind that answers with the message itself.
const echoKind = "echo"

func platformNames() []string {
	var names []string
	for name := range platforms() {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

// checkConfig lets the owners of raw keys check them.
func checkConfig(cfg *Config) error {
	var errs []error
	for _, name := range botNames(cfg) {
		b := cfg.Bots[name]
		if _, known := platforms()[chat.Platform(b.Platform)]; !known {
			continue // that is told already
		}
		if _, err := decodeBot(b); err != nil {
			errs = append(errs, err)
		}
	}
	for _, h := range cfg.Handlers {
		errs = append(errs, h.Decode(&struct{}{})) // echo has no keys of its own
	}
	errs = append(errs, cfg.Gateway.RateLimit.Decode(&struct{}{}))
	if _, err := newPolicy(cfg); err != nil {
		errs = append(errs, cfg.Gateway.RateLimit.Errorf("", "%v", err))
	}
	return errors.Join(errs...)
}

func botNames(cfg *Config) []string {
	names := make([]string, 0, len(cfg.Bots))
	for name := range cfg.Bots {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func newPolicy(cfg *Config) (*policy.SlidingWindowRateLimitPolicy, error) {
	rl := cfg.Gateway.RateLimit
	algorithm, err := policy.ParseAlgorithm(rl.Algorithm)
	if err != nil {
		return nil, err
	}
	return policy.NewSlidingWindowRateLimitPolicy(policy.SlidingWindowConfig{
		MaxRequests: rl.MaxRequests, Window: rl.Window, Lockout: rl.Lockout, Algorithm: algorithm,
	})
}

func pipelineOptions(cfg *Config, log *slog.Logger) (inbound.Options, error) {
	rl := cfg.Gateway.RateLimit
	scope, err := inbound.ParsePolicyScope(rl.Scope)
	if err != nil {
		return inbound.Options{}, fmt.Errorf("gateway.rate_limit.scope: %w", err)
	}
	o := inbound.Options{
		Scope: scope, Notice: rl.Notice,
		MaxConcurrent: maxConcurrent(cfg), MaxAttempts: cfg.Delivery.MaxAttempts, Log: log,
	}
	p, err := newPolicy(cfg)
	if err != nil {
		return inbound.Options{}, fmt.Errorf("gateway.rate_limit: %w", err)
	}
	if !p.Enabled() {
		return o, nil
	}
	if o.Notices, err = policy.NewNotices(max(rl.Window, rl.Lockout)); err != nil {
		return inbound.Options{}, fmt.Errorf("gateway.rate_limit: %w", err)
	}
	onError, err := policy.ParseOnError(rl.OnError)
	if err != nil {
		return inbound.Options{}, fmt.Errorf("gateway.rate_limit.on_error: %w", err)
	}
	if o.Policy, err = policy.NewGuard(p, onError, log); err != nil {
		return inbound.Options{}, fmt.Errorf("gateway.rate_limit: %w", err)
	}
	return o, nil
}

func deliveryRules(d config.Delivery) (outbox.Rules, error) {
	uncertain, err := outbox.ParseOnUncertain(d.OnUncertain)
	if err != nil {
		return outbox.Rules{}, fmt.Errorf("delivery.on_uncertain: %w", err)
	}
	return outbox.Rules{MaxAttempts: d.MaxAttempts, MinAge: d.DeadLetterMinAge, OnUncertain: uncertain}, nil
}

// handler gives the handler that a bot's configuration names.
func (o options) handler(cfg *Config, name string) (inbound.Handler, error) {
	if h, ok := o.handlers[name]; ok {
		return h, nil
	}
	h, ok := cfg.Handlers[name]
	if !ok {
		return nil, fmt.Errorf("handler: %q is not under handlers", name)
	}
	switch h.Kind {
	case echoKind:
		return handlers.Echo{}, nil
	}
	return nil, fmt.Errorf("handlers.%s.kind: %q is none that this program has", name, h.Kind)
}

// ResolveTarget reads a target as people write it: the name of a platform
// stands for its bot where it has only one, and a bot's name wins.
func ResolveTarget(cfg *Config, s string) (chat.Target, error) {
	t, err := chat.ParseTarget(s)
	if err != nil {
		return t, err
	}
	if _, ok := cfg.Bots[string(t.Bot)]; ok {
		return t, nil
	}
	var found []string
	for _, name := range botNames(cfg) {
		if cfg.Bots[name].Platform == string(t.Bot) {
			found = append(found, name)
		}
	}
	switch len(found) {
	case 1:
		t.Bot = chat.BotName(found[0])
		return t, nil
	case 0:
		return t, nil // the router says that there is no such bot
	}
	return t, fmt.Errorf("%w %q: the platform has several bots (%s): name one of them", chat.ErrBadTarget, s, strings.Join(found, ", "))
}
