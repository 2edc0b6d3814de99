package telegram

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// placed is a checked call on its way into a chat.
type placed struct {
	room    *room
	replyTo int64
	markup  json.RawMessage
}

// place runs the checks between a call's text and its length: keyboard, chat, topic, reply target.
func (s *Server) place(c *call) (placed, *apiError) {
	markup, e := c.replyMarkup()
	if e != nil {
		return placed{}, e
	}
	rm, e := s.access(c)
	if e != nil {
		return placed{}, e
	}
	if e := s.topic(c, rm); e != nil {
		return placed{}, e
	}
	replyTo, e := c.replyTarget(rm)
	return placed{room: rm, replyTo: replyTo, markup: markup}, e
}

// admit takes the slot and asks the user's side: the last two checks of the order.
func (s *Server) admit(c *call, rm *room) *apiError {
	if e := s.reserve(c, rm, c.method.cost); e != nil {
		return e
	}
	return s.blocked(c, rm)
}

// put makes the bot's message and keeps it.
func (s *Server) put(c *call, at placed, fill func(*Message)) *Message {
	m := at.room.newMessage(c.bot, c.now)
	m.FromBot, m.Method = true, c.method.name
	m.ThreadID = c.params.number("message_thread_id")
	if m.ThreadID != 0 {
		at.room.topics[m.ThreadID] = true
	}
	m.ReplyTo, m.ReplyMarkup = at.replyTo, at.markup
	m.ParseMode = c.params.text("parse_mode")
	fill(m)
	s.keep(c.bot, at.room, m)
	c.message = m
	return m
}

func sendMessage(s *Server, c *call) (any, *apiError) {
	raw := c.params.text("text")
	if raw == "" {
		return nil, badRequest("message text is empty")
	}
	text, entities, e := parseText(raw, c.params.text("parse_mode"), c.params.text("entities"))
	if e != nil {
		return nil, e
	}
	if text == "" {
		return nil, badRequest("text must be non-empty")
	}
	at, e := s.place(c)
	if e != nil {
		return nil, e
	}
	if utf8.RuneCountInString(text) > maxTextRunes {
		return nil, badRequest("message is too long")
	}
	if e := s.admit(c, at.room); e != nil {
		return nil, e
	}
	m := s.put(c, at, func(m *Message) { m.Text, m.Entities = text, entities })
	return s.wireMessage(c.bot, at.room, m), nil
}

// sendFile makes the method that sends one file of that kind.
func sendFile(kind string) func(*Server, *call) (any, *apiError) {
	return func(s *Server, c *call) (any, *apiError) {
		f, content, e := s.file(c, kind, c.params.text(kind), kind)
		if e != nil {
			return nil, e
		}
		text, entities, e := parseText(c.params.text("caption"), c.params.text("parse_mode"), c.params.text("caption_entities"))
		if e != nil {
			return nil, e
		}
		at, e := s.place(c)
		if e != nil {
			return nil, e
		}
		if utf8.RuneCountInString(text) > maxCaptionRunes {
			return nil, badRequest("message caption is too long")
		}
		if e := s.admit(c, at.room); e != nil {
			return nil, e
		}
		m := s.put(c, at, func(m *Message) {
			m.Text, m.Entities, m.File = text, entities, new(s.storeFile(f, content))
		})
		return s.wireMessage(c.bot, at.room, m), nil
	}
}

// file finds the content that a call sends: an upload, a known file_id or an address.
func (s *Server) file(c *call, kind, value, field string) (File, []byte, *apiError) {
	up, ok := c.params.files[field]
	if name, attached := strings.CutPrefix(value, "attach://"); attached {
		up, ok = c.params.files[name]
		if !ok {
			return File{}, nil, badRequest("wrong file identifier/HTTP URL specified")
		}
	}
	if ok {
		limit := maxUpload
		if kind == "photo" {
			limit = maxPhoto
		}
		switch {
		case len(up.content) == 0:
			return File{}, nil, badRequest("file must be non-empty")
		case len(up.content) > limit:
			return File{}, nil, badRequest("file is too big")
		}
		return File{Kind: kind, Name: up.name, MIME: up.mime}, up.content, nil
	}
	if known := s.files.byID[value]; known != nil {
		return known.File, nil, nil
	}
	if strings.HasPrefix(value, "http://") || strings.HasPrefix(value, "https://") {
		return File{Kind: kind, URL: value, Name: value[strings.LastIndexByte(value, '/')+1:]}, nil, nil
	}
	if value == "" {
		return File{}, nil, badRequest("there is no " + kind + " in the request")
	}
	return File{}, nil, badRequest("wrong file identifier/HTTP URL specified")
}

// storeFile gives a new file its id; a known one keeps it.
func (s *Server) storeFile(f File, content []byte) File {
	if f.ID != "" {
		return f
	}
	return s.files.add(f, content)
}

// albumItem is one element of sendMediaGroup's media.
type albumItem struct {
	Type            string          `json:"type"`
	Media           string          `json:"media"`
	Caption         string          `json:"caption"`
	ParseMode       string          `json:"parse_mode"`
	CaptionEntities json.RawMessage `json:"caption_entities"`

	file     File
	content  []byte
	entities []Entity
}

