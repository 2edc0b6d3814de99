package telegram

import (
	"encoding/json"
	"strconv"
)

// The structs below hold what the gateway reads of an update. The library's
// own know neither topics nor reactions, and one odd field in them fails a
// whole batch. Everything else stays in the event's raw form.

type update struct {
	Message           *message    `json:"message"`
	EditedMessage     *message    `json:"edited_message"`
	ChannelPost       *message    `json:"channel_post"`
	EditedChannelPost *message    `json:"edited_channel_post"`
	CallbackQuery     *callback   `json:"callback_query"`
	Reaction          *reaction   `json:"message_reaction"`
	MyChatMember      *membership `json:"my_chat_member"`
	ChatMember        *membership `json:"chat_member"`
}

type user struct {
	ID    int64 `json:"id"`
	IsBot bool  `json:"is_bot"`
}

type chatRef struct {
	ID int64 `json:"id"`
}

type message struct {
	ID             int64    `json:"message_id"`
	Thread         int64    `json:"message_thread_id"`
	IsTopicMessage bool     `json:"is_topic_message"`
	From           *user    `json:"from"`
	SenderChat     *chatRef `json:"sender_chat"`
	Chat           chatRef  `json:"chat"`
	Date           int64    `json:"date"`
	EditDate       int64    `json:"edit_date"`
	Text           string   `json:"text"`
	Caption        string   `json:"caption"`

	MigrateTo      int64   `json:"migrate_to_chat_id"`
	MigrateFrom    int64   `json:"migrate_from_chat_id"`
	NewChatMembers present `json:"new_chat_members"`
	LeftChatMember present `json:"left_chat_member"`

	// What somebody can post beside text.
	Animation present `json:"animation"`
	Audio     present `json:"audio"`
	Checklist present `json:"checklist"`
	Contact   present `json:"contact"`
	Dice      present `json:"dice"`
	Document  present `json:"document"`
	Game      present `json:"game"`
	Invoice   present `json:"invoice"`
	Location  present `json:"location"`
	PaidMedia present `json:"paid_media"`
	Photo     present `json:"photo"`
	Poll      present `json:"poll"`
	Sticker   present `json:"sticker"`
	Story     present `json:"story"`
	Venue     present `json:"venue"`
	Video     present `json:"video"`
	VideoNote present `json:"video_note"`
	Voice     present `json:"voice"`
}

// posted reports whether somebody wrote m: other messages are Telegram's own
// notes about a chat.
func (m *message) posted() bool {
	if m.Text != "" || m.Caption != "" {
		return true
	}
	for _, p := range []present{
		m.Animation, m.Audio, m.Checklist, m.Contact, m.Dice, m.Document, m.Game, m.Invoice, m.Location,
		m.PaidMedia, m.Photo, m.Poll, m.Sticker, m.Story, m.Venue, m.Video, m.VideoNote, m.Voice,
	} {
		if p {
			return true
		}
	}
	return false
}

// present is true for any value but null.
type present bool

// UnmarshalJSON implements json.Unmarshaler.
func (p *present) UnmarshalJSON(b []byte) error {
	*p = string(b) != "null"
	return nil
}

type callback struct {
	ID            string   `json:"id"`
	From          user     `json:"from"`
	Message       *message `json:"message"`
	InlineMessage string   `json:"inline_message_id"`
	Data          string   `json:"data"`
	Game          string   `json:"game_short_name"`
}

type reaction struct {
	Chat      chatRef        `json:"chat"`
	MessageID int64          `json:"message_id"`
	User      *user          `json:"user"`
	ActorChat *chatRef       `json:"actor_chat"`
	Date      int64          `json:"date"`
	New       []reactionKind `json:"new_reaction"`
}

type reactionKind struct {
	Type        string `json:"type"`
	Emoji       string `json:"emoji"`
	CustomEmoji string `json:"custom_emoji_id"`
}

type membership struct {
	Chat chatRef `json:"chat"`
	From user    `json:"from"`
	Date int64   `json:"date"`
	New  struct {
		Status string `json:"status"`
	} `json:"new_chat_member"`
}

// endOfIDs is far above every id that Telegram gives.
const endOfIDs = 1 << 62

// updateID reads the id of an update whose other fields may be unreadable.
func updateID(raw json.RawMessage) (int64, bool) {
	var u struct {
		ID json.RawMessage `json:"update_id"`
	}
	if err := json.Unmarshal(raw, &u); err != nil {
		return 0, false
	}
	return saneID(u.ID)
}

// saneID reads an id that can be counted on from.
func saneID(raw []byte) (int64, bool) {
	id, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || id < 0 || id >= endOfIDs {
		return 0, false
	}
	return id, true
}
