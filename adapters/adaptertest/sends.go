package adaptertest

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
)

func (s suite) testSend(t *testing.T) {
	t.Run("gives the platform's receipt", func(t *testing.T) {
		receipt, err := s.sendTo(t, s.Sent)
		if err != nil || receipt != s.Receipt {
			t.Errorf("Send() = %q, %v, want %q", receipt, err, s.Receipt)
		}
	})
	t.Run("sends nothing when the context has ended", func(t *testing.T) {
		srv := s.serve(t, s.Sent)
		a := s.adapter(t, srv.URL)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := a.Send(ctx, s.target(a), s.Part)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Send() = %v, want %v", err, context.Canceled)
		}
		if failed, ok := errors.AsType[*chat.SendError](err); ok {
			t.Errorf("Send() = %v, want the bare context's error", failed)
		}
		if n := srv.sends.Load(); n != 0 {
			t.Errorf("Send() made %d calls, want none", n)
		}
	})
	t.Run("runs many sends at once", s.testConcurrent)
	t.Run("has the same capabilities each time", func(t *testing.T) {
		a := s.adapter(t, "http://127.0.0.1:1")
		first := a.Capabilities(s.target(a))
		if again := a.Capabilities(s.target(a)); again != first {
			t.Errorf("Capabilities() = %+v, then %+v", first, again)
		}
	})
}

// testConcurrent has a server that answers only when all sends are there.
func (s suite) testConcurrent(t *testing.T) {
	const n = 32
	var all sync.WaitGroup
	all.Add(n)
	srv := s.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all.Done()
		all.Wait()
		s.Sent.ServeHTTP(w, r)
	}))
	a := s.adapter(t, srv.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	results := make(chan error, n)
	for range n {
		go func() {
			_, err := a.Send(ctx, s.target(a), s.Part)
			results <- err
		}()
	}
	for range n {
		if err := <-results; err != nil {
			t.Fatalf("Send() = %v, want nil", err)
		}
	}
}

func (s suite) testErrors(t *testing.T) {
	for _, f := range s.Failures {
		t.Run(f.Name, func(t *testing.T) {
			_, err := s.sendTo(t, f.Answer)
			wantKind(t, err, f.Want.Kind)
			got, _ := errors.AsType[*chat.SendError](err)
			if got.Scope != f.Want.Scope || got.RetryAfter != f.Want.RetryAfter || got.MovedTo != f.Want.MovedTo {
				t.Errorf("Send() = scope %v, retry after %v, moved to %q, want %v, %v, %q",
					got.Scope, got.RetryAfter, got.MovedTo, f.Want.Scope, f.Want.RetryAfter, f.Want.MovedTo)
			}
		})
	}
	t.Run("waits", s.testWaits)
	t.Run("statuses with a page of HTML", s.testStatuses)
	t.Run("unreadable success", s.testUnreadable)
	t.Run("no words of a user are taken for the platform's", func(t *testing.T) {
		_, err := s.sendTo(t, s.Refuse(`wrong: "user not found in forbidden list, chat not found, unauthorized, retry later"`))
		wantKind(t, err, chat.Rejected)
	})
	t.Run("no credential that the server repeats is shown", func(t *testing.T) {
		for _, secret := range s.Secrets {
			_, err := s.sendTo(t, s.Refuse("no such path: /bot"+secret+"/send"))
			wantKind(t, err, chat.Rejected)
		}
		_, err := s.sendTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write([]byte(r.RequestURI + r.Header.Get("Authorization"))) //nolint:gosec // that is the point
		}))
		if err == nil {
			t.Error("Send() = nil, want an error")
		}
	})
	t.Run("no redirect is followed", s.testRedirects)
}

