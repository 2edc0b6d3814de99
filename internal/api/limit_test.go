package api_test

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/chatgateway/gateway/internal/api"
)

func TestLimitConns(t *testing.T) {
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln = api.LimitConns(ln)
	srv := api.Server(t.Context(), api.Public(options(&messages{})), slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	defer func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve() = %v", err)
		}
	}()
	dial := func() net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var idle []net.Conn
	for range 256 {
		c := dial()
		defer c.Close()
		if _, err := c.Write([]byte("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil { // it is accepted
			t.Fatal(err)
		}
		idle = append(idle, c)
	}
	last := dial()
	defer last.Close()
	if _, err := last.Write([]byte("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	last.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := last.Read(make([]byte, 100)); err == nil {
		t.Errorf("connection 257 was answered with %d bytes while 256 are open", n)
	}
	idle[0].Close()
	last.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := last.Read(make([]byte, 100)); err != nil {
		t.Errorf("connection 257 is not answered after another has gone: %v", err)
	}
}
