package telegram

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

const (
	queryLife  = 15 * time.Minute // how long a button press can be answered; the platform doesn't say.
	closeGuard = 10 * time.Minute // close is refused in a bot's first minutes (Bot API, close; read 2026-11-30).
)

// methodTable lists the Bot API's methods that the simulator has, by their lower-case names.
func methodTable() map[string]method {
	acting := []method{
		{name: "sendMessage", cost: costChat, run: sendMessage},
		{name: "sendMediaGroup", cost: costChat, run: sendMediaGroup},
		{name: "editMessageText", cost: costChat, run: editMessageText},
		{name: "editMessageCaption", cost: costChat, run: editMessageCaption},
		{name: "editMessageReplyMarkup", cost: costChat, run: editMessageReplyMarkup},
		{name: "deleteMessage", cost: costGlobal, run: deleteMessage},
		{name: "deleteMessages", cost: costGlobal, run: deleteMessages},
		{name: "answerCallbackQuery", cost: costGlobal, run: answerCallbackQuery},
		{name: "sendChatAction", cost: costGlobal, run: sendChatAction},
		{name: "setMessageReaction", cost: costGlobal, run: setMessageReaction},
		{name: "setMyCommands", cost: costGlobal, run: setMyCommands},
		{name: "deleteMyCommands", cost: costGlobal, run: deleteMyCommands},
	}
	for _, kind := range []string{"photo", "document", "audio", "video", "animation", "voice", "sticker"} {
		name := "send" + strings.ToUpper(kind[:1]) + kind[1:]
		acting = append(acting, method{name: name, cost: costChat, run: sendFile(kind)})
	}
	passive := []method{
		{name: "getMe", run: getMe},
		{name: "getUpdates"}, // Waits outside the lock: see longPoll.
		{name: "setWebhook", run: setWebhook},
		{name: "deleteWebhook", run: deleteWebhook},
		{name: "getWebhookInfo", run: getWebhookInfo},
		{name: "getFile", run: getFile},
		{name: "getChat", run: getChat},
		{name: "getMyCommands", run: getMyCommands},
		{name: "logOut", run: logOut},
		{name: "close", run: closeBot},
	}
	table := map[string]method{}
	for _, m := range acting {
		m.acts = true
		table[strings.ToLower(m.name)] = m
	}
	for _, m := range passive {
		table[strings.ToLower(m.name)] = m
	}
	return table
}

func getMe(_ *Server, c *call) (any, *apiError) {
	return map[string]any{
		"id": c.bot.id, "is_bot": true, "first_name": "Sim", "username": c.bot.username,
		"can_join_groups": true, "can_read_all_group_messages": false, "supports_inline_queries": false,
		"can_connect_to_business": false, "has_main_web_app": false,
	}, nil
}

func deleteMessage(s *Server, c *call) (any, *apiError) {
	rm, m, e := s.ownMessage(c, "delete")
	if e != nil {
		return nil, e
	}
	// Only 48 hours long (Bot API, deleteMessage; read 2026-11-30).
	if c.now.Sub(m.At) > 48*time.Hour {
		return nil, badRequest("message can't be deleted")
	}
	if e := s.reserve(c, rm, c.method.cost); e != nil {
		return nil, e
	}
	s.remove(c, rm, m)
	return true, nil
}

func (s *Server) remove(c *call, rm *room, m *Message) {
	m.Deleted = true
	s.changedLocked(Event{Kind: "delete", Bot: c.bot.id, ChatID: rm.id, Entry: new(m.snapshot())})
}

func deleteMessages(s *Server, c *call) (any, *apiError) {
	var ids []int64
	if err := json.Unmarshal([]byte(c.params.text("message_ids")), &ids); err != nil || len(ids) == 0 || len(ids) > 100 {
		return nil, badRequest("message identifiers are not specified")
	}
	rm, e := s.access(c)
	if e != nil {
		return nil, e
	}
	if e := s.reserve(c, rm, c.method.cost); e != nil {
		return nil, e
	}
	for _, id := range ids {
		if m := rm.byID[id]; m != nil && !m.Deleted {
			s.remove(c, rm, m)
		}
	}
	return true, nil
}

func answerCallbackQuery(s *Server, c *call) (any, *apiError) {
	text := c.params.text("text")
	// Up to 200 characters (Bot API, answerCallbackQuery; read 2026-11-30).
	if len([]rune(text)) > 200 {
		return nil, badRequest("MESSAGE_TOO_LONG")
	}
	at, known := c.bot.queries[c.params.text("callback_query_id")]
	if !known || c.now.Sub(at) > queryLife {
		return nil, badRequest("query is too old and response timeout expired or query ID is invalid")
	}
	if e := s.reserve(c, nil, c.method.cost); e != nil {
		return nil, e
	}
	s.changedLocked(Event{Kind: "callback_answer", Bot: c.bot.id, Text: text})
	return true, nil
}

