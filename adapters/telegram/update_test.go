package telegram_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/adapters/telegram"
	"github.com/chatgateway/gateway/chat"
)

var rewrite = flag.Bool("update", false, "rewrite the golden files")

// push gives body to the webhook and returns the answer and the events.
func push(a *telegram.Adapter, body []byte, result error) (*httptest.ResponseRecorder, []chat.Event) {
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	r.Header.Set(secretHeader, hookSecret)
	w := httptest.NewRecorder()
	var events []chat.Event
	a.Webhook(func(_ context.Context, es ...chat.Event) error {
		events = append(events, es...)
		return result
	}).ServeHTTP(w, r)
	return w, events
}

func TestUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raw, err := os.ReadFile("testdata/updates.json")
		if err != nil {
			t.Fatal(err)
		}
		var updates []struct {
			Name   string          `json:"name"`
			Update json.RawMessage `json:"update"`
		}
		if err := json.Unmarshal(raw, &updates); err != nil {
			t.Fatal(err)
		}
		a := newAdapter(t, config(""))
		var got bytes.Buffer
		for _, u := range updates {
			_, events := push(a, u.Update, nil)
			if len(events) != 1 {
				t.Fatalf("%s: %d events, want 1", u.Name, len(events))
			}
			if !bytes.Equal(events[0].Raw, u.Update) {
				t.Errorf("%s: raw = %s, want it as received", u.Name, events[0].Raw)
			}
			events[0].Raw = nil
			line, err := json.Marshal(events[0])
			if err != nil {
				t.Fatalf("%s: %v", u.Name, err)
			}
			got.WriteString("# " + u.Name + "\n" + string(line) + "\n")
		}
		compareGolden(t, "testdata/events.golden", got.String())
	})
}

func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestWebhook_asksForTheSecretFirst(t *testing.T) {
	open := config("")
	open.WebhookSecret = chat.Secret{}
	for _, c := range []struct {
		name   string
		cfg    telegram.Config
		header []string
	}{
		{"no header", config(""), nil},
		{"an empty header", config(""), []string{""}},
		{"a wrong secret", config(""), []string{hookSecret + "x"}},
		{"a beginning of it", config(""), []string{hookSecret[:5]}},
		{"the token", config(""), []string{token}},
		{"nothing, where nothing is configured", open, []string{""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", unread{t})
			r.Header[secretHeader] = c.header
			w := httptest.NewRecorder()
			newAdapter(t, c.cfg).Webhook(func(context.Context, ...chat.Event) error {
				t.Error("the sink was called")
				return nil
			}).ServeHTTP(w, r)
			if w.Code != http.StatusUnauthorized {
				t.Errorf("status = %d, want 401", w.Code)
			}
		})
	}
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, errors.New("unread")
}

func TestWebhook_answersAButtonPressInItsReply(t *testing.T) {
	press := []byte(`{"update_id":1,"callback_query":{"id":"a\"b","from":{"id":5},"inline_message_id":"i"}}`)
	a := newAdapter(t, config(""))
	w, _ := push(a, press, nil)
	if want := `{"callback_query_id":"a\"b","method":"answerCallbackQuery"}`; w.Code != 200 || w.Body.String() != want {
		t.Errorf("answer = %d %s, want %s", w.Code, w.Body, want)
	}
	w, _ = push(a, press, errors.New("disk full"))
	if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "answerCallbackQuery") {
		t.Errorf("answer = %d %s, want 503 and no call", w.Code, w.Body)
	}
}

func TestWebhook_recordsAnyJSON(t *testing.T) {
	a := newAdapter(t, config(""))
	ids := map[string]bool{}
	for _, body := range []string{`{}`, `[]`, `"x"`, `null`, `{"update_id":"x"}`, `{"update_id":-4}`} {
		w, events := push(a, []byte(body), nil)
		if w.Code != 200 || len(events) != 1 || events[0].Kind != chat.EventOther || string(events[0].Raw) != body {
			t.Errorf("%s = %d with %+v, want it recorded as other", body, w.Code, events)
			continue
		}
		_, again := push(a, []byte(body), nil)
		if id := events[0].ID; id == "" || ids[id] || again[0].ID != id {
			t.Errorf("%s has id %q, then %q, want its own, the same each time", body, id, again[0].ID)
		}
		ids[events[0].ID] = true
	}
	if w, events := push(a, []byte(`{"update_id":1`), nil); w.Code != http.StatusBadRequest || len(events) > 0 {
		t.Errorf("broken JSON = %d with %d events, want 400 with none", w.Code, len(events))
	}
}

func TestWebhook_takesAnUpdateWithoutItsChatAsOther(t *testing.T) {
	a := newAdapter(t, config(""))
	for _, body := range []string{
		`{"update_id":1,"message":{"message_id":7,"migrate_to_chat_id":-100300}}`,
		`{"update_id":1,"message":{"message_id":7,"chat":{"id":0},"migrate_to_chat_id":-100300}}`,
		`{"update_id":1,"message":{"message_id":7,"chat":{"id":0},"from":{"id":5},"text":"hi"}}`,
		`{"update_id":1,"channel_post":{"message_id":7,"chat":null,"text":"hi"}}`,
		`{"update_id":1,"edited_message":{"message_id":7,"from":{"id":5},"text":"hi"}}`,
		`{"update_id":1,"message":{"message_id":7,"left_chat_member":{"id":5}}}`,
		`{"update_id":1,"message_reaction":{"message_id":7,"user":{"id":5},"new_reaction":[]}}`,
		`{"update_id":1,"my_chat_member":{"from":{"id":5},"new_chat_member":{"status":"kicked"}}}`,
		`{"update_id":1,"callback_query":{"id":"a","data":"yes"}}`,
	} {
		_, events := push(a, []byte(body), nil)
		if len(events) != 1 || events[0].Kind != chat.EventOther || events[0].MovedTo != "" || string(events[0].Raw) != body {
			t.Errorf("%s gives %+v, want it recorded as other", body, events)
		}
	}
}

func FuzzUpdate(f *testing.F) {
	raw, err := os.ReadFile("testdata/updates.json")
	if err != nil {
		f.Fatal(err)
	}
	var updates []struct {
		Update json.RawMessage `json:"update"`
	}
	if err := json.Unmarshal(raw, &updates); err != nil {
		f.Fatal(err)
	}
	for _, u := range updates {
		f.Add([]byte(u.Update))
	}
	for _, s := range []string{``, `null`, `[]`, `{"update_id":1e3}`, `{"callback_query":{}}`, `{"message":{"chat":null}}`, `{"update_id":1,"message":{"text":"\ud800"}}`} {
		f.Add([]byte(s))
	}
	a, err := telegram.New("support", config(""), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w, events := push(a, body, nil)
		if json.Valid(body) != (w.Code == http.StatusOK) {
			t.Fatalf("status = %d for %q", w.Code, body)
		}
		for _, e := range events {
			if e.ID == "" || e.Source.Bot != "support" || e.At.IsZero() || !bytes.Equal(e.Raw, body) {
				t.Errorf("event = %+v, want id, bot, time and raw form", e)
			}
			if e.Source.Chat == "" && e.Kind != chat.EventOther {
				t.Errorf("event = %+v, want other without a chat", e)
			}
			if _, err := json.Marshal(e); err != nil {
				t.Errorf("event can't be stored: %v", err)
			}
		}
	})
}
