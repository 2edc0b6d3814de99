package chat

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Format says how a message's text is to be read.
type Format int

// The formats of a text.
const (
	Plain    Format = iota // shown exactly as written
	Markdown               // CommonMark with GitHub's extensions
)

// String gives the word used in the API.
func (f Format) String() string {
	switch f {
	case Plain:
		return "plain"
	case Markdown:
		return "markdown"
	}
	return fmt.Sprintf("Format(%d)", int(f))
}

// ParseFormat reads the word used in the API; the empty string is [Plain].
func ParseFormat(s string) (Format, error) {
	switch s {
	case "", "plain":
		return Plain, nil
	case "markdown":
		return Markdown, nil
	}
	return 0, fmt.Errorf("format %q is neither plain nor markdown", s)
}

// Message is content to be sent, before it is split into parts. It is stored
// as JSON, so a field's name is part of the store's format.
type Message struct {
	Text    string
	Format  Format
	ReplyTo string // the platform's id of the message answered; empty for none
	Silent  bool   // delivered without a sound where the platform can

	Attachments []Attachment `json:",omitempty"` // sent after the text, in their order
}

// Attachment names a file that goes with a message. Its bytes are stored apart
// from the message, under their digest.
type Attachment struct {
	Digest string `json:"digest"` // SHA-256 of the bytes, in lower-case hex
	Name   string `json:"name"`   // the file's name as the reader sees it, without a folder
	Type   string `json:"type"`   // MIME type
	Size   int64  `json:"size"`   // bytes
}

// Part is one API call's worth of a message, rendered for its platform. It is
// stored as JSON, so a field's name is part of the store's format.
type Part struct {
	Text     string `json:"text"`
	Markup   string `json:"markup,omitempty"`   // the platform's own name of the markup in Text; empty for plain
	Fallback string `json:"fallback,omitempty"` // what to send instead when the markup is refused; empty for none
	ReplyTo  string `json:"reply_to,omitempty"`
	Silent   bool   `json:"silent,omitempty"`

	Attachment *Attachment `json:"attachment,omitempty"` // the part is this file, and Text its caption

	Key string `json:"-"` // the same for every attempt of this part, for platforms that take an idempotency key
	// Open gives the bytes of Attachment, anew at each call; nil without one. The
	// adapter closes what it opened.
	Open    func() (io.ReadCloser, error) `json:"-"`
	Leaving func()                        `json:"-"` // nil, or called right before bytes leave, by an adapter that is an adapters.Announcer
}

// Plainer reports whether p has a simpler form, and gives it: no markup, and
// no reply target, since either may be what the platform refused.
func (p Part) Plainer() (Part, bool) {
	if p.Markup == "" && p.ReplyTo == "" {
		return p, false
	}
	if p.Fallback != "" {
		p.Text = p.Fallback
	}
	p.Markup, p.Fallback, p.ReplyTo = "", "", ""
	return p, true
}

// Receipt is the platform's id of a part that was sent. Its text is opaque.
type Receipt string

// EventKind says what came in.
type EventKind int

// The kinds of events.
const (
	EventMessage    EventKind = iota + 1 // somebody wrote
	EventEdited                          // somebody changed a message
	EventButton                          // somebody pressed a button
	EventReaction                        // somebody reacted to a message
	EventMembership                      // the bot's or a person's place in a chat changed
	EventMoved                           // the chat got a new id; MovedTo holds it
	EventOther                           // something that no handler answers; kept in the journal
)

// String names the kind as it stands in the journal and in JSON.
func (k EventKind) String() string {
	switch k {
	case EventMessage:
		return "message"
	case EventEdited:
		return "edited"
	case EventButton:
		return "button"
	case EventReaction:
		return "reaction"
	case EventMembership:
		return "membership"
	case EventMoved:
		return "moved"
	case EventOther:
		return "other"
	}
	return fmt.Sprintf("EventKind(%d)", int(k))
}

// Event is something that came in. It is stored as JSON, so a field's name is
// part of the store's format.
type Event struct {
	ID      string          `json:"id"` // the platform's own id, by which a repeat is recognised
	Kind    EventKind       `json:"kind"`
	Source  Target          `json:"source"`
	Sender  Identity        `json:"sender,omitempty"` // empty where the platform names nobody
	FromBot bool            `json:"from_bot,omitempty"`
	Text    string          `json:"text,omitempty"`
	Message string          `json:"message,omitempty"` // the platform's id of the message it is about
	Data    string          `json:"data,omitempty"`    // what a pressed button carries
	MovedTo ChatID          `json:"moved_to,omitempty"`
	At      time.Time       `json:"at"`
	Raw     json.RawMessage `json:"raw,omitempty"` // as received
}
