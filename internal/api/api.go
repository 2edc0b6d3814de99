// Package api is the HTTP side of the gateway: messages in, their state out,
// health, and the platforms' webhooks. The control socket serves all of it to
// the owner of the data folder; the TCP address serves what needs no sign-in.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/outbox"
)

// maxBody bounds a request's body, in bytes.
const maxBody = 1 << 20

// deliverer takes messages and tells their story.
type deliverer interface {
	Deliver(ctx context.Context, q delivery.Request) (delivery.Ticket, error)
	Message(ctx context.Context, id outbox.ID) (outbox.Entry, bool, error)
}

// Options are what the API is built on.
type Options struct {
	Messages deliverer
	Resolve  func(target string) (chat.Target, error) // reads a target as a caller writes it
	Health   func(ctx context.Context) Health
	Hooks    map[chat.BotName]http.Handler // platform webhooks, by bot
	Log      *slog.Logger
}

// Health is the answer of /readyz.
type Health struct {
	Ready  bool           `json:"-"`
	Status string         `json:"status"` // ready, draining, or what is wrong
	Bots   map[string]Bot `json:"bots"`
}

// Bot is a bot's part of the answer of /readyz.
type Bot struct {
	Platform   string     `json:"platform"`
	State      string     `json:"state"`
	Error      string     `json:"error,omitempty"`
	Pending    int        `json:"pending"`
	LastEvent  *time.Time `json:"last_event,omitempty"`
	LastAnswer *time.Time `json:"last_answer,omitempty"`
}

type server struct {
	Options
}

// Control is the whole API, for the socket that only the owner of the data
// folder can open.
func Control(o Options) http.Handler {
	s := &server{o}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/messages", s.postMessage)
	mux.HandleFunc("GET /api/messages/{id}", s.getMessage)
	s.health(mux)
	return s.recovered(mux)
}

// Public is what the TCP address serves: health and the platforms' webhooks.
func Public(o Options) http.Handler {
	s := &server{o}
	mux := http.NewServeMux()
	s.health(mux)
	for bot, h := range o.Hooks {
		mux.Handle("/hooks/"+string(bot), h)
	}
	return s.recovered(mux)
}

// recovered answers a panic with 500 instead of a cut connection.
func (s *server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		defer func() {
			if v := recover(); v != nil {
				s.Log.ErrorContext(ctx, "request panicked", "err", v)
				problem(w, http.StatusInternalServerError, "internal", "the request could not be carried out")
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func (s *server) health(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		h := s.Health(r.Context())
		status := http.StatusOK
		if !h.Ready {
			status = http.StatusServiceUnavailable
		}
		respond(w, status, h)
	})
}

func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) //nolint:errchkjson // a client that went away is not our error
}

// problem answers with an error as of RFC 9457; code is what programs test.
func problem(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct { //nolint:errchkjson // as above
		Title  string `json:"title"`
		Status int    `json:"status"`
		Code   string `json:"code"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, code, detail})
}

// requestError is a mistake in the request, told to the client as it is.
type requestError struct {
	code, detail string
}

// Error is what the client reads.
func (e *requestError) Error() string { return e.detail }

// answer gives an error its HTTP status, the code that programs test, and the
// text for the client, who never sees an internal one.
func answer(err error) (status int, code, detail string) {
	wrong, isRequest := errors.AsType[*requestError](err)
	dead, isDead := errors.AsType[*delivery.DeadTargetError](err)
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		return http.StatusRequestEntityTooLarge, "too_large", "the body is larger than 1 MiB"
	case isRequest:
		return http.StatusUnprocessableEntity, wrong.code, wrong.detail
	case errors.Is(err, chat.ErrBadTarget):
		return http.StatusUnprocessableEntity, "bad_target", err.Error()
	case isDead:
		return http.StatusConflict, "dead_target", dead.Error()
	case errors.Is(err, delivery.ErrUnknownBot):
		return http.StatusUnprocessableEntity, "unknown_bot", "the target names no bot of this gateway"
	case errors.Is(err, delivery.ErrEmpty):
		return http.StatusUnprocessableEntity, "empty_text", "the text is empty"
	case errors.Is(err, outbox.ErrKeyReused):
		return http.StatusUnprocessableEntity, "idempotency_key_reused", "this idempotency key belongs to another message"
	case errors.Is(err, outbox.ErrFull):
		return http.StatusInsufficientStorage, "outbox_full", "the outbox holds as many messages as it may; try again when some have left"
	case errors.Is(err, outbox.ErrNoSpace):
		return http.StatusInsufficientStorage, "no_space", "the disk is full; nothing was stored"
	case errors.Is(err, ErrDraining):
		return http.StatusServiceUnavailable, "draining", "the gateway is stopping"
	}
	return http.StatusInternalServerError, "internal", "the request could not be carried out"
}

// IsMistake reports whether an error of a request is the mistake of the one who
// made it, so that the same request can never succeed.
func IsMistake(err error) bool {
	status, _, _ := answer(err)
	return status == http.StatusUnprocessableEntity
}

// fail tells the client of an error, and the log of one that is not his.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, code, detail := answer(err)
	switch status {
	case http.StatusInternalServerError:
		s.Log.ErrorContext(r.Context(), "request failed", "err", err)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "5")
	}
	problem(w, status, code, detail)
}

// ErrDraining refuses new messages while the gateway stops.
var ErrDraining = errors.New("the gateway is stopping")

// decode reads a JSON body strictly: unknown fields and trailing text are
// mistakes.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return err
		}
		return &requestError{"bad_json", "the body is not the JSON that is expected: " + err.Error()}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return &requestError{"bad_json", "there is more than one JSON value in the body"}
	}
	return nil
}
