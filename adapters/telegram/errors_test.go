package telegram_test

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/chatgateway/gateway/adapters/adaptertest"
	"github.com/chatgateway/gateway/chat"
)

// failures are the recorded answers in testdata/errors.json, and the forms of
// a wait.
func failures(t *testing.T) []adaptertest.Failure {
	t.Helper()
	raw, err := os.ReadFile("testdata/errors.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Kind   string          `json:"kind"`
		Status int             `json:"status"`
		Body   json.RawMessage `json:"body"`
	}
	if err := json.Unmarshal(raw, &rows); err != nil {
		t.Fatal(err)
	}
	all := waits()
	for _, row := range rows {
		var body struct {
			Description string `json:"description"`
		}
		if err := json.Unmarshal(row.Body, &body); err != nil {
			t.Fatal(err)
		}
		all = append(all, adaptertest.Failure{
			Name:   body.Description,
			Answer: adaptertest.JSON(row.Status, string(row.Body)),
			Want:   chat.SendError{Kind: kindNamed(t, row.Kind)},
		})
	}
	return all
}

func kindNamed(t *testing.T, name string) chat.Kind {
	t.Helper()
	for k := chat.Uncertain; k <= chat.Unauthorized; k++ {
		if k.String() == name {
			return k
		}
	}
	t.Fatalf("no kind is called %q", name)
	return 0
}

func waits() []adaptertest.Failure {
	limited := func(d time.Duration) chat.SendError { return chat.SendError{Kind: chat.RateLimited, RetryAfter: d} }
	row := func(name string, a adaptertest.Answer, want chat.SendError) adaptertest.Failure {
		return adaptertest.Failure{Name: name, Answer: a, Want: want}
	}
	header := func(a adaptertest.Answer, value string) adaptertest.Answer {
		a.Header = http.Header{"Retry-After": {value}}
		return a
	}
	return []adaptertest.Failure{
		row("retry_after", refusal(429, "Too Many Requests: retry after 37", `{"retry_after":37}`), limited(37*time.Second)),
		row("fractional retry_after", refusal(429, "Too Many Requests", `{"retry_after":1.5}`), limited(1500*time.Millisecond)),
		row("tiny retry_after", refusal(429, "Too Many Requests", `{"retry_after":0.0004}`), limited(50*time.Millisecond)),
		row("retry_after as text", refusal(429, "Too Many Requests", `{"retry_after":"3"}`), limited(3*time.Second)),
		row("absurd retry_after, sane text", refusal(429, "Too Many Requests: retry after 4", `{"retry_after":-1}`), limited(4*time.Second)),
		row("a time stamp for retry_after", refusal(429, "Too Many Requests", `{"retry_after":1796040000}`), limited(0)),
		row("retry_after before the header", header(refusal(429, "Too Many Requests", `{"retry_after":5}`), "60"), limited(5*time.Second)),
		row("the header before the text", header(refusal(429, "Too Many Requests: retry after 9", ""), "6"), limited(6*time.Second)),
		row("the text alone", refusal(429, "Too Many Requests: retry after 9", ""), limited(9*time.Second)),
		row("no hint", refusal(429, "Too Many Requests", ""), limited(0)),
		row(
			"status 200 with code 429",
			adaptertest.JSON(200, `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 2","parameters":{"retry_after":2}}`),
			limited(2*time.Second),
		),
		row(
			"a page with a wait in it",
			adaptertest.Answer{Status: 429, Body: "<html>Too Many Requests: retry after 8</html>"},
			chat.SendError{Kind: chat.RateLimited, Scope: chat.ScopeBot, RetryAfter: 8 * time.Second},
		),
		row(
			"upgraded to a supergroup",
			refusal(400, "Bad Request: group chat was upgraded to a supergroup chat", `{"migrate_to_chat_id":-1001557900000}`),
			chat.SendError{Kind: chat.Moved, MovedTo: "-1001557900000"},
		),
	}
}
