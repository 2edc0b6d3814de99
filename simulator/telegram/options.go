// Package telegram simulates Telegram's Bot API over HTTP: methods, long polling, webhooks, limits, error bodies and
// faults on demand. It is exact enough that client libraries work against it without knowing.
//
// A [Server] keeps everything in memory and within bounds. Each bot lives in a world of its own: two bots never share
// a chat's messages or its limits. Every method of [Server] may be called concurrently.
package telegram

import (
	"log/slog"
	"net/http"
	"time"
)

// DefaultToken is the token of the bot that exists when [Options] names none.
const DefaultToken = "100000001:simulator-default-token"

const (
	defaultKeep    = 100_000
	maxPending     = 100_000
	maxRooms       = 100_000
	maxBots        = 1_000
	maxFaults      = 1_000
	maxQueries     = 10_000
	maxFileBytes   = 128 << 20
	maxUpload      = 50 << 20 // bytes; the Bot API takes uploads of up to 50 MB (read 2026-11-30).
	maxPhoto       = 10 << 20 // bytes; photos have a lower bound of 10 MB (read 2026-11-30).
	webhookTimeout = 60 * time.Second
)

// Options configures a [Server]. The zero value is ready to use.
type Options struct {
	// Tokens are the bots that exist from the start; the first is the default bot. None means [DefaultToken].
	Tokens []string
	// Strict refuses tokens that were neither listed in Tokens nor registered later (401). Otherwise every
	// well-formed token makes a bot.
	Strict bool
	// StrictChats refuses chats and topics that no update has introduced ("chat not found"). Otherwise they come into
	// being when the bot first writes to them.
	StrictChats bool
	// Limits are the platform's rate limits; nil means [DefaultLimits].
	Limits *Limits
	// Now is the clock for limits, dates and expiry; nil means time.Now. Waiting (long polls, hangs, webhook retries)
	// uses real timers.
	Now func() time.Time
	// Logger receives life-cycle records; nil discards them.
	Logger *slog.Logger
	// Client sends webhooks; nil means a client of its own with a 60 s timeout.
	Client *http.Client
	// RemoteWebhooks lets webhooks go to other machines. Otherwise only loopback addresses are taken, so that nobody
	// can use the simulator to reach into a network.
	RemoteWebhooks bool
	// FirstUpdateID is the id of each bot's first update; 0 derives it from the clock, so that ids keep rising when a
	// simulator restarts in front of a client that remembers its offset.
	FirstUpdateID int64
	// Keep is how many calls and how many messages are remembered; 0 means 100,000.
	Keep int
	// Observe is told of every visible change, in order, while the server's lock is held: it must not block and must
	// not call the server. Nil means nobody.
	Observe func(Event)
}

// Event is a visible change, for a page that follows along.
type Event struct {
	Kind   string   `json:"kind"` // message, edit, delete, reaction, typing, callback_answer, chat, bot, fault, reset
	Bot    int64    `json:"bot,omitempty"`
	ChatID int64    `json:"chat_id,omitempty"`
	Text   string   `json:"text,omitempty"`
	Entry  *Message `json:"message,omitempty"`
	Chat   *Chat    `json:"chat,omitempty"`
}

// withDefaults returns o with every unset field filled in.
func (o Options) withDefaults() Options {
	if o.Limits == nil {
		o.Limits = new(DefaultLimits())
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Client == nil {
		o.Client = &http.Client{
			Timeout:   webhookTimeout,
			Transport: &http.Transport{MaxIdleConnsPerHost: defaultConnections, IdleConnTimeout: time.Minute},
			// A redirect is a wrong response, and must not lead around the check of the address.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	if o.Keep <= 0 {
		o.Keep = defaultKeep
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	return o
}
