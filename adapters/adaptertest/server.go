package adaptertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
)

// server is the platform, as far as one test needs it.
type server struct {
	*httptest.Server
	sends atomic.Int64 // calls that carried a message
}

// serve starts a server whose answer to a message is send. By then the whole
// request was read.
func (s suite) serve(t *testing.T, send http.Handler) *server {
	t.Helper()
	srv := &server{}
	srv.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		switch {
		case s.IsSend(r):
			srv.sends.Add(1)
			send.ServeHTTP(w, r)
		case s.Other != nil:
			s.Other.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	return srv
}

func (s suite) adapter(t *testing.T, base string) adapters.Adapter {
	t.Helper()
	a := s.New(t, base)
	if c, ok := a.(io.Closer); ok {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Errorf("Close() = %v, want nil", err)
			}
		})
	}
	return a
}

// target is the platform's target with the adapter's bot.
func (s suite) target(a adapters.Adapter) chat.Target {
	t := s.Target
	t.Bot = a.Bot()
	return t
}

// sendTo makes one send with send as the server's answer.
func (s suite) sendTo(t *testing.T, send http.Handler) (chat.Receipt, error) {
	t.Helper()
	srv := s.serve(t, send)
	a := s.adapter(t, srv.URL)
	receipt, err := a.Send(t.Context(), s.target(a), s.Part)
	if n := srv.sends.Load(); n != 1 {
		t.Errorf("Send() made %d calls, want 1", n)
	}
	s.checkSecrets(t, err)
	return receipt, err
}

// wantKind fails unless err is a *chat.SendError of one of the kinds.
func wantKind(t *testing.T, err error, kinds ...chat.Kind) {
	t.Helper()
	failed, ok := errors.AsType[*chat.SendError](err)
	if !ok {
		t.Fatalf("Send() = %v (%T), want a *chat.SendError", err, err)
	}
	if !slices.Contains(kinds, failed.Kind) {
		t.Errorf("Send() = %v, want kind %v", err, kinds)
	}
	if failed.Err == nil {
		t.Errorf("Send() = %v, want a cause", err)
	}
}

// checkSecrets fails if err, or anything that it wraps, shows a credential.
func (s suite) checkSecrets(t *testing.T, err error) {
	t.Helper()
	for _, e := range chain(err) {
		for _, verb := range []string{"%v", "%+v", "%#v", "%q"} {
			shown := fmt.Sprintf(verb, e)
			for _, secret := range s.Secrets {
				if strings.Contains(shown, secret) {
					t.Errorf("an error of type %T shows a credential under %s", e, verb)
				}
			}
		}
	}
}

func chain(err error) []error {
	if err == nil {
		return nil
	}
	all := []error{err}
	switch e := err.(type) { //nolint:errorlint // it walks the chain itself
	case interface{ Unwrap() error }:
		all = append(all, chain(e.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			all = append(all, chain(part)...)
		}
	}
	return all
}

// lose ends the connection after the request was read, having said raw.
func lose(raw string, reset bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, raw)
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	})
}

// hang says nothing until the client is gone; reached is closed once the
// request was read.
func hang(first string) (handler http.Handler, reached chan struct{}) {
	reached = make(chan struct{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if first != "" {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, first)
			_ = http.NewResponseController(w).Flush()
		}
		close(reached)
		<-r.Context().Done()
	}), reached
}

// endless answers with a body that never ends.
func endless(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	block := bytes.Repeat([]byte(" "), 1<<16)
	for {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}
