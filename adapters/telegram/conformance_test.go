package telegram_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/adapters/adaptertest"
	"github.com/chatgateway/gateway/adapters/telegram"
	"github.com/chatgateway/gateway/chat"
)

const (
	token        = "123456:SECRETtoken-of_the_test"
	tokenHalf    = "SECRETtoken-of_the_test"
	hookSecret   = "A-secret_of-its-own"
	secretHeader = "X-Telegram-Bot-Api-Secret-Token"
	updateJSON   = `{"update_id":%s,"message":{"message_id":7,"from":{"id":5,"is_bot":false,"first_name":"A"},` +
		`"chat":{"id":5,"first_name":"A","type":"private"},"date":1700000000,"text":"hi"}}`
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(base string) telegram.Config {
	return telegram.Config{
		Token:         chat.NewSecret(token),
		APIBase:       base,
		WebhookSecret: chat.NewSecret(hookSecret),
	}
}

func newAdapter(t *testing.T, cfg telegram.Config, opts ...telegram.Option) *telegram.Adapter {
	t.Helper()
	a, err := telegram.New("support", cfg, nil, opts...)
	if err != nil {
		t.Fatalf("New() = %v, want nil", err)
	}
	return a
}

// refusal is a failed answer as the Bot API gives it.
func refusal(code int, description, parameters string) adaptertest.Answer {
	text, err := json.Marshal(description)
	if err != nil {
		panic(err)
	}
	body := fmt.Sprintf(`{"ok":false,"error_code":%d,"description":%s`, code, text)
	if parameters != "" {
		body += `,"parameters":` + parameters
	}
	return adaptertest.JSON(code, body+"}")
}

func TestConformance(t *testing.T) {
	adaptertest.Run(t, adaptertest.Platform{
		New: func(t *testing.T, base string) adapters.Adapter {
			t.Helper()
			return newAdapter(t, config(base))
		},
		Target:     chat.Target{Chat: "-1001234567890", Thread: "77"},
		Part:       chat.Part{Text: "hello", Markup: "HTML"},
		Secrets:    []string{token, tokenHalf, hookSecret},
		IsSend:     func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/sendMessage") },
		Other:      adaptertest.JSON(http.StatusOK, `{"ok":true,"result":true}`),
		Sent:       adaptertest.JSON(http.StatusOK, `{"ok":true,"result":{"message_id":42,"chat":{"id":-1001234567890}}}`),
		Receipt:    "42",
		Refuse:     func(text string) adaptertest.Answer { return refusal(400, "Bad Request: "+text, "") },
		Failures:   failures(t),
		Unreadable: []string{`{"result":{"message_id":5}}`, `{"ok":false}`, `{"ok":true,"result":{"message_id":5}`},
		Undone:     []int{http.StatusBadGateway, http.StatusServiceUnavailable},
		Feed:       func(*testing.T) adaptertest.Feed { return newFeed() },
		Push: &adaptertest.Push{
			Request: func(body []byte) *http.Request {
				r := httptest.NewRequest(http.MethodPost, "/hooks/support", bytes.NewReader(body))
				r.Header.Set(secretHeader, hookSecret)
				return r
			},
			Body:  func(id string) []byte { return fmt.Appendf(nil, updateJSON, id) },
			Forge: func(r *http.Request) { r.Header.Del(secretHeader) },
		},
	})
}

// feed is the server's side of getUpdates: it gives the updates from the
// offset on, and forgets those below it.
type feed struct {
	mu     sync.Mutex
	ids    []int64
	pushed chan struct{} // closed and replaced by each push
	acked  chan string
}

func newFeed() *feed {
	return &feed{pushed: make(chan struct{}), acked: make(chan string, 100)}
}

func (f *feed) Push(id string) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		panic(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids = append(f.ids, n)
	close(f.pushed)
	f.pushed = make(chan struct{})
}

func (f *feed) Acknowledged() <-chan string { return f.acked }

func (f *feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/getUpdates") {
		adaptertest.JSON(http.StatusOK, `{"ok":true,"result":true}`).ServeHTTP(w, r)
		return
	}
	offset, _ := strconv.ParseInt(r.FormValue("offset"), 10, 64)
	timeout, _ := strconv.Atoi(r.FormValue("timeout"))
	deadline := time.After(time.Duration(timeout) * time.Second)
	for {
		updates, pushed := f.from(offset)
		if len(updates) > 0 {
			adaptertest.JSON(http.StatusOK, `{"ok":true,"result":[`+strings.Join(updates, ",")+`]}`).ServeHTTP(w, r)
			return
		}
		select {
		case <-pushed:
		case <-r.Context().Done():
			return
		case <-deadline:
			adaptertest.JSON(http.StatusOK, `{"ok":true,"result":[]}`).ServeHTTP(w, r)
			return
		}
	}
}

func (f *feed) from(offset int64) (updates []string, pushed chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.ids) > 0 && f.ids[0] < offset {
		f.acked <- strconv.FormatInt(f.ids[0], 10)
		f.ids = f.ids[1:]
	}
	for _, id := range f.ids {
		updates = append(updates, fmt.Sprintf(updateJSON, strconv.FormatInt(id, 10)))
	}
	return updates, f.pushed
}
