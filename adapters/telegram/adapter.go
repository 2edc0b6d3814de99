// Package telegram is the adapter for the Telegram Bot API: it sends parts,
// receives updates by long polling or by webhook, and says what each failure
// means.
package telegram

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
)

// maxText is in code points, counted after the markup is parsed away (Bot API,
// sendMessage; read 2026-11-30).
const maxText = 4096

// Adapter is one Telegram bot. It is safe for concurrent use.
type Adapter struct {
	bot      chat.BotName
	cfg      Config
	limiter  *limiter.RateLimiter
	log      *slog.Logger
	redact   redactor
	endpoint string // the library's format: two %s, for the token and the method
	client   *http.Client
	traced   bool // client reports its progress, so that silence means that nothing was sent

	mu     sync.Mutex
	self   Self
	health adapters.Health
}

var (
	_ adapters.Adapter  = (*Adapter)(nil)
	_ adapters.Prober   = (*Adapter)(nil)
	_ adapters.Webhook  = (*Adapter)(nil)
	_ adapters.Reporter = (*Adapter)(nil)
)

// Self is the bot's own account.
type Self struct {
	ID       int64
	Username string // without the @
}

// Option changes how an adapter is built.
type Option func(*Adapter)

// WithLogger sets where the adapter logs to. Without it, it is silent.
func WithLogger(log *slog.Logger) Option {
	return func(a *Adapter) { a.log = log }
}

// WithTransport replaces the adapter's own HTTP transport. A failure is taken
// as uncertain unless the transport reports to net/http/httptrace, as
// *http.Transport does, that it had no connection yet.
func WithTransport(rt http.RoundTripper) Option {
	return func(a *Adapter) {
		_, a.traced = rt.(*http.Transport)
		a.client.Transport = rt
	}
}

// New builds the adapter of one bot. It makes no call; it reads cfg's token
// file unless cfg is validated already. A nil limiter is allowed.
func New(bot chat.BotName, cfg Config, lim *limiter.RateLimiter, opts ...Option) (*Adapter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("telegram bot %s: %w", bot, err)
	}
	base := strings.TrimRight(cfg.APIBase, "/")
	a := &Adapter{
		bot:      bot,
		cfg:      cfg,
		limiter:  lim,
		log:      slog.New(slog.DiscardHandler),
		redact:   newRedactor(cfg.Token, cfg.WebhookSecret),
		endpoint: strings.ReplaceAll(base, "%", "%%") + "/bot%s/%s",
		client:   newClient(),
		traced:   true,
	}
	for _, o := range opts {
		o(a)
	}
	a.log = a.log.With("bot", string(bot))
	return a, nil
}

// Bot is the name under which the configuration knows this bot.
func (a *Adapter) Bot() chat.BotName { return a.bot }

// Limiter is the limiter given to New. The adapter itself draws from it for
// answers to button presses; polling and setting the webhook don't draw.
func (a *Adapter) Limiter() *limiter.RateLimiter { return a.limiter }

// Capabilities is the same for every chat of Telegram.
func (a *Adapter) Capabilities(chat.Target) chat.Capabilities {
	return chat.Capabilities{MaxText: maxText, TextUnit: chat.CodePoints, Threads: true}
}

// Probe asks Telegram who the bot is, and remembers the answer for Self.
func (a *Adapter) Probe(ctx context.Context) error {
	result, err := a.call(ctx, "getMe", nil, plainCall)
	if err != nil {
		return err
	}
	var me tgbotapi.User
	if err := json.Unmarshal(result, &me); err != nil || me.ID == 0 {
		return &chat.SendError{Kind: chat.Uncertain, Err: fmt.Errorf("getMe: %w", errUnreadable)}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.self = Self{ID: me.ID, Username: me.UserName}
	return nil
}

// Self is the bot's own account, zero before the first successful Probe.
func (a *Adapter) Self() Self {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.self
}

// Health is the state of the receiving side.
func (a *Adapter) Health() adapters.Health {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.health
}

// Close gives up idle connections. The adapter stays usable.
func (a *Adapter) Close() error {
	a.client.CloseIdleConnections()
	return nil
}

// Run receives updates until ctx ends.
func (a *Adapter) Run(ctx context.Context, sink adapters.Sink) error {
	defer a.client.CloseIdleConnections()
	if a.cfg.Mode == Webhook {
		return a.holdWebhook(ctx)
	}
	return a.poll(ctx, sink)
}

func (a *Adapter) connected(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.health.Connected, a.health.LastAnswer, a.health.Err = true, now, ""
}

func (a *Adapter) disconnected(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.health.Connected, a.health.Err = false, err.Error()
}

func (a *Adapter) heard(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.health.LastEvent = now
}
