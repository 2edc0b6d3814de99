package telegram

import (
	"encoding/json"
	"strconv"
	"strings"
)

// access finds the chat that a call names and checks that the bot may act there.
func (s *Server) access(c *call) (*room, *apiError) {
	raw := strings.TrimSpace(c.params.text("chat_id"))
	if raw == "" {
		return nil, badRequest("chat_id is empty")
	}
	notFound := badRequest("chat not found")
	id, err := strconv.ParseInt(raw, 10, 64)
	if err != nil {
		for _, rm := range c.bot.rooms {
			if rm.username != "" && strings.EqualFold("@"+rm.username, raw) {
				id = rm.id
			}
		}
	}
	if id == 0 {
		return nil, notFound
	}
	if e := s.standing(c, id); e != nil {
		return nil, e
	}
	if c.bot.id == id {
		return nil, forbidden("the bot can't send messages to the bot")
	}
	if c.bot.rooms[id] == nil && s.opts.StrictChats {
		return nil, notFound
	}
	rm := s.room(c.bot, id, "", "", "")
	if rm == nil {
		return nil, notFound
	}
	return rm, nil
}

// standing answers for a chat that can't be reached. A block is found out later than the rest: see blocked.
func (s *Server) standing(c *call, id int64) *apiError {
	q := c.query(FaultChatNotFound, FaultMigrated, FaultDeactivated, FaultKicked)
	q.chat, q.act = id, true
	f := s.takeFault(q)
	if f == nil {
		return nil
	}
	switch f.Kind { //nolint:exhaustive // the query names the four kinds
	case FaultMigrated:
		return errMigrated(f.MigrateTo)
	case FaultDeactivated:
		return forbidden("user is deactivated")
	case FaultKicked:
		kind := kindOf(id)
		if rm := c.bot.rooms[id]; rm != nil {
			kind = rm.kind
		}
		return forbidden("bot was kicked from the " + string(kind) + " chat")
	}
	return badRequest("chat not found")
}

// blocked is the refusal that only the user's own server knows of, after limits were counted.
func (s *Server) blocked(c *call, rm *room) *apiError {
	q := c.query(FaultBlocked)
	q.chat, q.act = rm.id, true
	if s.takeFault(q) != nil {
		return forbidden("bot was blocked by the user")
	}
	return nil
}

// topic checks the call's topic.
func (s *Server) topic(c *call, rm *room) *apiError {
	id := c.params.number("message_thread_id")
	if id == 0 {
		return nil
	}
	q := c.query(FaultTopicClosed, FaultTopicDeleted)
	q.chat, q.act = rm.id, true
	if f := s.takeFault(q); f != nil {
		if f.Kind == FaultTopicClosed {
			return badRequest("TOPIC_CLOSED")
		}
		return badRequest("message thread not found")
	}
	// Topic 1 is "General", which is written to without an id (Bot API behaviour; read 2026-11-30).
	if id <= 1 || !rm.topics[id] && s.opts.StrictChats {
		return badRequest("message thread not found")
	}
	return nil
}

// replyTarget finds the message that the call answers; 0 for none.
func (c *call) replyTarget(rm *room) (int64, *apiError) {
	id, lenient := c.params.number("reply_to_message_id"), c.params.flag("allow_sending_without_reply")
	if raw := c.params.text("reply_parameters"); raw != "" {
		var p struct {
			MessageID int64 `json:"message_id"`
			Lenient   bool  `json:"allow_sending_without_reply"`
		}
		if err := json.Unmarshal([]byte(raw), &p); err != nil {
			return 0, badRequest("can't parse reply parameters JSON object")
		}
		id, lenient = p.MessageID, p.Lenient
	}
	if id == 0 {
		return 0, nil
	}
	if m := rm.byID[id]; m != nil && !m.Deleted {
		return id, nil
	}
	if lenient {
		return 0, nil
	}
	return 0, badRequest("message to be replied not found")
}

// button is what is checked of an inline button.
type button struct {
	Text string  `json:"text"`
	Data *string `json:"callback_data"`
}

// replyMarkup checks the call's keyboard and returns it as it came; nil for none.
func (c *call) replyMarkup() (json.RawMessage, *apiError) {
	raw := c.params.text("reply_markup")
	if raw == "" {
		return nil, nil
	}
	data := json.RawMessage(raw)
	if !json.Valid(data) {
		return nil, badRequest("can't parse reply keyboard markup JSON object")
	}
	var markup map[string]json.RawMessage
	if err := json.Unmarshal(data, &markup); err != nil || markup == nil {
		return nil, badRequest("object expected as reply markup")
	}
	if len(markup) == 0 {
		return nil, nil
	}
	rows, inline := markup["inline_keyboard"]
	if !inline {
		return data, nil
	}
	var keyboard [][]button
	if err := json.Unmarshal(rows, &keyboard); err != nil {
		return nil, badRequest("can't parse inline keyboard button: InlineKeyboardButton must be an Object")
	}
	return checkKeyboard(data, keyboard)
}

func checkKeyboard(data json.RawMessage, keyboard [][]button) (json.RawMessage, *apiError) {
	buttons := 0
	for _, row := range keyboard {
		for _, b := range row {
			buttons++
			if b.Text == "" {
				return nil, badRequest("can't parse inline keyboard button: text buttons are unallowed in the inline keyboard")
			}
			// 1 to 64 bytes (Bot API, InlineKeyboardButton; read 2026-11-30).
			if b.Data != nil && (len(*b.Data) < 1 || len(*b.Data) > 64) {
				return nil, badRequest("BUTTON_DATA_INVALID")
			}
		}
	}
	if buttons > 100 {
		return nil, badRequest("reply markup is too long")
	}
	if buttons == 0 {
		return nil, nil
	}
	return data, nil
}
