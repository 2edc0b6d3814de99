package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
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
		err := probe(ctx, cfg.Bots[name])
		if err != nil {
			r.Error = err.Error()
		}
		if err != nil && chat.KindOf(err) == chat.Unauthorized {
			r.Error = "the platform refuses the login, check the token: " + r.Error
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
// start. It refuses what a running gateway would refuse.
func Enqueue(ctx context.Context, cfg *Config, m api.NewMessage) (a api.Accepted, err error) {
	if err := cfg.RequireBots(); err != nil {
		return a, err
	}
	q, err := api.Request(m, func(s string) (chat.Target, error) { return ResolveTarget(cfg, s) })
	if err != nil {
		return a, err
	}
	bot, ok := cfg.Bots[string(q.Target.Bot)]
	if !ok {
		return a, fmt.Errorf("%w: %s", delivery.ErrUnknownBot, q.Target.Bot)
	}
	adapter, err := buildAlone(bot, &limiters{byScope: map[string]*limiter.RateLimiter{}})
	if err != nil {
		return a, err
	}
	if err := os.MkdirAll(string(cfg.Gateway.DataDir), 0o700); err != nil {
		return a, fmt.Errorf("make the data folder: %w", err)
	}
	lock, err := lockFolder(string(cfg.Gateway.DataDir))
	if errors.Is(err, api.ErrInUse) {
		return a, errors.New("a gateway is running on this data folder, but its control socket does not answer: restart it")
	}
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	store, err := sqlite.Open(ctx, StorePath(cfg))
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	router := delivery.New(store, delivery.Options{MaxPending: cfg.Delivery.MaxPending, ProbeEvery: cfg.DeadTargets.ProbeEvery})
	if err := router.Add(adapter, chat.Platform(bot.Platform)); err != nil {
		return a, err
	}
	ticket, err := router.Deliver(ctx, q)
	if err != nil {
		return a, err
	}
	return api.Accepted{ID: ticket.ID.String(), Duplicate: ticket.Duplicate}, nil
}
