package telegram_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chatgateway/gateway/simulator/telegram"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a clock that only moves when told.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_800_000_000, 0)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// sim is a server on a loopback port.
type sim struct {
	*telegram.Server
	url string
}

// start runs a server; without limits in o there are none.
func start(t *testing.T, o telegram.Options) *sim {
	t.Helper()
	if o.Limits == nil {
		o.Limits = &telegram.Limits{Off: true}
	}
	s := telegram.New(o)
	server := httptest.NewServer(s)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := s.Run(t.Context()); err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
	}()
	t.Cleanup(func() {
		s.Close()
		<-stopped
		server.Close()
	})
	return &sim{Server: s, url: server.URL}
}

// response is an answer of the Bot API.
type response struct {
	Status      int
	Header      http.Header
	Raw         string
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result"`
	ErrorCode   int             `json:"error_code"`
	Description string          `json:"description"`
	Parameters  struct {
		RetryAfter      float64 `json:"retry_after"`
		MigrateToChatID int64   `json:"migrate_to_chat_id"`
	} `json:"parameters"`
}

// try calls a method with name=value pairs and returns the connection's error too.
func (s *sim) try(t *testing.T, method string, pairs ...string) (response, error) {
	t.Helper()
	form := url.Values{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		form.Set(name, value)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/bot"+s.Token()+"/"+method, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return response{}, err
	}
	return read(t, resp)
}

func read(t *testing.T, resp *http.Response) (response, error) {
	t.Helper()
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return response{}, err
	}
	r := response{Status: resp.StatusCode, Header: resp.Header, Raw: string(raw)}
	err = json.Unmarshal(raw, &r)
	return r, err
}

// call is try for calls that must be answered in JSON.
func (s *sim) call(t *testing.T, method string, pairs ...string) response {
	t.Helper()
	r, err := s.try(t, method, pairs...)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return r
}

// mustFail checks a refusal.
func (s *sim) mustFail(t *testing.T, status int, description, method string, pairs ...string) response {
	t.Helper()
	r := s.call(t, method, pairs...)
	if r.OK || r.Status != status || r.ErrorCode != status || r.Description != description {
		t.Errorf("%s %q = %d %q, want %d %q", method, pairs, r.Status, r.Description, status, description)
	}
	return r
}

// mustWork checks a success.
func (s *sim) mustWork(t *testing.T, method string, pairs ...string) response {
	t.Helper()
	r := s.call(t, method, pairs...)
	if !r.OK || r.Status != http.StatusOK {
		t.Fatalf("%s %q = %d %q, want success", method, pairs, r.Status, r.Description)
	}
	return r
}

// say injects a user's message.
func (s *sim) say(t *testing.T, chat int64, text string) telegram.Injected {
	t.Helper()
	in, err := s.Inject(telegram.Input{ChatID: chat, Text: text})
	if err != nil {
		t.Fatalf("Inject(%q) = %v", text, err)
	}
	return in
}

// fault arms a fault.
func (s *sim) fault(t *testing.T, f telegram.Fault) int64 {
	t.Helper()
	id, err := s.Fault(f)
	if err != nil {
		t.Fatalf("Fault(%s) = %v", f.Kind, err)
	}
	return id
}

// updateIDs polls without waiting and returns the ids.
func (s *sim) updateIDs(t *testing.T, pairs ...string) []int64 {
	t.Helper()
	r := s.mustWork(t, "getUpdates", pairs...)
	var list []struct {
		ID int64 `json:"update_id"`
	}
	if err := json.Unmarshal(r.Result, &list); err != nil {
		t.Fatalf("getUpdates result: %v", err)
	}
	ids := []int64{}
	for _, u := range list {
		ids = append(ids, u.ID)
	}
	return ids
}

func isJSONError(err error) bool {
	_, ok := errors.AsType[*json.SyntaxError](err)
	return ok
}
