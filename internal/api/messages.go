package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/outbox"
)

// maxKey bounds an idempotency key, in bytes.
const maxKey = 255

// NewMessage is the body of POST /api/messages.
type NewMessage struct {
	Target         string     `json:"target"`
	Text           string     `json:"text"`
	Format         string     `json:"format,omitempty"`          // plain (the default) or markdown
	Priority       string     `json:"priority,omitempty"`        // reply, proactive (the default) or bulk
	IdempotencyKey string     `json:"idempotency_key,omitempty"` // the Idempotency-Key header is the same thing
	ReplyTo        string     `json:"reply_to,omitempty"`        // the platform's id of a message
	Silent         bool       `json:"silent,omitempty"`
	NotBefore      *time.Time `json:"not_before,omitempty"`
	ExpiresAt      *time.Time `json:"expires_at,omitempty"`
}

// Accepted is the answer to it.
type Accepted struct {
	ID        string `json:"id"`
	Duplicate bool   `json:"duplicate"`
}

// Message is the answer of GET /api/messages/{id}.
type Message struct {
	ID             string     `json:"id"`
	Target         string     `json:"target"`
	State          string     `json:"state"`
	Reason         string     `json:"reason"`
	Priority       string     `json:"priority"`
	MayBeDuplicate bool       `json:"may_be_duplicate"`
	Parts          []Part     `json:"parts"`
	Attempts       []Attempt  `json:"attempts"`
	CreatedAt      time.Time  `json:"created_at"`
	EndedAt        *time.Time `json:"ended_at,omitempty"`
	NotBefore      *time.Time `json:"not_before,omitempty"`
	ExpiresAt      *time.Time `json:"expires_at,omitempty"`
	Due            *time.Time `json:"due,omitempty"` // when a waiting message is tried again
}

// Part is one platform call's worth of a message.
type Part struct {
	State   string `json:"state"`   // sent, or the message's
	Receipt string `json:"receipt"` // the platform's id; empty until it is sent
}

// Attempt is one line of a message's time line.
type Attempt struct {
	At         time.Time `json:"at"`
	Part       int       `json:"part"` // from 0
	Kind       string    `json:"kind"` // sent, or the kind of failure
	Code       string    `json:"code,omitempty"`
	RetryAfter float64   `json:"retry_after,omitempty"` // seconds
	Detail     string    `json:"detail,omitempty"`
}

func (s *server) postMessage(w http.ResponseWriter, r *http.Request) {
	var m NewMessage
	if err := decode(w, r, &m); err != nil {
		s.fail(w, r, err)
		return
	}
	key, err := headerKey(m.IdempotencyKey, r.Header)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	m.IdempotencyKey = key
	q, err := Request(m, s.Resolve)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	ticket, err := s.Messages.Deliver(r.Context(), q)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Location", "/api/messages/"+ticket.ID.String())
	respond(w, http.StatusAccepted, Accepted{ID: ticket.ID.String(), Duplicate: ticket.Duplicate})
}

// Request checks what a client wrote and gives what the router takes. Its
// errors are for the client to read.
func Request(m NewMessage, resolve func(string) (chat.Target, error)) (delivery.Request, error) {
	target, err := resolve(m.Target)
	if err != nil {
		return delivery.Request{}, err
	}
	format, err := chat.ParseFormat(m.Format)
	if err != nil {
		return delivery.Request{}, &requestError{"bad_format", err.Error()}
	}
	priority, err := outbox.ParsePriority(m.Priority)
	if err != nil {
		return delivery.Request{}, &requestError{"bad_priority", err.Error()}
	}
	if len(m.IdempotencyKey) > maxKey || strings.ContainsFunc(m.IdempotencyKey, unprintable) {
		return delivery.Request{}, &requestError{"bad_idempotency_key", "an idempotency key has 1 to 255 printable ASCII characters"}
	}
	q := delivery.Request{
		Target: target, Priority: priority, Key: m.IdempotencyKey,
		Message: chat.Message{Text: m.Text, Format: format, ReplyTo: m.ReplyTo, Silent: m.Silent},
	}
	if m.NotBefore != nil {
		q.NotBefore = *m.NotBefore
	}
	if m.ExpiresAt != nil {
		q.ExpiresAt = *m.ExpiresAt
	}
	return q, nil
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }

// headerKey joins the two places of an idempotency key. The header may be
// quoted; if both are given they must agree.
func headerKey(body string, h http.Header) (string, error) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return body, nil
	}
	if len(values) > 1 {
		return "", &requestError{"bad_idempotency_key", "the Idempotency-Key header is there more than once"}
	}
	key := strings.TrimSpace(values[0])
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	if key == "" || body != "" && key != body {
		return "", &requestError{"bad_idempotency_key", "the Idempotency-Key header is empty or differs from the body's key"}
	}
	return key, nil
}

func (s *server) getMessage(w http.ResponseWriter, r *http.Request) {
	id, err := outbox.ParseID(r.PathValue("id"))
	if err != nil {
		problem(w, http.StatusNotFound, "not_found", err.Error())
		return
	}
	e, ok, err := s.Messages.Message(r.Context(), id)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if !ok {
		problem(w, http.StatusNotFound, "not_found", "there is no message "+id.String()+"; it may have been forgotten after its retention")
		return
	}
	respond(w, http.StatusOK, view(e))
}

func view(e outbox.Entry) Message {
	m := Message{
		ID: e.ID.String(), Target: e.Target.String(), State: e.State.String(), Reason: e.Reason,
		Priority: e.Priority.String(), MayBeDuplicate: e.MayBeDuplicate, CreatedAt: e.CreatedAt.UTC(),
		EndedAt: at(e.EndedAt), NotBefore: at(e.NotBefore), ExpiresAt: at(e.ExpiresAt),
		Parts: make([]Part, len(e.Parts)), Attempts: make([]Attempt, len(e.Log)),
	}
	if e.State == outbox.Waiting {
		m.Due = at(e.Due)
	}
	for i := range e.Parts {
		m.Parts[i] = Part{State: m.State}
		if i < len(e.Receipts) {
			m.Parts[i] = Part{State: outbox.Sent.String(), Receipt: string(e.Receipts[i])}
		}
	}
	for i, a := range e.Log {
		m.Attempts[i] = Attempt{
			At: a.At.UTC(), Part: a.Part, Kind: a.Kind, Code: a.Code, RetryAfter: a.RetryAfter.Seconds(), Detail: a.Detail,
		}
	}
	return m
}

func at(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