func (s suite) testWaits(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name   string
		header http.Header
		want   time.Duration
	}{
		{"none given", nil, 0},
		{"seconds", http.Header{"Retry-After": {"37"}}, 37 * time.Second},
		{"a fraction", http.Header{"Retry-After": {"1.5"}}, 1500 * time.Millisecond},
		{"a tiny fraction", http.Header{"Retry-After": {"0.0004"}}, 50 * time.Millisecond},
		{"two in a line", http.Header{"Retry-After": {"2814, 2"}}, 2814 * time.Second},
		{"two lines", http.Header{"Retry-After": {"2814", "2"}}, 2814 * time.Second},
		{"a date", http.Header{
			"Date":        {at.Format(http.TimeFormat)},
			"Retry-After": {at.Add(time.Minute).Format(http.TimeFormat)},
		}, time.Minute},
		{"nonsense", http.Header{"Retry-After": {"soon"}}, 0},
		{"zero", http.Header{"Retry-After": {"0"}}, 0},
		{"a time stamp", http.Header{"Retry-After": {"1796040000"}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, answer := range []Answer{HTML(http.StatusTooManyRequests), JSON(http.StatusTooManyRequests, "{}")} {
				maps.Copy(answer.Header, c.header)
				_, err := s.sendTo(t, answer)
				wantKind(t, err, chat.RateLimited)
				if got, _ := errors.AsType[*chat.SendError](err); got.RetryAfter != c.want {
					t.Errorf("Send() = retry after %v, want %v", got.RetryAfter, c.want)
				}
			}
		})
	}
}

func (s suite) testStatuses(t *testing.T) {
	for _, status := range []int{
		300, 301, 302, 303, 304, 307, 308,
		400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 417, 418, 421, 422, 423,
		424, 425, 426, 428, 429, 431, 451, 499,
		500, 501, 502, 503, 504, 505, 507, 508, 510, 511, 520, 522, 524, 530, 599,
	} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			_, err := s.sendTo(t, HTML(status))
			wantKind(t, err, s.kindsOfStatus(status)...)
		})
	}
}

// kindsOfStatus says what a page may mean that the platform itself did not
// write. It knows nothing of the chat; a status below 500 says that the
// message was not taken; a 5xx says nothing.
func (s suite) kindsOfStatus(status int) []chat.Kind {
	if status == http.StatusTooManyRequests {
		return []chat.Kind{chat.RateLimited}
	}
	if status < http.StatusInternalServerError {
		return []chat.Kind{chat.Temporary, chat.Rejected, chat.Unauthorized, chat.RateLimited}
	}
	if slices.Contains(s.Undone, status) {
		return []chat.Kind{chat.Temporary}
	}
	return []chat.Kind{chat.Uncertain}
}

func (s suite) testUnreadable(t *testing.T) {
	bodies := append([]string{"", "<html></html>", "null", "[]", "{", "\x00\xff", s.Sent.Body[:len(s.Sent.Body)/2]}, s.Unreadable...)
	for _, body := range bodies {
		t.Run(strconv.Quote(body), func(t *testing.T) {
			answer := s.Sent
			answer.Body = body
			_, err := s.sendTo(t, answer)
			wantKind(t, err, chat.Uncertain)
		})
	}
	t.Run("a body without an end", func(t *testing.T) {
		_, err := s.sendTo(t, http.HandlerFunc(endless))
		wantKind(t, err, chat.Uncertain)
	})
}

// testRedirects has a second server that must never hear of the message.
func (s suite) testRedirects(t *testing.T) {
	var mu sync.Mutex
	var heard []string
	other := s.serve(t, s.Sent)
	other.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, r.Method+" "+r.URL.Path)
		s.Sent.ServeHTTP(w, r)
	})
	for _, status := range []int{301, 302, 303, 307, 308} {
		_, err := s.sendTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", other.URL+r.RequestURI)
			w.WriteHeader(status)
		}))
		wantKind(t, err, chat.Temporary, chat.Rejected, chat.Unauthorized)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(heard) > 0 {
		t.Errorf("the redirect's target heard %d calls, want none", len(heard))
	}
}

