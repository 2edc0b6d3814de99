package telegram

import (
	"encoding/json"
	"maps"
)

// wireUser is a user or bot as the platform shows it.
type wireUser struct {
	ID       int64  `json:"id"`
	IsBot    bool   `json:"is_bot"`
	Name     string `json:"first_name"`
	Username string `json:"username,omitempty"`
}

func (b *bot) user() wireUser {
	return wireUser{ID: b.id, IsBot: true, Name: "Sim", Username: b.username}
}

// wireChat is a chat as the platform shows it.
func (rm *room) wire() map[string]any {
	chat := map[string]any{"id": rm.id, "type": string(rm.kind)}
	if rm.kind == chatPrivate {
		chat["first_name"] = rm.name
	} else {
		chat["title"] = rm.name
	}
	if rm.username != "" {
		chat["username"] = rm.username
	}
	if len(rm.topics) > 0 && rm.kind == chatSupergroup {
		chat["is_forum"] = true
	}
	return chat
}

// wireMessage is a message as the platform shows it, with the message that it answers.
func (s *Server) wireMessage(b *bot, rm *room, m *Message) map[string]any {
	w := s.flatMessage(b, rm, m)
	if to := rm.byID[m.ReplyTo]; m.ReplyTo != 0 && to != nil {
		w["reply_to_message"] = s.flatMessage(b, rm, to)
	}
	return w
}

func (s *Server) flatMessage(b *bot, rm *room, m *Message) map[string]any {
	w := map[string]any{"message_id": m.MessageID, "date": m.At.Unix(), "chat": rm.wire()}
	switch {
	case m.FromBot:
		w["from"] = b.user()
	case m.SenderID != 0:
		w["from"] = wireUser{ID: m.SenderID, Name: m.Sender}
	}
	if m.ThreadID != 0 {
		w["message_thread_id"] = m.ThreadID
		w["is_topic_message"] = true
	}
	if !m.EditedAt.IsZero() {
		w["edit_date"] = m.EditedAt.Unix()
	}
	if m.Album != "" {
		w["media_group_id"] = m.Album
	}
	text, entities := "text", "entities"
	if m.File != nil {
		text, entities = "caption", "caption_entities"
		maps.Copy(w, m.File.wire())
	}
	if m.Text != "" {
		w[text] = m.Text
	}
	if len(m.Entities) > 0 {
		w[entities] = m.Entities
	}
	var markup map[string]json.RawMessage
	if json.Unmarshal(m.ReplyMarkup, &markup) == nil && markup["inline_keyboard"] != nil {
		w["reply_markup"] = m.ReplyMarkup // Other keyboards are not shown in the message.
	}
	if len(m.Service) > 0 {
		var fields map[string]json.RawMessage
		if json.Unmarshal(m.Service, &fields) == nil {
			for name, value := range fields {
				w[name] = value
			}
		}
	}
	return w
}

// wire gives the fields of a message that carry its file.
func (f *File) wire() map[string]any {
	info := map[string]any{"file_id": f.ID, "file_unique_id": "u" + f.ID, "file_size": f.Size}
	switch f.Kind {
	case "photo":
		info["width"], info["height"] = 640, 480
		return map[string]any{"photo": []any{info}}
	case "sticker":
		info["width"], info["height"], info["type"], info["is_animated"], info["is_video"] = 512, 512, "regular", false, false
	case "video", "animation":
		info["width"], info["height"], info["duration"] = 640, 480, 1
	case "audio", "voice":
		info["duration"] = 1
	}
	if f.Kind != "sticker" {
		info["mime_type"] = f.MIME
	}
	if f.Name != "" && f.Kind != "voice" && f.Kind != "sticker" {
		info["file_name"] = f.Name
	}
	w := map[string]any{f.Kind: info}
	if f.Kind == "animation" {
		w["document"] = info
	}
	return w
}
