package gateway

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/internal/api"
	"github.com/chatgateway/gateway/internal/config"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/store/sqlite"
)

// Path is a file or folder as the configuration holds it.
type Path = config.Path

// BotCheck is the result of asking a platform whether it knows a bot.
type BotCheck struct {
	Bot      string `json:"bot"`
	Platform string `json:"platform"`
	Error    string `json:"error,omitempty"` // empty: it does
}

// CheckBots asks each bot's platform, one after the other, up to 15 s each.
func CheckBots(ctx context.Context, cfg *Config) []BotCheck {
	var results []BotCheck
	for _, name := range botNames(cfg) {
		r := BotCheck{Bot: name, Platform: cfg.Bots[name].Platform}
		if err := probe(ctx, cfg.Bots[name]); err != nil {
			r.Error = err.Error()
		}
		results = append(results, r)
	}
	return results
}

func probe(ctx context.Context, b *config.Bot) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	a, err := buildAlone(b, &limiters{byScope: map[string]*limiter.RateLimiter{}})
	if err != nil {
		return err
	}
	p, ok := a.(adapters.Prober)
	if !ok {
		return nil
	}
	return p.Probe(ctx)
}

func buildAlone(b *config.Bot, shared *limiters) (adapters.Adapter, error) {
	s, err := decodeBot(b)
	if err != nil {
		return nil, err
	}
	l, err := shared.forBot(b, s.login())
	if err != nil {
		return nil, err
	}
	return s.build(chat.BotName(b.Name), l, slog.New(slog.DiscardHandler))
}

// Enqueue stores a message while no gateway runs: it is sent after the next
// start.
func Enqueue(ctx context.Context, cfg *Config, m api.NewMessage) (a api.Accepted, err error) {
	store, err := sqlite.Open(ctx, StorePath(cfg))
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	router := delivery.New(store, delivery.Options{})
	shared := limiters{byScope: map[string]*limiter.RateLimiter{}}
	for _, name := range botNames(cfg) {
		adapter, err := buildAlone(cfg.Bots[name], &shared)
		if err != nil {
			return a, err
		}
		if err := router.Add(adapter, chat.Platform(cfg.Bots[name].Platform)); err != nil {
			return a, err
		}
	}
	q, err := api.Request(m, func(s string) (chat.Target, error) { return ResolveTarget(cfg, s) })
	if err != nil {
		return a, err
	}
	ticket, err := router.Deliver(ctx, q)
	if err != nil {
		return a, err
	}
	return api.Accepted{ID: ticket.ID.String(), Duplicate: ticket.Duplicate}, nil
}
