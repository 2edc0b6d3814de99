package telegram_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/simulator/telegram"
)

// hookFunc is a webhook without a network.
type hookFunc func(*http.Request) (int, http.Header, string)

func (f hookFunc) RoundTrip(r *http.Request) (*http.Response, error) {
	status, header, body := f(r)
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func updateText(t *testing.T, r *http.Request) string {
	t.Helper()
	var u struct {
		Message struct {
			Text string `json:"text"`
		} `json:"message"`
	}
	if err := json.NewDecoder(r.Body).Decode(&u); err != nil {
		t.Errorf("decode update: %v", err)
	}
	return u.Message.Text
}

func TestWebhook_sendsOneUpdatePerRequestWithTheSecret(t *testing.T) {
	s := start(t, telegram.Options{})
	got := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("X-Telegram-Bot-Api-Secret-Token") + " " + r.Header.Get("Content-Type") + " " + updateText(t, r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"method":"sendMessage","chat_id":5,"text":"from the hook"}`)
	}))
	defer hook.Close()
	s.mustWork(t, "setWebhook", "url="+hook.URL, "secret_token=s3cret_-")
	s.say(t, 5, "one")
	s.say(t, 5, "two")
	for _, text := range []string{"one", "two"} {
		if line := <-got; line != "s3cret_- application/json "+text {
			t.Errorf("webhook got %q, want %q with secret and type", line, text)
		}
	}
	list, err := s.WaitMessages(t.Context(), 5, 2)
	if err != nil || list[0].Text != "from the hook" {
		t.Errorf("messages = %+v, %v, want the answers in the webhook", list, err)
	}
	if err := s.Wait(t.Context(), func() bool { return s.Stats().PendingUpdates == 0 }); err != nil {
		t.Error(err)
	}
	info := string(s.mustWork(t, "getWebhookInfo").Result)
	if !strings.Contains(info, `"url":"`+hook.URL+`"`) || !strings.Contains(info, `"pending_update_count":0`) || !strings.Contains(info, `"max_connections":40`) {
		t.Errorf("getWebhookInfo = %s", info)
	}
	s.Close()
}

// hooked runs a server in a bubble whose webhook is f.
func hooked(t *testing.T, f hookFunc) *telegram.Server {
	t.Helper()
	s := telegram.New(telegram.Options{Limits: &telegram.Limits{Off: true}, Client: &http.Client{Transport: f}})
	stopped := make(chan error, 1)
	go func() { stopped <- s.Run(t.Context()) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-stopped; err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
	})
	if status := direct(t, s, "setWebhook", map[string]any{"url": "http://localhost/hook"}); status != 200 {
		t.Fatalf("setWebhook = %d", status)
	}
	return s
}

func inject(t *testing.T, s *telegram.Server, chat int64, text string) {
	t.Helper()
	if _, err := s.Inject(telegram.Input{ChatID: chat, Text: text}); err != nil {
		t.Fatal(err)
	}
}

func TestWebhook_triesAgainAndKeepsOrderPerChat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		type seen struct {
			At   time.Duration
			Text string
		}
		got := make(chan seen, 100)
		failures := 5
		s := hooked(t, func(r *http.Request) (int, http.Header, string) {
			text := updateText(t, r)
			got <- seen{time.Since(begin), text}
			if text == "a1" && failures > 0 {
				failures--
				return http.StatusInternalServerError, nil, ""
			}
			return http.StatusOK, nil, ""
		})
		inject(t, s, 5, "a1")
		inject(t, s, 5, "a2")
		inject(t, s, 6, "b1")
		if err := s.Wait(t.Context(), func() bool { return s.Stats().PendingUpdates == 0 }); err != nil {
			t.Fatal(err)
		}
		close(got)
		var chatA []seen
		for one := range got {
			if one.Text == "b1" {
				if one.At != 0 {
					t.Errorf("the other chat waited %v", one.At)
				}
				continue
			}
			chatA = append(chatA, one)
		}
		want := []seen{
			{0, "a1"}, {0, "a1"}, {2 * time.Second, "a1"}, {6 * time.Second, "a1"}, {14 * time.Second, "a1"}, {30 * time.Second, "a1"}, {30 * time.Second, "a2"},
		}
		if d := cmp.Diff(want, chatA); d != "" {
			t.Errorf("deliveries -want +got:\n%s", d)
		}
	})
}

func TestWebhook_honoursRetryAfterAndRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var at []time.Duration
		s := hooked(t, func(*http.Request) (int, http.Header, string) {
			at = append(at, time.Since(begin))
			if len(at) == 1 {
				return http.StatusTooManyRequests, http.Header{"Retry-After": {"90"}}, ""
			}
			return http.StatusOK, nil, ""
		})
		if _, err := s.Fault(telegram.Fault{Kind: telegram.FaultDuplicate}); err != nil {
			t.Fatal(err)
		}
		inject(t, s, 5, "a")
		if err := s.Wait(t.Context(), func() bool { return s.Stats().PendingUpdates == 0 }); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]time.Duration{0, 90 * time.Second, 90 * time.Second}, at); d != "" {
			t.Errorf("deliveries -want +got:\n%s", d)
		}
	})
}

func TestWebhook_dropsAfterADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hooked(t, func(*http.Request) (int, http.Header, string) { return http.StatusBadGateway, nil, "" })
		inject(t, s, 5, "never")
		time.Sleep(25 * time.Hour)
		if n := s.Stats().PendingUpdates; n != 0 {
			t.Errorf("%d updates pending after a day, want 0", n)
		}
		if w := directCall(t, s, "getWebhookInfo", nil); !bytes.Contains(w.Body.Bytes(), []byte("Wrong response from the webhook: 502 Bad Gateway")) {
			t.Errorf("getWebhookInfo = %s, want the last error", w.Body)
		}
	})
}

func TestWebhook_followsNoRedirect(t *testing.T) {
	s := start(t, telegram.Options{})
	reached := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached <- r.URL.Path
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer hook.Close()
	s.mustWork(t, "setWebhook", "url="+hook.URL+"/hook")
	s.say(t, 5, "a")
	for range 2 { // The first attempt and the one right after it.
		if path := <-reached; path != "/hook" {
			t.Errorf("webhook went to %s", path)
		}
	}
	s.Close()
}
