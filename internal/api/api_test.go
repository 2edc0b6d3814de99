package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/internal/api"
	"github.com/chatgateway/gateway/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// messages is a small router: it remembers what it was given.
type messages struct {
	err error
	got delivery.Request
}

func (m *messages) Deliver(_ context.Context, q delivery.Request) (delivery.Ticket, error) {
	m.got = q
	return delivery.Ticket{ID: 42, Duplicate: q.Key == "known"}, m.err
}

func (m *messages) Message(_ context.Context, id outbox.ID) (outbox.Entry, bool, error) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	return outbox.Entry{
		ID: id, Target: chat.Target{Bot: "support", Chat: "7"}, State: outbox.Waiting, Priority: outbox.Reply, Reason: "429",
		Parts: []chat.Part{{Text: "a"}, {Text: "b"}}, Receipts: []chat.Receipt{"99"}, CreatedAt: at, Due: at.Add(time.Minute),
		Log: []outbox.Attempt{{At: at, Kind: "sent"}, {At: at, Part: 1, Kind: "rate_limited", Code: "429", RetryAfter: 1500 * time.Millisecond}},
	}, id == 42, m.err
}

func options(m *messages) api.Options {
	return api.Options{
		Messages: m, Resolve: chat.ParseTarget, Log: slog.New(slog.DiscardHandler),
		Health: func(context.Context) api.Health { return api.Health{Ready: true, Status: "ready"} },
		Hooks: map[chat.BotName]http.Handler{
			"support": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }),
		},
	}
}

func serve(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPostMessage(t *testing.T) {
	const good = `{"target":"support:7","text":"hi"}`
	tests := []struct {
		name   string
		body   string
		header []string
		err    error
		status int
		code   string
	}{
		{name: "a message", body: good, status: 202},
		{name: "a key that is known", body: good, header: []string{"Idempotency-Key", "known"}, status: 202},
		{name: "a quoted key", body: good, header: []string{"Idempotency-Key", `"known"`}, status: 202},
		{name: "two keys that differ", body: `{"target":"support:7","text":"hi","idempotency_key":"a"}`, header: []string{"Idempotency-Key", "b"}, status: 422, code: "bad_idempotency_key"},
		{name: "two headers", body: good, header: []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}, status: 422, code: "bad_idempotency_key"},
		{name: "an unprintable key", body: `{"target":"support:7","text":"hi","idempotency_key":"ä"}`, status: 422, code: "bad_idempotency_key"},
		{name: "no JSON", body: `hello`, status: 422, code: "bad_json"},
		{name: "an unknown field", body: `{"target":"support:7","txt":"hi"}`, status: 422, code: "bad_json"},
		{name: "two values", body: good + good, status: 422, code: "bad_json"},
		{name: "too large", body: `{"target":"support:7","text":"` + strings.Repeat("x", 1<<20) + `"}`, status: 413, code: "too_large"},
		{name: "no target", body: `{"text":"hi"}`, status: 422, code: "bad_target"},
		{name: "a bad priority", body: `{"target":"support:7","text":"hi","priority":"high"}`, status: 422, code: "bad_priority"},
		{name: "a bad format", body: `{"target":"support:7","text":"hi","format":"html"}`, status: 422, code: "bad_format"},
		{name: "an unknown bot", body: good, err: fmt.Errorf("x: %w", delivery.ErrUnknownBot), status: 422, code: "unknown_bot"},
		{name: "no text", body: good, err: delivery.ErrEmpty, status: 422, code: "empty_text"},
		{name: "a reused key", body: good, err: outbox.ErrKeyReused, status: 422, code: "idempotency_key_reused"},
		{name: "a dead target", body: good, err: fmt.Errorf("x: %w", &delivery.DeadTargetError{Reason: "blocked"}), status: 409, code: "dead_target"},
		{name: "a full outbox", body: good, err: outbox.ErrFull, status: 507, code: "outbox_full"},
		{name: "a full disk", body: good, err: outbox.ErrNoSpace, status: 507, code: "no_space"},
		{name: "a gateway that stops", body: good, err: api.ErrDraining, status: 503, code: "draining"},
		{name: "anything else", body: good, err: errors.New("secret internals"), status: 500, code: "internal"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := serve(api.Control(options(&messages{err: tt.err})), "POST", "/api/messages", tt.body, tt.header...)
			if w.Code != tt.status {
				t.Fatalf("status %d, want %d: %s", w.Code, tt.status, w.Body)
			}
			if strings.Contains(w.Body.String(), "secret") {
				t.Errorf("the client reads %s", w.Body)
			}
			if tt.status != 202 {
				var p struct{ Code string }
				if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Code != tt.code {
					t.Errorf("body %s, want code %s", w.Body, tt.code)
				}
				return
			}
			var a api.Accepted
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || a.ID != "42" || a.Duplicate != (len(tt.header) > 0) {
				t.Errorf("body %s, want id 42", w.Body)
			}
		})
	}
}

