package adaptertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
)

// Feed plays the side of a platform from which an adapter fetches events. It
// serves all calls that Run makes.
type Feed interface {
	http.Handler

	// Push hands out a written message whose event has this id, a positive
	// decimal number, again and again until it is acknowledged, as the
	// platform does.
	Push(id string)

	// Acknowledged gives the ids that the adapter acknowledged, in order. It
	// has room for all of a test.
	Acknowledged() <-chan string
}

// Push describes the requests by which a platform delivers events.
type Push struct {
	// Request makes a genuine request with any body.
	Request func(body []byte) *http.Request
	// Body is a written message whose event has this id, a positive decimal
	// number.
	Body func(id string) []byte
	// Forge takes from a genuine request what proves its origin.
	Forge func(r *http.Request)
}

var errSink = errors.New("disk full")

// running is an adapter's Run in its own goroutine.
type running struct {
	cancel context.CancelFunc
	result chan error
}

func start(t *testing.T, a adapters.Adapter, sink adapters.Sink) running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := running{cancel, make(chan error, 1)}
	go func() { r.result <- a.Run(ctx, sink) }()
	return r
}

func (r running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	select {
	case err := <-r.result:
		if err != nil {
			t.Errorf("Run() = %v after its context ended, want nil", err)
		}
	case <-time.After(soon):
		t.Fatalf("Run() still runs %v after its context ended", soon)
	}
}

func next[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(2 * soon):
		t.Fatalf("no %s within %v", what, 2*soon)
		panic("unreachable")
	}
}

// serveFeed starts a server for a feed, and an adapter for it.
func (s suite) serveFeed(t *testing.T, h http.Handler) adapters.Adapter {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return s.adapter(t, srv.URL)
}

func (s suite) testReceive(t *testing.T) {
	t.Run("gives events in order and acknowledges them", s.testAcknowledges)
	t.Run("acknowledges nothing that was not stored", s.testUnstored)
	t.Run("stops while nothing happens", func(t *testing.T) {
		reached := make(chan struct{}, 1)
		feed := s.Feed(t)
		r := start(t, s.serveFeed(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case reached <- struct{}{}:
			default:
			}
			feed.ServeHTTP(w, r)
		})), func(context.Context, ...chat.Event) error { return nil })
		next(t, reached, "call")
		r.stop(t)
	})
	t.Run("stops while the sink blocks", s.testBlockedSink)
	t.Run("goes on while nobody is there", func(t *testing.T) {
		srv := httptest.NewServer(http.NotFoundHandler())
		srv.Close()
		r := start(t, s.adapter(t, srv.URL), func(context.Context, ...chat.Event) error { return nil })
		select {
		case err := <-r.result:
			t.Fatalf("Run() = %v, want it to go on", err)
		case <-time.After(50 * time.Millisecond):
		}
		r.stop(t)
	})
	t.Run("comes back after bad answers", s.testBadAnswers)
}

func (s suite) testAcknowledges(t *testing.T) {
	feed := s.Feed(t)
	a := s.serveFeed(t, feed)
	got := make(chan chat.Event, 16)
	r := start(t, a, func(_ context.Context, events ...chat.Event) error {
		for _, e := range events {
			got <- e
		}
		return nil
	})
	for _, id := range []string{"101", "102", "103"} {
		feed.Push(id)
	}
	for _, id := range []string{"101", "102", "103"} {
		e := next(t, got, "event")
		if e.ID != id || e.Kind != chat.EventMessage || e.Source.Bot != a.Bot() || e.Source.Chat == "" {
			t.Errorf("event = %+v, want message %s of the bot", e, id)
		}
		if !json.Valid(e.Raw) || e.At.IsZero() {
			t.Errorf("event %s lacks its raw form or its time", id)
		}
	}
	for _, id := range []string{"101", "102", "103"} {
		if acked := next(t, feed.Acknowledged(), "acknowledgement"); acked != id {
			t.Errorf("acknowledged %s, want %s", acked, id)
		}
	}
	r.stop(t)
}

