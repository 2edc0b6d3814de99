package telegram

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Call is one request to the Bot API.
type Call struct {
	Bot        int64     `json:"bot"`
	Method     string    `json:"method"`
	ChatID     int64     `json:"chat_id,omitempty"`
	Status     int       `json:"status"` // 0: the connection was cut without an answer
	At         time.Time `json:"at"`     // when it was decided, on the simulator's clock
	RetryAfter int       `json:"retry_after,omitempty"`
	Error      string    `json:"error,omitempty"`
	Fault      FaultKind `json:"fault,omitempty"`
}

// Message is one message in a chat.
type Message struct {
	Bot         int64           `json:"bot"`
	ChatID      int64           `json:"chat_id"`
	MessageID   int64           `json:"message_id"`
	ThreadID    int64           `json:"thread_id,omitempty"`
	FromBot     bool            `json:"from_bot"`
	Sender      string          `json:"sender,omitempty"` // the user's first name
	SenderID    int64           `json:"sender_id,omitempty"`
	Method      string          `json:"method,omitempty"` // what the bot called
	Text        string          `json:"text"`             // or the caption; markup is parsed away
	ParseMode   string          `json:"parse_mode,omitempty"`
	Entities    []Entity        `json:"entities,omitempty"`
	ReplyTo     int64           `json:"reply_to,omitempty"`
	ReplyMarkup json.RawMessage `json:"reply_markup,omitempty"`
	File        *File           `json:"file,omitempty"`
	Album       string          `json:"media_group_id,omitempty"`
	Service     json.RawMessage `json:"service,omitempty"` // fields of a service message
	At          time.Time       `json:"at"`                // when it was accepted, on the simulator's clock
	Edits       []Edit          `json:"edits,omitempty"`   // earlier texts, oldest first
	EditedAt    time.Time       `json:"edited_at,omitzero"`
	Deleted     bool            `json:"deleted,omitempty"`
	BotReaction string          `json:"bot_reaction,omitempty"`
	Reaction    string          `json:"reaction,omitempty"` // the user's
	Lost        bool            `json:"lost,omitempty"`     // accepted, but a fault kept the answer from the bot
}

// Edit is what a message said before it was edited.
type Edit struct {
	Text string    `json:"text"`
	At   time.Time `json:"at"` // when it was replaced
}

// Stats are counts since the start or the last reset.
type Stats struct {
	Calls          map[string]int `json:"calls"`           // per method
	Statuses       map[int]int    `json:"statuses"`        // per HTTP status; 0 counts cut connections
	TooMany        int            `json:"too_many"`        // answers with status 429
	EarlyCalls     int            `json:"early_calls"`     // calls inside a cooldown: the bot ignored a retry_after
	Messages       int            `json:"messages"`        // accepted from bots
	PendingUpdates int            `json:"pending_updates"` // over all bots
	WaitingPolls   int            `json:"waiting_polls"`   // long polls that are open now
	DroppedEntries int            `json:"dropped_entries"` // calls and messages forgotten because of the bounds
	UpdatesFetched int            `json:"updates_fetched"` // delivered by polling or webhook, copies included
	FirstSendAt    time.Time      `json:"first_send_at,omitzero"`
	LastSendAt     time.Time      `json:"last_send_at,omitzero"`
}

// ring keeps the last size entries, oldest first.
type ring[T any] struct {
	size    int
	start   int
	entries []T
	total   int
}

// add appends v and returns the entry that had to go for it.
func (r *ring[T]) add(v T) (old T, evicted bool) {
	r.total++
	if len(r.entries) < r.size {
		r.entries = append(r.entries, v)
		return old, false
	}
	old = r.entries[r.start]
	r.entries[r.start] = v
	r.start = (r.start + 1) % r.size
	return old, true
}

// each calls f from the oldest to the newest entry.
func (r *ring[T]) each(f func(T)) {
	for i := range r.entries {
		f(r.entries[(r.start+i)%len(r.entries)])
	}
}

