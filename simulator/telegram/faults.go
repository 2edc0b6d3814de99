package telegram

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// FaultKind names what goes wrong.
type FaultKind string

// The kinds of faults. The first group happens once unless Count says otherwise; the second, standing group lasts until
// it is removed, its Count is used up or its For has passed.
const (
	FaultStatus      FaultKind = "status"       // answer with Status, before anything is done
	FaultTruncate    FaultKind = "truncate"     // accept, then answer 200 with JSON that breaks off
	FaultLost        FaultKind = "lost"         // accept, then cut the connection without an answer
	FaultResetBefore FaultKind = "reset_before" // cut the connection before accepting
	FaultHang        FaultKind = "hang"         // hold for Duration, then cut the connection; Accept decides whether the call counted
	FaultDelay       FaultKind = "delay"        // hold for Duration, then go on as usual
	FaultDuplicate   FaultKind = "duplicate_update"

	FaultBlocked      FaultKind = "blocked"        // the user blocked the bot; ends when the user writes
	FaultDeactivated  FaultKind = "deactivated"    // the user's account is gone
	FaultKicked       FaultKind = "kicked"         // the bot was removed from the group
	FaultChatNotFound FaultKind = "chat_not_found" // as if the bot had never met the chat
	FaultMigrated     FaultKind = "migrated"       // the group has become MigrateTo
	FaultTopicClosed  FaultKind = "topic_closed"
	FaultTopicDeleted FaultKind = "topic_deleted"
	FaultDown         FaultKind = "down" // every request is answered with 502 and HTML
)

// Forever as a fault's Count means that it stays until it is removed.
const Forever = -1

// Fault makes matching calls go wrong. Empty fields match everything, with one exception: without a Method only calls
// that act are hit (no get…, no webhook set-up); "*" hits every method.
type Fault struct {
	ID     int64     `json:"id"`
	Kind   FaultKind `json:"kind"`
	Bot    string    `json:"bot,omitempty"`     // token, id or username
	Method string    `json:"method,omitempty"`  // case doesn't matter
	ChatID int64     `json:"chat_id,omitempty"` // chat states need it
	Thread int64     `json:"thread_id,omitempty"`
	Text   string    `json:"text,omitempty"`  // part of the text or caption
	Count  int       `json:"count,omitempty"` // 0: once, or for ever with a standing kind; see Forever

	Status      int                 `json:"status,omitempty"`
	Description string              `json:"description,omitempty"`
	Parameters  map[string]any      `json:"parameters,omitempty"` // such as {"retry_after": 1.5}
	Headers     map[string][]string `json:"headers,omitempty"`    // added to the answer
	Body        *string             `json:"body,omitempty"`       // replaces the JSON body
	HTML        bool                `json:"html,omitempty"`       // answer with an HTML error page
	RetryAfter  float64             `json:"retry_after,omitempty"`
	Cooldown    string              `json:"cooldown,omitempty"` // "chat" or "bot": a 429 is enforced until RetryAfter has passed

	Duration  time.Duration `json:"-"`                    // duration_ms in JSON
	For       time.Duration `json:"-"`                    // for_ms in JSON: the fault ends by itself after that time
	Accept    bool          `json:"accept,omitempty"`     // hang: accept the call first
	FIN       bool          `json:"fin,omitempty"`        // cut by an orderly close instead of a reset
	KeepBytes int           `json:"keep_bytes,omitempty"` // truncate: how much of the body is sent; 0: half
	MigrateTo int64         `json:"migrate_to,omitempty"`
	Silent    bool          `json:"silent,omitempty"`   // migrated: no service messages
	Announce  bool          `json:"announce,omitempty"` // blocked, kicked: send a my_chat_member update
	Hits      int           `json:"hits"`               // how often it has struck

	until time.Time
}

// faultJSON adds the durations, which JSON gives in milliseconds.
type faultJSON struct {
	*faultFields
	DurationMS float64 `json:"duration_ms,omitempty"`
	ForMS      float64 `json:"for_ms,omitempty"`
}

type faultFields Fault

// MarshalJSON gives durations in milliseconds.
func (f Fault) MarshalJSON() ([]byte, error) {
	fields := faultFields(f)
	return json.Marshal(faultJSON{&fields, milliseconds(f.Duration), milliseconds(f.For)})
}

