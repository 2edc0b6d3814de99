package adaptertest

import (
	"io"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
)

// Platform describes one platform to the suite: how its adapter is built, and
// how its answers look.
type Platform struct {
	// New builds an adapter whose calls go to base, an address without a slash
	// at its end. It makes no call. If the adapter is an io.Closer, the suite
	// closes it.
	New func(t *testing.T, base string) adapters.Adapter

	Target  chat.Target // of every send; Bot is the adapter's
	Part    chat.Part   // what is sent
	Secrets []string    // the credentials that New uses; none may ever be shown

	// IsSend tells the call that carries a message from all others, which
	// Other answers. A nil Other answers them with 404.
	IsSend func(r *http.Request) bool
	Other  http.Handler

	// Sent is the answer to a message that was taken, and Receipt what Send
	// makes of it.
	Sent    Answer
	Receipt chat.Receipt

	// Refuse is the answer to a message that can never be sent, in the
	// platform's usual form, with text where its explanation stands.
	Refuse func(text string) Answer

	// Failures are the platform's answers and what each means.
	Failures []Failure

	// Unreadable are bodies that come with status 200 and say neither that the
	// message was taken nor that it was refused, beside the suite's own.
	Unreadable []string

	// Undone are the 5xx statuses of which the adapter takes it that nothing was
	// done.
	Undone []int

	Feed func(t *testing.T) Feed // nil for a platform from which nothing is fetched
	Push *Push                   // nil for a platform that pushes nothing
}

// Answer is what a server says to one call.
type Answer struct {
	Status int // 0 means 200
	Header http.Header
	Body   string
}

// ServeHTTP gives the answer, whatever was asked.
func (a Answer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	for key, values := range a.Header {
		for _, v := range values {
			w.Header().Add(key, v)
		}
	}
	if a.Status != 0 {
		w.WriteHeader(a.Status)
	}
	_, _ = io.WriteString(w, a.Body)
}

// JSON is an answer with a JSON body.
func JSON(status int, body string) Answer {
	return Answer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// HTML is what a front end says: a page that is not the platform's own.
func HTML(status int) Answer {
	return Answer{
		Status: status,
		Header: http.Header{"Content-Type": {"text/html"}},
		Body:   "<html><head><title>" + http.StatusText(status) + "</title></head><body><hr>nginx</body></html>",
	}
}

// Failure is one row of a platform's table of errors. Of Want, Kind, Scope,
// RetryAfter and MovedTo are compared.
type Failure struct {
	Name   string
	Answer Answer
	Want   chat.SendError
}

// Run checks an adapter against the contract of package adapters, over real
// connections to a server on the loopback interface.
func Run(t *testing.T, p Platform) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	s := suite{p}
	t.Run("send", s.testSend)
	t.Run("errors", s.testErrors)
	t.Run("connections", s.testConnections)
	if p.Feed != nil {
		t.Run("receive", s.testReceive)
	}
	if p.Push != nil {
		t.Run("push", s.testPush)
	}
	goleak.VerifyNone(t, before)
}

// soon is how long anything may take that happens at once.
const soon = 5 * time.Second

type suite struct {
	Platform
}
