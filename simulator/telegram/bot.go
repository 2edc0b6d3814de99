package telegram

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bot is one bot of the simulator.
type Bot struct {
	ID       int64  `json:"id"`
	Token    string `json:"token"`
	Username string `json:"username"`
	Webhook  string `json:"webhook,omitempty"`
	Polling  bool   `json:"polling"` // a long poll is open
}

// bot is a bot's world. The server's lock guards it.
type bot struct {
	id       int64
	token    string
	username string
	since    time.Time

	rooms   map[int64]*room
	bucket  gcra
	cool    cooldown
	early   int // calls inside a cooldown
	sent    int
	fetched int

	firstSend, lastSend time.Time

	queue      []*update
	nextUpdate int64
	allowed    []string // nil: the default set
	poll       *poll
	lastPoll   pollMark
	lastKick   time.Time // when a poll was last ended by another
	hook       webhook
	queries    map[string]time.Time
	queryOrder []string
	commands   map[string]json.RawMessage
	loggedOut  bool
}

func newBot(token, username string, now time.Time) *bot {
	prefix, _, _ := strings.Cut(token, ":")
	id, _ := strconv.ParseInt(prefix, 10, 64) // The token was checked to start with at most 15 digits.
	return &bot{
		id: id, token: token, username: cmp.Or(username, fmt.Sprintf("sim%d_bot", id)), since: now,
		rooms: map[int64]*room{}, queries: map[string]time.Time{}, commands: map[string]json.RawMessage{},
	}
}

func (b *bot) public() Bot {
	return Bot{ID: b.id, Token: b.token, Username: b.username, Webhook: b.hook.url, Polling: b.poll != nil}
}

// chatKind is the platform's word for a kind of chat.
type chatKind string

const (
	chatPrivate    chatKind = "private"
	chatGroup      chatKind = "group"
	chatSupergroup chatKind = "supergroup"
	chatChannel    chatKind = "channel"
)

// Chat is one chat of one bot.
type Chat struct {
	Bot      int64  `json:"bot"`
	ID       int64  `json:"id"`
	Type     string `json:"type"`
	Name     string `json:"name"` // the user's first name, or the group's title
	Username string `json:"username,omitempty"`
	Messages int    `json:"messages"`
	State    string `json:"state,omitempty"` // a standing fault, such as "blocked"
}

// room is a chat as one bot sees it. The server's lock guards it.
type room struct {
	id       int64
	kind     chatKind
	name     string
	username string
	topics   map[int64]bool
	nextID   int64
	list     []*Message
	byID     map[int64]*Message
	sent     int
	bucket   gcra
	window   window
	cool     cooldown
}

// kindOf guesses a chat's kind from its id.
func kindOf(id int64) chatKind {
	switch {
	case id > 0:
		return chatPrivate
	case id <= -1_000_000_000_000:
		return chatSupergroup
	default:
		return chatGroup
	}
}

// room returns a chat, making it where it doesn't exist; nil when there are too many.
func (s *Server) room(b *bot, id int64, kind chatKind, name, username string) *room {
	if rm := b.rooms[id]; rm != nil {
		rm.name, rm.username = cmp.Or(name, rm.name), cmp.Or(username, rm.username)
		return rm
	}
	if len(b.rooms) >= maxRooms {
		return nil
	}
	kind = cmp.Or(kind, kindOf(id))
	if name == "" {
		name = fmt.Sprintf("Group %d", -id)
		if kind == chatPrivate {
			name = fmt.Sprintf("User %d", id)
		}
	}
	rm := &room{id: id, kind: kind, name: name, username: username, topics: map[int64]bool{}, byID: map[int64]*Message{}}
	b.rooms[id] = rm
	s.changedLocked(Event{Kind: "chat", Bot: b.id, ChatID: id, Chat: new(s.publicChat(b, rm))})
	return rm
}

func (s *Server) publicChat(b *bot, rm *room) Chat {
	c := Chat{Bot: b.id, ID: rm.id, Type: string(rm.kind), Name: rm.name, Username: rm.username, Messages: len(rm.list)}
	for _, f := range s.faults {
		if f.Kind.standing() && f.Kind != FaultDown && f.Kind != FaultDuplicate && f.ChatID == rm.id {
			c.State = string(f.Kind)
		}
	}
	return c
}

// Chats lists the chats of a bot (by token, id or username; empty: all bots), lowest id first.
func (s *Server) Chats(bot string) []Chat {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Chat{}
	only, err := s.findBot(bot)
	if err != nil {
		return list
	}
	for _, b := range s.botOrder {
		if bot != "" && b != only {
			continue
		}
		for _, rm := range b.rooms {
			list = append(list, s.publicChat(b, rm))
		}
	}
	slices.SortFunc(list, func(a, b Chat) int { return cmp.Or(cmp.Compare(a.Bot, b.Bot), cmp.Compare(a.ID, b.ID)) })
	return list
}

// newMessage makes the next message of a chat without keeping it yet.
func (rm *room) newMessage(b *bot, at time.Time) *Message {
	rm.nextID++
	return &Message{Bot: b.id, ChatID: rm.id, MessageID: rm.nextID, At: at}
}