func (r *ring[T]) dropped() int { return r.total - len(r.entries) }

// snapshot copies m for a reader outside the lock.
func (m *Message) snapshot() Message {
	c := *m
	c.Edits = slices.Clone(m.Edits)
	return c
}

// Messages returns what bots sent to a chat, in order; chat 0 means all chats. Deleted messages stay and say so.
func (s *Server) Messages(chatID int64) []Message { return s.pick(chatID, true) }

// History returns everything that was said in a chat, in order, users' messages included.
func (s *Server) History(chatID int64) []Message { return s.pick(chatID, false) }

func (s *Server) pick(chatID int64, botOnly bool) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Message{}
	add := func(m *Message) {
		if m.FromBot || !botOnly {
			list = append(list, m.snapshot())
		}
	}
	if chatID == 0 {
		s.messages.each(add)
		return list
	}
	for _, b := range s.botOrder {
		if rm := b.rooms[chatID]; rm != nil {
			for _, m := range rm.list {
				add(m)
			}
		}
	}
	return list
}

// sentTo counts the accepted messages to a chat, or to all.
func (s *Server) sentTo(chatID int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, b := range s.botOrder {
		if chatID == 0 {
			n += b.sent
		} else if rm := b.rooms[chatID]; rm != nil {
			n += rm.sent
		}
	}
	return n
}

// Calls returns every remembered request, in the order in which they were decided.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Call, 0, len(s.calls.entries))
	s.calls.each(func(c Call) { list = append(list, c) })
	return list
}

// Stats returns the counts. It is cheap enough for [Server.Wait].
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Calls: map[string]int{}, Statuses: map[int]int{}, DroppedEntries: s.calls.dropped() + s.messages.dropped()}
	maps.Copy(st.Calls, s.perMethod)
	maps.Copy(st.Statuses, s.perStatus)
	st.TooMany = st.Statuses[http.StatusTooManyRequests]
	for _, b := range s.botOrder {
		st.Messages += b.sent
		st.EarlyCalls += b.early
		st.PendingUpdates += len(b.queue)
		st.UpdatesFetched += b.fetched
		if b.poll != nil {
			st.WaitingPolls++
		}
		if !b.firstSend.IsZero() && (st.FirstSendAt.IsZero() || b.firstSend.Before(st.FirstSendAt)) {
			st.FirstSendAt = b.firstSend
		}
		if b.lastSend.After(st.LastSendAt) {
			st.LastSendAt = b.lastSend
		}
	}
	return st
}

// record remembers a call.
func (s *Server) record(c Call) {
	s.calls.add(c)
	name := c.Method
	if _, known := s.methods[strings.ToLower(name)]; !known {
		name = "unknown" // Whatever clients invent must not grow the map.
	}
	s.perMethod[name]++
	s.perStatus[c.Status]++
	s.changedLocked()
}

// keep remembers a message in its chat and drops the oldest one of all where there are too many.
func (s *Server) keep(b *bot, rm *room, m *Message) {
	rm.list = append(rm.list, m)
	rm.byID[m.MessageID] = m
	if m.FromBot {
		rm.sent++
		b.sent++
		b.lastSend = m.At
		if b.firstSend.IsZero() {
			b.firstSend = m.At
		}
	}
	if old, evicted := s.messages.add(m); evicted {
		s.forget(old)
	}
	s.changedLocked(Event{Kind: "message", Bot: b.id, ChatID: rm.id, Entry: new(m.snapshot())})
}

// forget drops a chat's oldest message: chats and the ring have the same order.
func (s *Server) forget(m *Message) {
	for _, b := range s.botOrder {
		rm := b.rooms[m.ChatID]
		if b.id != m.Bot || rm == nil || len(rm.list) == 0 || rm.list[0] != m {
			continue
		}
		rm.list[0] = nil
		rm.list = rm.list[1:]
		delete(rm.byID, m.MessageID)
	}
}
