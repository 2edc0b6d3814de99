package telegram

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
)

const (
	secretHeader   = "X-Telegram-Bot-Api-Secret-Token" //nolint:gosec // a header's name
	maxUpdate      = 1 << 20                           // bytes of one pushed update
	maxConnections = "40"                              // Telegram's default (Bot API, setWebhook; read 2026-11-30)
)

// holdWebhook registers the webhook and waits for ctx. It stays registered, so
// that Telegram keeps updates for the next start.
func (a *Adapter) holdWebhook(ctx context.Context) error {
	params := tgbotapi.Params{
		"url":             a.cfg.WebhookURL,
		"secret_token":    a.cfg.WebhookSecret.Reveal(),
		"allowed_updates": allowedUpdates,
		"max_connections": maxConnections,
	}
	retry := backoff{low: time.Second, high: 5 * time.Minute}
	for {
		_, err := a.call(ctx, "setWebhook", params, plainCall)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // a stop is no failure
		}
		if err == nil {
			a.connected(time.Now())
			<-ctx.Done()
			return nil
		}
		a.disconnected(err)
		failure, _ := errors.AsType[*chat.SendError](err)
		if failure != nil && failure.Kind == chat.Unauthorized {
			return err
		}
		hold, level := retry.next(), slog.LevelWarn
		if failure != nil {
			hold = max(hold, failure.RetryAfter)
		}
		if failure != nil && failure.Kind == chat.Rejected {
			level = slog.LevelError // the address has to be changed, or its DNS entry
		}
		a.log.Log(ctx, level, "webhook not set, trying again", "err", err, "wait", hold)
		if !pause(ctx, hold) {
			return nil
		}
	}
}

// Webhook takes the updates that Telegram posts. Whoever doesn't know the
// configured secret gets 401 before the body is read; without a configured
// secret that is everybody.
func (a *Adapter) Webhook(sink adapters.Sink) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		if !a.genuine(r.Header.Get(secretHeader)) {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxUpdate))
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			http.Error(w, "update too large", http.StatusRequestEntityTooLarge)
			return
		}
		if err != nil || !json.Valid(raw) {
			http.Error(w, "not JSON", http.StatusBadRequest)
			return
		}
		a.pushed(w, r, sink, raw)
	})
}

func (a *Adapter) genuine(secret string) bool {
	want := a.cfg.WebhookSecret.Reveal()
	return want != "" && subtle.ConstantTimeCompare([]byte(secret), []byte(want)) == 1
}

func (a *Adapter) pushed(w http.ResponseWriter, r *http.Request, sink adapters.Sink, raw json.RawMessage) {
	now := time.Now()
	in := convert(a.bot, pushedID(raw), raw, now)
	a.heard(now)
	if err := sink(r.Context(), in.event); err != nil {
		a.log.WarnContext(r.Context(), "update not stored, Telegram will send it again", "err", a.redact.err(err))
		http.Error(w, "not stored", http.StatusServiceUnavailable)
		return
	}
	if in.callback == "" {
		w.WriteHeader(http.StatusOK)
		return
	}
	// An answer may carry one call, which saves a request of our own. Telegram
	// counts it all the same.
	if a.limiter != nil {
		a.limiter.Take(now, limiter.Call{Method: answerMethod})
	}
	reply, err := json.Marshal(map[string]string{"method": answerMethod, "callback_query_id": in.callback})
	if err != nil {
		w.WriteHeader(http.StatusOK)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(reply) // if the connection is gone, the update comes again and is known
}

// pushedID is the update's id, or a digest where it has none, so that a repeat
// is still recognised.
func pushedID(raw json.RawMessage) string {
	if id, ok := updateID(raw); ok {
		return strconv.FormatInt(id, 10)
	}
	sum := sha256.Sum256(raw)
	return "sha256:" + hex.EncodeToString(sum[:16])
}