func TestPostMessage_handsEverythingOn(t *testing.T) {
	var m messages
	w := serve(api.Control(options(&m)), "POST", "/api/messages", `{"target":"support:-100/7","text":"hi","format":"markdown","priority":"bulk",
		"idempotency_key":"k","reply_to":"5","silent":true,"not_before":"2026-11-30T12:00:00Z","expires_at":"2026-11-30T13:00:00+01:00"}`)
	if w.Code != http.StatusAccepted {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	want := delivery.Request{
		Target: chat.Target{Bot: "support", Chat: "-100", Thread: "7"}, Priority: outbox.Bulk, Key: "k", NotBefore: noon, ExpiresAt: noon,
		Message: chat.Message{Text: "hi", Format: chat.Markdown, ReplyTo: "5", Silent: true},
	}
	if diff := cmp.Diff(want, m.got, cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Errorf("request differs (-want +got):\n%s", diff)
	}
}

func TestGetMessage(t *testing.T) {
	h := api.Control(options(&messages{}))
	w := serve(h, "GET", "/api/messages/42", "")
	want := `{"id":"42","target":"support:7","state":"waiting","reason":"429","priority":"reply","may_be_duplicate":false,` +
		`"parts":[{"state":"sent","receipt":"99"},{"state":"waiting","receipt":""}],` +
		`"attempts":[{"at":"2026-11-30T12:00:00Z","part":0,"kind":"sent"},{"at":"2026-11-30T12:00:00Z","part":1,"kind":"rate_limited","code":"429","retry_after":1.5}],` +
		`"created_at":"2026-11-30T12:00:00Z","due":"2026-11-30T12:01:00Z"}` + "\n"
	if diff := cmp.Diff(want, w.Body.String()); w.Code != http.StatusOK || diff != "" {
		t.Errorf("status %d, body differs (-want +got):\n%s", w.Code, diff)
	}
	for _, path := range []string{"/api/messages/43", "/api/messages/0", "/api/messages/x", "/api/messages/99999999999999999999"} {
		if w := serve(h, "GET", path, ""); w.Code != http.StatusNotFound {
			t.Errorf("GET %s = %d, want 404", path, w.Code)
		}
	}
}

func TestPublic_servesHealthAndHooksOnly(t *testing.T) {
	o := options(&messages{})
	h := api.Public(o)
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/hooks/support": http.StatusTeapot, "/hooks/other": 404, "/api/messages/42": 404, "/": 404,
	} {
		if w := serve(h, "GET", path, ""); w.Code != want {
			t.Errorf("GET %s = %d, want %d", path, w.Code, want)
		}
	}
	o.Health = func(context.Context) api.Health { return api.Health{Status: "draining"} }
	if w := serve(api.Public(o), "GET", "/readyz", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("GET /readyz = %d, want 503", w.Code)
	}
	o.Health = func(context.Context) api.Health { panic("no health") }
	if w := serve(api.Public(o), "GET", "/readyz", ""); w.Code != http.StatusInternalServerError {
		t.Errorf("GET /readyz with a panic = %d, want 500", w.Code)
	}
}

func TestListenSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, api.SocketName)
	dead, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if u, ok := dead.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // as a killed process leaves it
	}
	dead.Close()

	ln, err := api.ListenSocket(t.Context(), dir)
	if err != nil {
		t.Fatalf("ListenSocket() over a dead one = %v", err)
	}
	if _, err := api.ListenSocket(t.Context(), dir); !errors.Is(err, api.ErrInUse) {
		t.Errorf("ListenSocket() while one listens = %v, want ErrInUse", err)
	}
	srv := api.Server(t.Context(), api.Control(options(&messages{})), slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	client, ok := api.Client(t.Context(), dir)
	if !ok {
		t.Fatal("Client() finds no gateway")
	}
	resp, err := client.Get("http://gateway/healthz")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	client.CloseIdleConnections()
	if string(body) != "{\"status\":\"ok\"}\n" {
		t.Errorf("healthz = %s", body)
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve() = %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	if _, ok := api.Client(t.Context(), dir); ok {
		t.Error("Client() finds a gateway that has ended")
	}
}