// UnmarshalJSON reads durations in milliseconds.
func (f *Fault) UnmarshalJSON(data []byte) error {
	wire := faultJSON{faultFields: (*faultFields)(f)}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	f.Duration, f.For = fromMilliseconds(wire.DurationMS), fromMilliseconds(wire.ForMS)
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func fromMilliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// standing reports whether the fault is a state rather than an incident.
func (k FaultKind) standing() bool {
	switch k {
	case FaultBlocked, FaultDeactivated, FaultKicked, FaultChatNotFound, FaultMigrated, FaultTopicClosed,
		FaultTopicDeleted, FaultDown:
		return true
	case FaultStatus, FaultTruncate, FaultLost, FaultResetBefore, FaultHang, FaultDelay, FaultDuplicate:
	}
	return false
}

func (f *Fault) check() error {
	known := f.Kind.standing() || slices.Contains([]FaultKind{
		FaultStatus, FaultTruncate, FaultLost, FaultResetBefore, FaultHang, FaultDelay, FaultDuplicate,
	}, f.Kind)
	switch {
	case !known:
		return fmt.Errorf("kind: %q is not a kind of fault", f.Kind)
	case f.Kind == FaultStatus && (f.Status < 200 || f.Status > 599):
		return errors.New("status: want 200 to 599")
	case f.Kind == FaultMigrated && (f.MigrateTo == 0 || f.ChatID == 0):
		return errors.New("migrate_to and chat_id: both are needed")
	case f.Kind.standing() && f.Kind != FaultDown && f.ChatID == 0:
		return errors.New("chat_id: needed for the state of a chat")
	case f.Count < Forever:
		return errors.New("count: want -1 (for ever) or more")
	case f.Cooldown != "" && f.Cooldown != "chat" && f.Cooldown != "bot":
		return errors.New(`cooldown: want "chat" or "bot"`)
	}
	return nil
}

// Fault arms a fault and returns its id. Faults are tried in the order in which they were armed. The error says what
// is wrong with f.
func (s *Server) Fault(f Fault) (int64, error) {
	if err := f.check(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.faults) >= maxFaults {
		return 0, fmt.Errorf("arm fault: %w", ErrFull)
	}
	s.nextFault++
	f.ID, f.Hits = s.nextFault, 0
	if f.Count == 0 {
		f.Count = 1
		if f.Kind.standing() {
			f.Count = Forever
		}
	}
	if f.For > 0 {
		f.until = s.now().Add(f.For)
	}
	s.faults = append(s.faults, &f)
	if err := s.announce(&f); err != nil {
		return 0, err
	}
	s.faultChanged(&f)
	return f.ID, nil
}

// Faults lists the armed faults.
func (s *Server) Faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepFaults()
	list := []Fault{}
	for _, f := range s.faults {
		list = append(list, *f)
	}
	return list
}

// ClearFault removes one fault and reports whether it was armed.
func (s *Server) ClearFault(id int64) bool {
	return s.removeFaults(func(f *Fault) bool { return f.ID == id })
}

// ClearFaults removes all faults, chat states included, and ends all cooldowns.
func (s *Server) ClearFaults() {
	s.removeFaults(func(*Fault) bool { return true })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.botOrder {
		b.cool = cooldown{}
		for _, rm := range b.rooms {
			rm.cool = cooldown{}
		}
	}
}

func (s *Server) removeFaults(which func(*Fault) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	removed := false
	for _, f := range slices.Clone(s.faults) {
		if which(f) {
			s.dropFault(f)
			removed = true
		}
	}
	return removed
}

func (s *Server) dropFault(f *Fault) {
	s.faults = slices.DeleteFunc(s.faults, func(g *Fault) bool { return g == f })
	s.faultChanged(f)
}

func (s *Server) faultChanged(f *Fault) {
	events := []Event{{Kind: "fault", ChatID: f.ChatID}}
	for _, b := range s.botOrder {
		if rm := b.rooms[f.ChatID]; rm != nil {
			events = append(events, Event{Kind: "chat", Bot: b.id, ChatID: rm.id, Chat: new(s.publicChat(b, rm))})
		}
	}
	s.changedLocked(events...)
}

func (s *Server) sweepFaults() {
	now := s.now()
	for _, f := range slices.Clone(s.faults) {
		if !f.until.IsZero() && !now.Before(f.until) {
			s.dropFault(f)
		}
	}
}

// faultQuery describes a call to the faults.
type faultQuery struct {
	kinds  []FaultKind
	bot    *bot
	method string
	act    bool // the method acts on a chat
	chat   int64
	thread int64
	text   string
	id     int64 // only this fault; 0: any
}

// takeFault finds the first armed fault that matches and counts the hit.
func (s *Server) takeFault(q faultQuery) *Fault {
	if len(s.faults) == 0 {
		return nil
	}
	s.sweepFaults()
	for _, f := range s.faults {
		if !slices.Contains(q.kinds, f.Kind) || q.id != 0 && q.id != f.ID || !f.matches(q) {
			continue
		}
		f.Hits++
		hit := *f
		if f.Count > 0 {
			f.Count--
		}
		if f.Count == 0 {
			s.dropFault(f)
		}
		return &hit
	}
	return nil
}

func (f *Fault) matches(q faultQuery) bool {
	switch {
	case f.Kind != FaultDown && f.Method == "" && !q.act,
		f.Method != "" && f.Method != "*" && !strings.EqualFold(f.Method, q.method),
		f.ChatID != 0 && f.ChatID != q.chat,
		f.Thread != 0 && f.Thread != q.thread,
		f.Text != "" && !strings.Contains(q.text, f.Text):
		return false
	}
	return f.Bot == "" || q.bot != nil && (f.Bot == q.bot.token || f.Bot == fmt.Sprint(q.bot.id) || strings.EqualFold(f.Bot, q.bot.username))
}

// answer is what a status fault says.
func (f *Fault) answer() answer {
	if f.HTML {
		a := htmlError(f.Status)
		f.addHeaders(&a)
		return a
	}
	e := refuse(f.Status, "")
	if f.Status == http.StatusTooManyRequests && f.RetryAfter > 0 {
		e.description += ": retry after " + trimFloat(f.RetryAfter)
		e.parameters = map[string]any{"retry_after": f.RetryAfter}
	}
	if f.Description != "" {
		e.description = f.Description
	}
	if f.Parameters != nil {
		e.parameters = f.Parameters
	}
	a := refusal(e)
	f.addHeaders(&a)
	if f.Body != nil {
		a.body = []byte(*f.Body)
	}
	return a
}

func (f *Fault) addHeaders(a *answer) {
	for name, values := range f.Headers {
		a.header[http.CanonicalHeaderKey(name)] = values
	}
}
