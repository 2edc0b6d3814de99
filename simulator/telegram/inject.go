package telegram

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Input is something that a user does. ChatID or UserID is needed; in a private chat each stands for the other.
type Input struct {
	Bot      string `json:"bot,omitempty"`   // token, id or username; empty: the default bot
	Token    string `json:"token,omitempty"` // the same, for those who look for this name
	ChatID   int64  `json:"chat_id,omitempty"`
	ChatType string `json:"chat_type,omitempty"` // empty: guessed from the id
	Title    string `json:"title,omitempty"`     // of a group
	UserID   int64  `json:"user_id,omitempty"`
	Name     string `json:"name,omitempty"` // the user's first name
	Username string `json:"username,omitempty"`
	ThreadID int64  `json:"thread_id,omitempty"`

	Text     string     `json:"text,omitempty"` // or the file's caption
	ReplyTo  int64      `json:"reply_to,omitempty"`
	File     *InputFile `json:"file,omitempty"`
	Album    string     `json:"media_group_id,omitempty"`
	Edit     int64      `json:"edit,omitempty"`     // the user's message that gets this text
	React    int64      `json:"react,omitempty"`    // the message that gets Reaction
	Reaction string     `json:"reaction,omitempty"` // an emoji; empty takes it back

	// Raw is an update as the platform would send it; the other fields but Bot are ignored. An update_id in it is
	// kept, so that an old update can be repeated.
	Raw json.RawMessage `json:"update,omitempty"`
}

// InputFile is a file that a user sends.
type InputFile struct {
	Kind    string `json:"kind,omitempty"` // photo, document, audio, video, voice; empty: document
	Name    string `json:"name,omitempty"`
	MIME    string `json:"mime_type,omitempty"`
	Content []byte `json:"content,omitempty"` // base64 in JSON
}

// Injected tells what an input has become. UpdateID is 0 where the bot doesn't ask for such updates.
type Injected struct {
	UpdateID  int64 `json:"update_id"`
	MessageID int64 `json:"message_id,omitempty"`
}

// Inject lets a user do something. A user who writes to a bot that he had blocked unblocks it.
func (s *Server) Inject(in Input) (Injected, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.findBot(cmp.Or(in.Bot, in.Token))
	if err != nil {
		return Injected{}, err
	}
	if len(in.Raw) > 0 {
		return s.injectRaw(b, in.Raw)
	}
	in.ChatID = cmp.Or(in.ChatID, in.UserID)
	if in.ChatID == 0 {
		return Injected{}, errors.New("chat_id: needed")
	}
	switch chatKind(in.ChatType) {
	case "", chatPrivate, chatGroup, chatSupergroup, chatChannel:
	default:
		return Injected{}, fmt.Errorf("chat_type: %q is not a type of chat", in.ChatType)
	}
	if len(b.queue) >= maxPending {
		return Injected{}, fmt.Errorf("inject: %w", ErrFull)
	}
	if in.UserID == 0 {
		in.UserID = in.ChatID
		if in.UserID < 0 {
			in.UserID = 1001
		}
	}
	name, username := in.Title, ""
	if in.ChatID > 0 {
		name, username = in.Name, in.Username
	}
	rm := s.room(b, in.ChatID, chatKind(in.ChatType), name, username)
	if rm == nil {
		return Injected{}, fmt.Errorf("make chat: %w", ErrFull)
	}
	in.Name = cmp.Or(in.Name, fmt.Sprintf("User %d", in.UserID))
	if rm.kind == chatPrivate {
		s.unblock(b, rm.id)
	}
	return s.act(b, rm, in)
}

func (s *Server) act(b *bot, rm *room, in Input) (Injected, error) {
	switch {
	case in.React != 0:
		return s.userReacts(b, rm, in)
	case in.Edit != 0:
		return s.userEdits(b, rm, in)
	case in.Text == "" && in.File == nil:
		return Injected{}, errors.New("text: needed")
	}
	m := rm.newMessage(b, s.now())
	m.Sender, m.SenderID, m.Text, m.Entities = in.Name, in.UserID, in.Text, findEntities(in.Text)
	m.ThreadID, m.Album, m.ReplyTo = in.ThreadID, in.Album, in.ReplyTo
	if in.ThreadID != 0 {
		rm.topics[in.ThreadID] = true
	}
	if in.File != nil {
		f := File{Kind: cmp.Or(in.File.Kind, "document"), Name: in.File.Name, MIME: in.File.MIME}
		m.File = new(s.files.add(f, in.File.Content))
	}
	s.keep(b, rm, m)
	kind := "message"
	if rm.kind == chatChannel {
		kind = "channel_post"
	}
	id, err := s.push(b, kind, rm.id, s.wireMessage(b, rm, m))
	return Injected{UpdateID: id, MessageID: m.MessageID}, err
}

