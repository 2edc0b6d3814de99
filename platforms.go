package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/adapters/telegram"
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/internal/config"
	"github.com/chatgateway/gateway/limiter"
)

// settings are a bot's own part of the configuration, decoded and checked by
// its platform.
type settings interface {
	// login gives the credential that the platform counts calls by.
	login() string
	// build makes the adapter; it does no I/O.
	build(name chat.BotName, l *limiter.RateLimiter, log *slog.Logger) (adapters.Adapter, error)
}

// platforms are all that this program speaks. A new one needs one line here.
func platforms() map[chat.Platform]func(*config.Section) (settings, error) {
	return map[chat.Platform]func(*config.Section) (settings, error){
		chat.Telegram: telegramSettings,
	}
}

type telegramBot struct{ telegram.Config }

func telegramSettings(s *config.Section) (settings, error) {
	var c telegramBot
	if err := s.Decode(&c.Config); err != nil {
		return nil, err
	}
	if err := keyed(s, c.Validate()); err != nil {
		return nil, err
	}
	return &c, nil
}

func (c *telegramBot) login() string { return c.Token.Reveal() }

func (c *telegramBot) build(name chat.BotName, l *limiter.RateLimiter, log *slog.Logger) (adapters.Adapter, error) {
	return telegram.New(name, c.Config, l, telegram.WithLogger(log))
}

// keyed gives each mistake that a platform found its place in the file. A
// platform writes the key in front: "webhook_url: missing".
func keyed(s *config.Section, err error) error {
	if err == nil {
		return nil
	}
	mistakes := []error{err}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		mistakes = many.Unwrap()
	}
	var errs []error
	for _, m := range mistakes {
		if many, ok := m.(interface{ Unwrap() []error }); ok {
			errs = append(errs, keyed(s, errors.Join(many.Unwrap()...)))
			continue
		}
		key, text, _ := strings.Cut(m.Error(), ": ")
		if strings.HasPrefix(text, "missing") && s.Has(key) {
			continue // it is there, with a mistake that is told already
		}
		errs = append(errs, s.Errorf(key, "%s", text))
	}
	return errors.Join(errs...)
}

// limiters builds the limiters, one for each scope: bots with one token share
// one, and so do bots whose configuration names the same scope.
type limiters struct {
	log     *slog.Logger
	byScope map[string]*limiter.RateLimiter
}

func (ls *limiters) forBot(b *config.Bot, login string) (*limiter.RateLimiter, error) {
	sum := sha256.Sum256([]byte(login))
	scope := b.Platform + ":" + hex.EncodeToString(sum[:8])
	if b.Limits.Scope != nil && *b.Limits.Scope != "" {
		scope = *b.Limits.Scope
	}
	if l, ok := ls.byScope[scope]; ok {
		return l, nil
	}
	profile, err := limiter.ParseProfile(b.Limits.Profile)
	if err != nil {
		return nil, b.Errorf("limits", "%v", err)
	}
	l, err := limiter.ForProfile(b.Platform, profile, limiter.Overrides{
		MessagesPerSecond: b.Limits.MessagesPerSecond,
		BurstSize:         b.Limits.BurstSize,
		PerChannelDelay:   b.Limits.PerChannelDelay,
	}, limiter.WithScope(scope), limiter.WithLogger(ls.log))
	if err != nil {
		return nil, b.Errorf("limits", "%v", err)
	}
	ls.byScope[scope] = l
	return l, nil
}

// decodeBot checks what stands under a bot.
func decodeBot(b *config.Bot) (settings, error) {
	decode, ok := platforms()[chat.Platform(b.Platform)]
	if !ok {
		return nil, b.Errorf("platform", "%q is no platform that this program speaks", b.Platform)
	}
	s, err := decode(&b.Section)
	if err != nil {
		return nil, err
	}
	if _, err := (&limiters{byScope: map[string]*limiter.RateLimiter{}}).forBot(b, s.login()); err != nil {
		return nil, fmt.Errorf("bot %s: %w", b.Name, err)
	}
	return s, nil
}
