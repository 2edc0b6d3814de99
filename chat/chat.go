// Package chat is the vocabulary that every other package shares: who writes
// to whom, what a message and an event are, and how a send can fail. It holds
// no behaviour beyond parsing and printing its own words, does no I/O and
// imports the standard library only.
package chat

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// BotName names one login on a platform, as written under bots: in the
// configuration.
type BotName string

// Platform names a network, for example "telegram".
type Platform string

// Telegram is the platform of the Telegram Bot API.
const Telegram Platform = "telegram"

// ChatID is a platform's own id of a conversation. It is opaque: compared and
// stored as written, never parsed outside the platform's adapter.
type ChatID string

// ThreadID is a platform's own id of a topic or thread inside a chat. The
// empty ThreadID is the chat itself.
type ThreadID string

// Identity says who sent something: "platform:user-id".
type Identity string

// NewIdentity joins a platform and its user id.
func NewIdentity(p Platform, user string) Identity {
	return Identity(string(p) + ":" + user)
}

var botName = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// Valid reports whether n is a name that may stand in the configuration and
// before the first colon of a target.
func (n BotName) Valid() bool { return botName.MatchString(string(n)) }

// Target is where a message goes. It is comparable and written as "bot:chat"
// or "bot:chat/thread".
type Target struct {
	Bot    BotName
	Chat   ChatID
	Thread ThreadID
}

// ErrBadTarget is wrapped by every error of [ParseTarget].
var ErrBadTarget = errors.New("bad target")

// ParseTarget reads "bot:chat" or "bot:chat/thread". The text is split at the
// first colon and the last slash; a chat id that holds a slash of its own is
// therefore written with an empty thread ("bot:a/b/"). Case is kept.
func ParseTarget(s string) (Target, error) {
	bot, rest, found := strings.Cut(s, ":")
	if !found {
		return Target{}, fmt.Errorf("%w %q: write it as bot:chat or bot:chat/thread", ErrBadTarget, s)
	}
	t := Target{Bot: BotName(bot), Chat: ChatID(rest)}
	if i := strings.LastIndexByte(rest, '/'); i >= 0 {
		t.Chat, t.Thread = ChatID(rest[:i]), ThreadID(rest[i+1:])
	}
	if !t.Bot.Valid() {
		return Target{}, fmt.Errorf("%w %q: %q is no bot name", ErrBadTarget, s, bot)
	}
	if t.Chat == "" || strings.ContainsFunc(rest, isControl) || strings.TrimSpace(rest) != rest {
		return Target{}, fmt.Errorf("%w %q: the chat is missing or holds blanks", ErrBadTarget, s)
	}
	return t, nil
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }

// String writes t so that [ParseTarget] reads it back.
func (t Target) String() string {
	if t.Thread == "" && !strings.Contains(string(t.Chat), "/") {
		return string(t.Bot) + ":" + string(t.Chat)
	}
	return string(t.Bot) + ":" + string(t.Chat) + "/" + string(t.Thread)
}

// TextUnit says in what a platform counts the length of a text.
type TextUnit int

// The units that platforms count in.
const (
	CodePoints TextUnit = iota + 1 // Unicode code points
	UTF16Units                     // UTF-16 code units, never fewer than code points
	Bytes                          // bytes of UTF-8
)

// String names the unit.
func (u TextUnit) String() string {
	switch u {
	case CodePoints:
		return "code points"
	case UTF16Units:
		return "utf-16 units"
	case Bytes:
		return "bytes"
	}
	return fmt.Sprintf("TextUnit(%d)", int(u))
}

// Capabilities says what one target takes. The zero value means short plain
// text only.
type Capabilities struct {
	MaxText     int      // longest text of one part, in TextUnit; 0 means 1,000
	TextUnit    TextUnit // 0 means UTF16Units, which no platform counts fewer of
	Threads     bool
	Edits       bool
	Buttons     bool
	MaxFileSize int64 // bytes; 0 means no files
}