// InjectAll injects one after the other and stops at the first error.
func (s *Server) InjectAll(list []Input) ([]Injected, error) {
	done := make([]Injected, 0, len(list))
	for i, in := range list {
		one, err := s.Inject(in)
		if err != nil {
			return done, fmt.Errorf("update %d: %w", i, err)
		}
		done = append(done, one)
	}
	return done, nil
}

func (s *Server) injectRaw(b *bot, raw json.RawMessage) (Injected, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return Injected{}, errors.New("update: want a JSON object")
	}
	if len(b.queue) >= maxPending {
		return Injected{}, fmt.Errorf("inject: %w", ErrFull)
	}
	id, err := strconv.ParseInt(string(fields["update_id"]), 10, 64)
	if err != nil {
		id = b.nextUpdate
		fields["update_id"] = json.RawMessage(strconv.FormatInt(id, 10))
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return Injected{}, fmt.Errorf("encode update: %w", err)
	}
	b.nextUpdate = max(b.nextUpdate, id+1)
	s.queueUpdate(b, &update{id: id, kind: "raw", chat: chatOf(fields), body: data, at: s.now()})
	return Injected{UpdateID: id}, nil
}

// chatOf finds the chat of a raw update; 0 where it has none.
func chatOf(fields map[string]json.RawMessage) int64 {
	for _, content := range fields {
		var u struct {
			Chat    struct{ ID int64 } `json:"chat"`
			Message struct {
				Chat struct{ ID int64 } `json:"chat"`
			} `json:"message"`
		}
		if json.Unmarshal(content, &u) == nil {
			if id := cmp.Or(u.Chat.ID, u.Message.Chat.ID); id != 0 {
				return id
			}
		}
	}
	return 0
}

func (s *Server) userEdits(b *bot, rm *room, in Input) (Injected, error) {
	m := rm.byID[in.Edit]
	if m == nil || m.FromBot || m.Deleted {
		return Injected{}, fmt.Errorf("edit: the user has no message %d here", in.Edit)
	}
	m.Edits = append(m.Edits, Edit{Text: m.Text, At: s.now()})
	m.Text, m.Entities, m.EditedAt = in.Text, findEntities(in.Text), s.now()
	s.changedLocked(Event{Kind: "edit", Bot: b.id, ChatID: rm.id, Entry: new(m.snapshot())})
	id, err := s.push(b, "edited_message", rm.id, s.wireMessage(b, rm, m))
	return Injected{UpdateID: id, MessageID: m.MessageID}, err
}

func (s *Server) userReacts(b *bot, rm *room, in Input) (Injected, error) {
	m := rm.byID[in.React]
	if m == nil || m.Deleted {
		return Injected{}, fmt.Errorf("react: there is no message %d here", in.React)
	}
	reactions := func(emoji string) []any {
		if emoji == "" {
			return []any{}
		}
		return []any{map[string]any{"type": "emoji", "emoji": emoji}}
	}
	content := map[string]any{
		"chat": rm.wire(), "message_id": m.MessageID, "user": wireUser{ID: in.UserID, Name: in.Name, Username: in.Username},
		"date": s.now().Unix(), "old_reaction": reactions(m.Reaction), "new_reaction": reactions(in.Reaction),
	}
	m.Reaction = in.Reaction
	s.changedLocked(Event{Kind: "reaction", Bot: b.id, ChatID: rm.id, Entry: new(m.snapshot())})
	id, err := s.push(b, "message_reaction", rm.id, content)
	return Injected{UpdateID: id, MessageID: m.MessageID}, err
}

