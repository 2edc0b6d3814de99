package telegram_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chatgateway/gateway/adapters/telegram"
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
)

// sendTo makes one send to a server that gives this answer.
func sendTo(t *testing.T, status int, retryAfter, body string) *chat.SendError {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer srv.Close()
	a, err := telegram.New("b", telegram.Config{Token: chat.NewSecret("1:abc"), APIBase: srv.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	_, err = a.Send(t.Context(), chat.Target{Bot: "b", Chat: "5"}, chat.Part{Text: "x"})
	fail, ok := errors.AsType[*chat.SendError](err)
	if !ok {
		t.Fatalf("Send() = %v, want a SendError", err)
	}
	return fail
}

func TestSend_tellsTheWaitOfAFrontEnd(t *testing.T) {
	for _, status := range []int{502, 503} {
		fail := sendTo(t, status, "3", "<html>busy</html>")
		if fail.Kind != chat.Temporary || fail.RetryAfter != 3*time.Second || fail.MaybeSent != (status == 502) {
			t.Errorf("%d: Send() = %+v, want temporary, 3 s, and doubt after a 502 only", status, fail)
		}
	}
}

func TestSend_tellsALostChatFromOneThatRefuses(t *testing.T) {
	answer := func(code int, text string) string {
		return fmt.Sprintf(`{"ok":false,"error_code":%d,"description":%q}`, code, text)
	}
	for _, tt := range []struct {
		status int
		text   string
		want   bool
	}{
		{400, "Bad Request: chat not found", true},
		{400, "Bad Request: have no write access to the chat", false},
		{403, "Forbidden: bot was blocked by the user", false},
	} {
		if fail := sendTo(t, tt.status, "", answer(tt.status, tt.text)); fail.Kind != chat.TargetGone || fail.NotFound != tt.want {
			t.Errorf("%q: Send() = %+v, want a chat that is gone, NotFound %v", tt.text, fail, tt.want)
		}
	}
}

func TestRun_drawsFromTheLimiterForAnswersToPresses(t *testing.T) {
	answers := make(chan struct{}, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	polls := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/answerCallbackQuery"):
			answers <- struct{}{}
			_, _ = io.WriteString(w, `{"ok":true,"result":true}`)
		case polls == 0:
			polls++
			_, _ = io.WriteString(w, `{"ok":true,"result":[
				{"update_id":1,"callback_query":{"id":"a","from":{"id":5},"data":"x"}},
				{"update_id":2,"callback_query":{"id":"b","from":{"id":5},"data":"x"}}]}`)
		default:
			<-ctx.Done()
		}
	}))
	defer srv.Close()
	l, err := limiter.New(limiter.Config{MessagesPerSecond: 0.001, BurstSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	a, err := telegram.New("b", telegram.Config{Token: chat.NewSecret("1:abc"), APIBase: srv.URL}, l)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, func(context.Context, ...chat.Event) error { return nil }) }()
	<-answers
	if _, _, ok := l.TryReserve(time.Now(), limiter.Call{}); ok {
		t.Error("the answer took no slot")
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
	if len(answers) > 0 {
		t.Error("the second answer left without a slot")
	}
}