func (s suite) testUnstored(t *testing.T) {
	feed := s.Feed(t)
	calls := make(chan string, 16)
	var stored atomic.Bool
	r := start(t, s.serveFeed(t, feed), func(_ context.Context, events ...chat.Event) error {
		calls <- events[0].ID
		if len(calls) < 2 {
			return errSink
		}
		stored.Store(true)
		return nil
	})
	feed.Push("201")
	if id := next(t, feed.Acknowledged(), "acknowledgement"); id != "201" || !stored.Load() {
		t.Errorf("acknowledged %s, stored: %v, want 201 after it was stored", id, stored.Load())
	}
	r.stop(t)
	if n := len(calls); n != 2 {
		t.Errorf("sink was called %d times, want 2", n)
	}
}

func (s suite) testBlockedSink(t *testing.T) {
	feed := s.Feed(t)
	reached := make(chan struct{}, 16)
	r := start(t, s.serveFeed(t, feed), func(ctx context.Context, _ ...chat.Event) error {
		reached <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	feed.Push("301")
	next(t, reached, "event")
	r.stop(t)
	select {
	case id := <-feed.Acknowledged():
		t.Errorf("acknowledged %s, which was not stored", id)
	default:
	}
}

func (s suite) testBadAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("waits out real backoff")
	}
	feed := s.Feed(t)
	bad := make(chan http.Handler, 2)
	bad <- HTML(http.StatusBadGateway)
	bad <- lose("", true)
	got := make(chan chat.Event, 16)
	r := start(t, s.serveFeed(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case h := <-bad:
			h.ServeHTTP(w, r)
		default:
			feed.ServeHTTP(w, r)
		}
	})), func(_ context.Context, events ...chat.Event) error {
		got <- events[0]
		return nil
	})
	feed.Push("401")
	if e := next(t, got, "event"); e.ID != "401" {
		t.Errorf("event = %+v, want 401", e)
	}
	r.stop(t)
}

// testPush calls the adapter's handler as the platform would.
func (s suite) testPush(t *testing.T) {
	a := s.adapter(t, "http://127.0.0.1:1")
	hook, ok := a.(adapters.Webhook)
	if !ok {
		t.Fatalf("%T has no webhook", a)
	}
	var got []chat.Event
	answer := func(r *http.Request, result error) int {
		got = nil
		w := httptest.NewRecorder()
		hook.Webhook(func(_ context.Context, events ...chat.Event) error {
			got = append(got, events...)
			return result
		}).ServeHTTP(w, r)
		return w.Code
	}
	genuine := func() *http.Request { return s.Push.Request(s.Push.Body("501")) }

	if code := answer(genuine(), nil); code/100 != 2 || len(got) != 1 || got[0].ID != "501" || got[0].Source.Bot != a.Bot() {
		t.Errorf("a genuine request = %d with %+v, want success with event 501", code, got)
	}
	if code := answer(genuine(), errSink); code < 500 {
		t.Errorf("an event that was not stored = %d, want a 5xx", code)
	}
	forged := genuine()
	s.Push.Forge(forged)
	if code := answer(forged, nil); code != http.StatusUnauthorized || len(got) > 0 {
		t.Errorf("a forged request = %d with %d events, want 401 with none", code, len(got))
	}
	large := s.Push.Request(bytes.Repeat([]byte(" "), 8<<20))
	if code := answer(large, nil); code != http.StatusRequestEntityTooLarge || len(got) > 0 {
		t.Errorf("8 MiB = %d with %d events, want 413 with none", code, len(got))
	}
	put := genuine()
	put.Method = http.MethodPut
	if code := answer(put, nil); code != http.StatusMethodNotAllowed || len(got) > 0 {
		t.Errorf("PUT = %d with %d events, want 405 with none", code, len(got))
	}
	for _, body := range []string{"", "{", "\xff", "null", "[]", "{}", `"x"`, "0", strings.Repeat("[", 1<<16)} {
		if code := answer(s.Push.Request([]byte(body)), nil); code >= 500 {
			t.Errorf("body %.20q = %d, want no server error", body, code)
		}
	}
}