// Press is a press on an inline button. Data may stay empty: then Row and Column name the button.
type Press struct {
	Bot       string `json:"bot,omitempty"`
	ChatID    int64  `json:"chat_id"`
	MessageID int64  `json:"message_id"`
	Data      string `json:"data,omitempty"`
	Row       int    `json:"row,omitempty"`
	Column    int    `json:"column,omitempty"`
	UserID    int64  `json:"user_id,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Press lets a user press an inline button; the bot gets a callback_query.
func (s *Server) Press(p Press) (Injected, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.findBot(p.Bot)
	if err != nil {
		return Injected{}, err
	}
	rm := b.rooms[p.ChatID]
	if rm == nil || rm.byID[p.MessageID] == nil || rm.byID[p.MessageID].Deleted {
		return Injected{}, errors.New("message_id: no such message in this chat")
	}
	m := rm.byID[p.MessageID]
	if p.Data == "" {
		if p.Data, err = buttonData(m, p.Row, p.Column); err != nil {
			return Injected{}, err
		}
	}
	if p.UserID == 0 {
		p.UserID = 1001
		if p.ChatID > 0 {
			p.UserID = p.ChatID
		}
	}
	s.nextQuery++
	query := strconv.FormatInt(b.id*1_000_000+s.nextQuery, 10)
	b.queries[query] = s.now()
	b.queryOrder = append(b.queryOrder, query)
	if len(b.queryOrder) > maxQueries {
		delete(b.queries, b.queryOrder[0])
		b.queryOrder = b.queryOrder[1:]
	}
	id, err := s.push(b, "callback_query", rm.id, map[string]any{
		"id": query, "from": wireUser{ID: p.UserID, Name: cmp.Or(p.Name, fmt.Sprintf("User %d", p.UserID))},
		"message": s.wireMessage(b, rm, m), "chat_instance": strconv.FormatInt(rm.id, 10), "data": p.Data,
	})
	return Injected{UpdateID: id, MessageID: m.MessageID}, err
}

func buttonData(m *Message, row, column int) (string, error) {
	var markup struct {
		Keyboard [][]button `json:"inline_keyboard"`
	}
	if len(m.ReplyMarkup) > 0 && json.Unmarshal(m.ReplyMarkup, &markup) == nil &&
		row >= 0 && column >= 0 && row < len(markup.Keyboard) && column < len(markup.Keyboard[row]) {
		if data := markup.Keyboard[row][column].Data; data != nil {
			return *data, nil
		}
	}
	return "", errors.New("data: the message has no such button")
}

// unblock ends a block when its user writes again.
func (s *Server) unblock(b *bot, chat int64) {
	for _, f := range s.faults {
		q := faultQuery{bot: b, chat: chat, act: true, method: f.Method, text: f.Text, thread: f.Thread}
		if f.Kind == FaultBlocked && f.matches(q) {
			s.dropFault(f)
			return
		}
	}
}

// announce tells the bots of a chat's new state in the platform's way.
func (s *Server) announce(f *Fault) error {
	var errs []error
	for _, b := range s.botOrder {
		if f.Bot != "" {
			if named, err := s.findBot(f.Bot); err != nil || named != b {
				continue
			}
		}
		switch f.Kind { //nolint:exhaustive // the others are not announced by the platform
		case FaultMigrated:
			if !f.Silent {
				errs = append(errs, s.announceMigration(b, f))
			}
		case FaultBlocked, FaultKicked:
			if f.Announce {
				errs = append(errs, s.announceRemoval(b, f.ChatID))
			}
		}
	}
	return errors.Join(errs...)
}

// announceMigration puts a service message into the old and the new group.
func (s *Server) announceMigration(b *bot, f *Fault) error {
	from := b.rooms[f.ChatID]
	if from == nil {
		return nil
	}
	to := s.room(b, f.MigrateTo, chatSupergroup, from.name, from.username)
	if to == nil {
		return fmt.Errorf("make chat: %w", ErrFull)
	}
	for _, notice := range []struct {
		room  *room
		field string
		other int64
	}{{from, "migrate_to_chat_id", to.id}, {to, "migrate_from_chat_id", from.id}} {
		m := notice.room.newMessage(b, s.now())
		m.SenderID, m.Sender = 1001, "User 1001"
		m.Service = json.RawMessage(fmt.Sprintf(`{%q:%d}`, notice.field, notice.other))
		s.keep(b, notice.room, m)
		if _, err := s.push(b, "message", notice.room.id, s.wireMessage(b, notice.room, m)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) announceRemoval(b *bot, chat int64) error {
	rm := s.room(b, chat, "", "", "")
	if rm == nil {
		return fmt.Errorf("make chat: %w", ErrFull)
	}
	_, err := s.push(b, "my_chat_member", chat, map[string]any{
		"chat": rm.wire(), "from": wireUser{ID: max(chat, 1001), Name: "User"}, "date": s.now().Unix(),
		"old_chat_member": map[string]any{"user": b.user(), "status": "member"},
		"new_chat_member": map[string]any{"user": b.user(), "status": "kicked", "until_date": 0},
	})
	return err
}
