package telegram_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/adapters/telegram"
	"github.com/chatgateway/gateway/chat"
)

// switching answers every request with 101, and then holds the bare
// connection open until the other side closes it.
func switching(t *testing.T, calls *atomic.Int32) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n{")
		_, _ = io.Copy(io.Discard, conn)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestSend_takesASwitchOfProtocolsAsUncertain(t *testing.T) {
	var calls atomic.Int32
	a := newAdapter(t, config(switching(t, &calls)))
	defer a.Close()
	result := make(chan error, 1)
	go func() {
		_, err := a.Send(t.Context(), chat.Target{Chat: "5"}, chat.Part{Text: "x"})
		result <- err
	}()
	select {
	case err := <-result:
		if chat.KindOf(err) != chat.Uncertain {
			t.Errorf("Send() = %v, want uncertain", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Send() hangs")
	}
}

func TestPoll_triesAgainAfterASwitchOfProtocols(t *testing.T) {
	var calls atomic.Int32
	a := newAdapter(t, config(switching(t, &calls)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- a.Run(ctx, nil) }()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for calls.Load() < 2 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("polling hangs")
		}
	}
	cancel()
	select {
	case err := <-result:
		if err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
	case <-deadline:
		t.Fatal("Run() hangs")
	}
}

// endless is a transport whose answers never end and know no context.
type endless struct{}

func (endless) RoundTrip(r *http.Request) (*http.Response, error) {
	body := &endlessBody{closed: make(chan struct{})}
	return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
}

type endlessBody struct {
	closed chan struct{}
	once   sync.Once
}

func (b *endlessBody) Read([]byte) (int, error) {
	<-b.closed
	return 0, errors.New("closed")
}

func (b *endlessBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

func TestSend_endsWithItsContextWhileItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdapter(t, config("https://bot.example"), telegram.WithTransport(endless{}))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		_, err := a.Send(ctx, chat.Target{Chat: "5"}, chat.Part{Text: "x"})
		if chat.KindOf(err) != chat.Uncertain || time.Since(start) != 5*time.Second {
			t.Errorf("Send() = %v after %v, want uncertain after 5s", err, time.Since(start))
		}
	})
}
