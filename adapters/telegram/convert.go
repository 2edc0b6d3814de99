package telegram

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/chatgateway/gateway/chat"
)

// Accounts that stand in for somebody else (Bot API, Message.from; read
// 2026-11-30).
const (
	anonymousAdmin  = 1087968824 // GroupAnonymousBot: an admin who writes as the group
	channelIdentity = 136817688  // Channel_Bot: somebody who writes as a channel
	telegramItself  = 777000     // service notes, and a channel's posts in its discussion group
)

// lastDate is the end of the year 9999, after which a time has no JSON form.
const lastDate = 253402300799

// incoming is a converted update.
type incoming struct {
	event    chat.Event
	callback string // the button press to be answered, if it is one
	unread   bool   // it is no update that this package can read
}

// convert turns an update into an event. One that can't be read, or is of an
// unknown kind, becomes chat.EventOther: it is kept and never blocks the rest.
func convert(bot chat.BotName, id string, raw json.RawMessage, now time.Time) incoming {
	c := conversion{bot: bot, now: now}
	var u update
	in := incoming{event: chat.Event{Kind: chat.EventOther, Source: chat.Target{Bot: bot}, At: now}}
	if err := json.Unmarshal(raw, &u); err == nil {
		in = c.update(u, in)
	} else {
		in.unread = true
	}
	if in.event.Source.Chat == "" {
		// What happened nowhere can be neither answered nor followed.
		in.event.Kind, in.event.MovedTo = chat.EventOther, ""
	}
	in.event.ID = id
	in.event.Raw = raw
	return in
}

// conversion holds what every event of a batch has in common.
type conversion struct {
	bot chat.BotName
	now time.Time
}

func (c conversion) update(u update, unknown incoming) incoming {
	switch {
	case u.Message != nil:
		return incoming{event: c.message(u.Message)}
	case u.ChannelPost != nil:
		return incoming{event: c.message(u.ChannelPost)}
	case u.EditedMessage != nil:
		return incoming{event: c.edited(u.EditedMessage)}
	case u.EditedChannelPost != nil:
		return incoming{event: c.edited(u.EditedChannelPost)}
	case u.CallbackQuery != nil:
		return incoming{event: c.button(u.CallbackQuery), callback: u.CallbackQuery.ID}
	case u.Reaction != nil:
		return incoming{event: c.reaction(u.Reaction)}
	case u.MyChatMember != nil:
		return incoming{event: c.membership(u.MyChatMember)}
	case u.ChatMember != nil:
		return incoming{event: c.membership(u.ChatMember)}
	}
	return unknown
}

func (c conversion) message(m *message) chat.Event {
	e := chat.Event{
		Kind:    chat.EventOther,
		Source:  c.source(m),
		Text:    m.Text,
		Message: decimal(m.ID),
		At:      c.at(m.Date),
	}
	if e.Text == "" {
		e.Text = m.Caption
	}
	e.Sender, e.FromBot = sender(m)
	switch {
	case m.MigrateTo != 0:
		e.Kind, e.MovedTo = chat.EventMoved, chat.ChatID(decimal(m.MigrateTo))
	case m.MigrateFrom != 0: // the new chat's word for the same move
		e.Kind, e.MovedTo = chat.EventMoved, e.Source.Chat
		e.Source.Chat = chat.ChatID(decimal(m.MigrateFrom))
	case bool(m.NewChatMembers) || bool(m.LeftChatMember):
		e.Kind = chat.EventMembership
	case m.posted():
		e.Kind = chat.EventMessage
	}
	return e
}

func (c conversion) edited(m *message) chat.Event {
	e := c.message(m)
	if e.Kind == chat.EventMessage {
		e.Kind = chat.EventEdited
	}
	if m.EditDate != 0 {
		e.At = c.at(m.EditDate)
	}
	return e
}

// button takes a press on an inline message, whose chat is never told, as
// coming from the private chat with the person.
func (c conversion) button(q *callback) chat.Event {
	e := chat.Event{
		Kind:    chat.EventButton,
		Source:  chat.Target{Bot: c.bot, Chat: chat.ChatID(decimal(q.From.ID))},
		Sender:  identity(q.From.ID),
		FromBot: q.From.IsBot,
		Message: q.InlineMessage,
		Data:    q.Data,
		At:      c.now,
	}
	if e.Data == "" {
		e.Data = q.Game
	}
	if q.Message != nil {
		e.Source, e.Message = c.source(q.Message), decimal(q.Message.ID)
	}
	return e
}

func (c conversion) reaction(r *reaction) chat.Event {
	e := chat.Event{
		Kind:    chat.EventReaction,
		Source:  chat.Target{Bot: c.bot, Chat: chat.ChatID(decimal(r.Chat.ID))},
		Message: decimal(r.MessageID),
		At:      c.at(r.Date),
	}
	switch {
	case r.ActorChat != nil:
		e.Sender = identity(r.ActorChat.ID)
	case r.User != nil:
		e.Sender, e.FromBot = identity(r.User.ID), r.User.IsBot
	}
	var shown []string
	for _, k := range r.New {
		switch {
		case k.Emoji != "":
			shown = append(shown, k.Emoji)
		case k.CustomEmoji != "":
			shown = append(shown, "custom:"+k.CustomEmoji)
		default:
			shown = append(shown, k.Type)
		}
	}
	e.Text = strings.Join(shown, " ")
	return e
}

// membership puts the new status ("member", "kicked" …) in Data.
func (c conversion) membership(m *membership) chat.Event {
	return chat.Event{
		Kind:    chat.EventMembership,
		Source:  chat.Target{Bot: c.bot, Chat: chat.ChatID(decimal(m.Chat.ID))},
		Sender:  identity(m.From.ID),
		FromBot: m.From.IsBot,
		Data:    m.New.Status,
		At:      c.at(m.Date),
	}
}

// source names the thread only in a forum: in other groups the field tells
// which message began a chain of replies. The general topic is the chat itself.
func (c conversion) source(m *message) chat.Target {
	t := chat.Target{Bot: c.bot, Chat: chat.ChatID(decimal(m.Chat.ID))}
	if thread := decimal(m.Thread); m.IsTopicMessage && thread != generalTopic {
		t.Thread = chat.ThreadID(thread)
	}
	return t
}

// sender says who wrote m, and whether that is a bot. Where somebody writes as
// a group or a channel, that is who wrote, and no bot.
func sender(m *message) (chat.Identity, bool) {
	switch {
	case m.SenderChat != nil:
		return identity(m.SenderChat.ID), false
	case m.From == nil:
		return identity(m.Chat.ID), false
	case m.From.ID == anonymousAdmin, m.From.ID == channelIdentity:
		return identity(m.Chat.ID), false
	}
	return identity(m.From.ID), m.From.IsBot || m.From.ID == telegramItself
}

func (c conversion) at(unix int64) time.Time {
	if unix <= 0 || unix > lastDate {
		return c.now
	}
	return time.Unix(unix, 0).UTC()
}

func identity(id int64) chat.Identity {
	if id == 0 {
		return ""
	}
	return chat.NewIdentity(chat.Telegram, decimal(id))
}

// decimal is empty for 0, which no id of Telegram is.
func decimal(id int64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatInt(id, 10)
}