func sendMediaGroup(s *Server, c *call) (any, *apiError) {
	items, e := s.album(c)
	if e != nil {
		return nil, e
	}
	at, e := s.place(c)
	if e != nil {
		return nil, e
	}
	for _, item := range items {
		if utf8.RuneCountInString(item.Caption) > maxCaptionRunes {
			return nil, badRequest("message caption is too long")
		}
	}
	if e := s.admit(c, at.room); e != nil {
		return nil, e
	}
	album := strconv.FormatInt(c.now.UnixNano(), 10)
	list := make([]any, 0, len(items))
	for _, item := range items {
		m := s.put(c, at, func(m *Message) {
			m.Text, m.Entities, m.Album, m.ParseMode = item.Caption, item.entities, album, item.ParseMode
			m.File = new(s.storeFile(item.file, item.content))
		})
		list = append(list, s.wireMessage(c.bot, at.room, m))
	}
	return list, nil
}

// album reads and checks the media of a sendMediaGroup call.
func (s *Server) album(c *call) ([]albumItem, *apiError) {
	var items []albumItem
	if err := json.Unmarshal([]byte(c.params.text("media")), &items); err != nil {
		return nil, badRequest("can't parse media JSON object")
	}
	// 2 to 10 items (Bot API, sendMediaGroup; read 2026-11-30).
	if len(items) < 2 || len(items) > 10 {
		return nil, badRequest("group message must contain 2-10 items")
	}
	for i := range items {
		item := &items[i]
		var e *apiError
		switch item.Type {
		case "photo", "video", "document", "audio":
		default:
			return nil, badRequest("can't parse InputMedia: type must be one of photo, video, document, audio")
		}
		if item.file, item.content, e = s.file(c, item.Type, item.Media, ""); e != nil {
			return nil, e
		}
		if item.Caption, item.entities, e = parseText(item.Caption, item.ParseMode, string(item.CaptionEntities)); e != nil {
			return nil, e
		}
	}
	return items, nil
}

// ownMessage finds a message of the bot that a call changes. what is the platform's verb for it.
func (s *Server) ownMessage(c *call, what string) (*room, *Message, *apiError) {
	rm, e := s.access(c)
	if e != nil {
		return nil, nil, e
	}
	m := rm.byID[c.params.number("message_id")]
	if m == nil || m.Deleted {
		return nil, nil, badRequest("message to " + what + " not found")
	}
	return rm, m, nil
}

// change is what an edit makes of a message.
type change struct {
	text     string
	entities []Entity
	markup   json.RawMessage
}

func editMessageText(s *Server, c *call) (any, *apiError) {
	raw := c.params.text("text")
	if raw == "" {
		return nil, badRequest("message text is empty")
	}
	return s.edit(c, raw, "entities", maxTextRunes, "message is too long")
}

func editMessageCaption(s *Server, c *call) (any, *apiError) {
	return s.edit(c, c.params.text("caption"), "caption_entities", maxCaptionRunes, "message caption is too long")
}

func editMessageReplyMarkup(s *Server, c *call) (any, *apiError) {
	markup, e := c.replyMarkup()
	if e != nil {
		return nil, e
	}
	rm, m, e := s.ownMessage(c, "edit")
	if e != nil {
		return nil, e
	}
	return s.applyEdit(c, rm, m, change{m.Text, m.Entities, markup})
}

func (s *Server) edit(c *call, raw, entitiesField string, limit int, tooLong string) (any, *apiError) {
	text, entities, e := parseText(raw, c.params.text("parse_mode"), c.params.text(entitiesField))
	if e != nil {
		return nil, e
	}
	if text == "" && entitiesField == "entities" {
		return nil, badRequest("text must be non-empty")
	}
	markup, e := c.replyMarkup()
	if e != nil {
		return nil, e
	}
	rm, m, e := s.ownMessage(c, "edit")
	if e != nil {
		return nil, e
	}
	if utf8.RuneCountInString(text) > limit {
		return nil, badRequest(tooLong)
	}
	return s.applyEdit(c, rm, m, change{text, entities, markup})
}

func (s *Server) applyEdit(c *call, rm *room, m *Message, to change) (any, *apiError) {
	if !m.FromBot || len(m.Service) > 0 {
		return nil, badRequest("message can't be edited")
	}
	if e := s.admit(c, rm); e != nil {
		return nil, e
	}
	if m.Text == to.text && slices.Equal(m.Entities, to.entities) && bytes.Equal(m.ReplyMarkup, to.markup) {
		return nil, badRequest("message is not modified: specified new message content and reply markup are exactly " +
			"the same as a current content and reply markup of the message")
	}
	m.Edits = append(m.Edits, Edit{Text: m.Text, At: c.now})
	if len(m.Edits) > 1000 {
		m.Edits = m.Edits[1:]
	}
	m.Text, m.Entities, m.ReplyMarkup, m.EditedAt = to.text, to.entities, to.markup, c.now
	s.changedLocked(Event{Kind: "edit", Bot: c.bot.id, ChatID: rm.id, Entry: new(m.snapshot())})
	return s.wireMessage(c.bot, rm, m), nil
}