func (s suite) testConnections(t *testing.T) {
	for _, c := range []struct {
		name string
		loss http.Handler
	}{
		{"reset after the request", lose("", true)},
		{"closed after the request", lose("", false)},
		{"closed in the status line", lose("HTTP/1.1 20", false)},
		{"closed in the body", lose("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"ok\":tr", false)},
		{"closed in a chunk", lose("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n{\"ok\":tr", false)},
		{"no HTTP at all", lose("nonsense\r\n\r\n", false)},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.sendTo(t, c.loss)
			wantKind(t, err, chat.Uncertain)
			s.testReused(t, c.loss)
		})
	}
	t.Run("an idle connection that ended", s.testIdle)
	t.Run("refused", func(t *testing.T) {
		srv := s.serve(t, s.Sent)
		srv.Close()
		s.sendNowhere(t, srv.URL)
	})
	t.Run("no TLS", func(t *testing.T) {
		srv := s.serve(t, s.Sent)
		s.sendNowhere(t, strings.Replace(srv.URL, "http://", "https://", 1))
	})
	t.Run("no such host", func(t *testing.T) { s.sendNowhere(t, "http://127.0.0.1:1") })
	t.Run("silence until cancelled", func(t *testing.T) { s.testSilence(t, "") })
	t.Run("silence in the body until cancelled", func(t *testing.T) { s.testSilence(t, `{"ok":tr`) })
	t.Run("silence until the deadline", func(t *testing.T) {
		handler, _ := hang("")
		srv := s.serve(t, handler)
		a := s.adapter(t, srv.URL)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := a.Send(ctx, s.target(a), s.Part)
		wantKind(t, err, chat.Uncertain)
		s.checkSecrets(t, err)
	})
}

// testReused loses the second answer on a connection that is in use already,
// where an HTTP client may be tempted to repeat the request by itself.
func (s suite) testReused(t *testing.T, loss http.Handler) {
	t.Helper()
	var used atomic.Bool
	srv := s.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if used.CompareAndSwap(false, true) {
			s.Sent.ServeHTTP(w, r)
			return
		}
		loss.ServeHTTP(w, r)
	}))
	a := s.adapter(t, srv.URL)
	if _, err := a.Send(t.Context(), s.target(a), s.Part); err != nil {
		t.Fatalf("first Send() = %v, want nil", err)
	}
	_, err := a.Send(t.Context(), s.target(a), s.Part)
	wantKind(t, err, chat.Uncertain)
	s.checkSecrets(t, err)
	if n := srv.sends.Load(); n != 2 {
		t.Errorf("two sends made %d calls, want 2", n)
	}
}

// testIdle ends an idle connection. Whether the client notices in time is
// chance, but it must not send twice, nor blame the message.
func (s suite) testIdle(t *testing.T) {
	srv := s.serve(t, s.Sent)
	a := s.adapter(t, srv.URL)
	for i := range 5 {
		before := srv.sends.Load()
		_, err := a.Send(t.Context(), s.target(a), s.Part)
		s.checkSecrets(t, err)
		if err != nil {
			wantKind(t, err, chat.Temporary, chat.Uncertain)
		}
		if n := srv.sends.Load() - before; n > 1 || (err == nil && n == 0) {
			t.Errorf("send %d = %v after %d calls", i, err, n)
		}
		srv.CloseClientConnections()
	}
}

func (s suite) sendNowhere(t *testing.T, base string) {
	t.Helper()
	a := s.adapter(t, base)
	_, err := a.Send(t.Context(), s.target(a), s.Part)
	wantKind(t, err, chat.Temporary)
	s.checkSecrets(t, err)
	if p, ok := a.(adapters.Prober); ok {
		err := p.Probe(t.Context())
		wantKind(t, err, chat.Temporary)
		s.checkSecrets(t, err)
	}
}

func (s suite) testSilence(t *testing.T, first string) {
	t.Helper()
	handler, reached := hang(first)
	srv := s.serve(t, handler)
	a := s.adapter(t, srv.URL)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := a.Send(ctx, s.target(a), s.Part)
		result <- err
	}()
	<-reached
	cancel()
	select {
	case err := <-result:
		wantKind(t, err, chat.Uncertain)
		s.checkSecrets(t, err)
	case <-time.After(soon):
		t.Fatalf("Send() still runs %v after its context ended", soon)
	}
}