func sendChatAction(s *Server, c *call) (any, *apiError) {
	switch action := c.params.text("action"); action {
	case "":
		return nil, badRequest("parameter \"action\" is required")
	case "typing", "upload_photo", "record_video", "upload_video", "record_voice", "upload_voice", "upload_document",
		"choose_sticker", "find_location", "record_video_note", "upload_video_note", "record_audio", "upload_audio", "cancel":
	default:
		return nil, badRequest("wrong parameter action in request")
	}
	rm, e := s.access(c)
	if e != nil {
		return nil, e
	}
	if e := s.admit(c, rm); e != nil {
		return nil, e
	}
	s.changedLocked(Event{Kind: "typing", Bot: c.bot.id, ChatID: rm.id, Text: c.params.text("action")})
	return true, nil
}

func setMessageReaction(s *Server, c *call) (any, *apiError) {
	var list []struct {
		Type  string `json:"type"`
		Emoji string `json:"emoji"`
		ID    string `json:"custom_emoji_id"`
	}
	if raw := c.params.text("reaction"); raw != "" {
		if err := json.Unmarshal([]byte(raw), &list); err != nil {
			return nil, badRequest("can't parse reaction types JSON object")
		}
	}
	rm, m, e := s.ownMessage(c, "react")
	if e != nil {
		return nil, e
	}
	if len(list) > 1 {
		return nil, badRequest("REACTIONS_TOO_MANY")
	}
	if e := s.admit(c, rm); e != nil {
		return nil, e
	}
	m.BotReaction = ""
	for _, r := range list {
		m.BotReaction = r.Emoji
		if m.BotReaction == "" {
			m.BotReaction = "⭐"
		}
	}
	s.changedLocked(Event{Kind: "reaction", Bot: c.bot.id, ChatID: rm.id, Entry: new(m.snapshot())})
	return true, nil
}

// commandScope names the set of commands that a call means.
func commandScope(c *call) string {
	return c.params.text("scope") + "/" + c.params.text("language_code")
}

func setMyCommands(s *Server, c *call) (any, *apiError) {
	raw := c.params.text("commands")
	var list []struct {
		Command     string `json:"command"`
		Description string `json:"description"`
	}
	if err := json.Unmarshal([]byte(raw), &list); err != nil {
		return nil, badRequest("can't parse commands JSON object")
	}
	// At most 100 commands of 1 to 32 characters a-z, 0-9 and _ (Bot API, BotCommand; read 2026-11-30).
	if len(list) > 100 {
		return nil, badRequest("BOT_COMMANDS_TOO_MUCH")
	}
	for _, cmd := range list {
		name := strings.TrimPrefix(cmd.Command, "/")
		bad := strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' })
		if name == "" || len(name) > 32 || bad {
			return nil, badRequest("BOT_COMMAND_INVALID")
		}
		if cmd.Description == "" || len([]rune(cmd.Description)) > 256 {
			return nil, badRequest("BOT_COMMAND_DESCRIPTION_INVALID")
		}
	}
	if e := s.reserve(c, nil, c.method.cost); e != nil {
		return nil, e
	}
	if len(c.bot.commands) >= 1000 && c.bot.commands[commandScope(c)] == nil {
		return nil, badRequest("BOT_COMMANDS_TOO_MUCH")
	}
	c.bot.commands[commandScope(c)] = json.RawMessage(raw)
	return true, nil
}

func deleteMyCommands(s *Server, c *call) (any, *apiError) {
	if e := s.reserve(c, nil, c.method.cost); e != nil {
		return nil, e
	}
	delete(c.bot.commands, commandScope(c))
	return true, nil
}

func getMyCommands(_ *Server, c *call) (any, *apiError) {
	if list, ok := c.bot.commands[commandScope(c)]; ok {
		return list, nil
	}
	return []any{}, nil
}

func getFile(s *Server, c *call) (any, *apiError) {
	f := s.files.byID[c.params.text("file_id")]
	if f == nil {
		return nil, badRequest("invalid file_id")
	}
	// Up to 20 MB (Bot API, getFile; read 2026-11-30).
	if f.Size > 20<<20 {
		return nil, badRequest("file is too big")
	}
	return map[string]any{"file_id": f.ID, "file_unique_id": "u" + f.ID, "file_size": f.Size, "file_path": f.Path}, nil
}

func getChat(s *Server, c *call) (any, *apiError) {
	rm, e := s.access(c)
	if e != nil {
		return nil, e
	}
	chat := rm.wire()
	chat["accent_color_id"], chat["max_reaction_count"] = 0, 11
	return chat, nil
}

func logOut(_ *Server, c *call) (any, *apiError) {
	c.bot.wakePoll(refuse(http.StatusUnauthorized, ""))
	c.bot.loggedOut = true
	return true, nil
}

func closeBot(s *Server, c *call) (any, *apiError) {
	if wait := c.bot.since.Add(closeGuard).Sub(c.now); wait > 0 && s.limits.Polling && !s.limits.Off {
		return nil, errTooMany(wholeSeconds(int64(wait)))
	}
	return true, nil
}
