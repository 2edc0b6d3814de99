// Package adapters is the contract between a platform and the gateway. A
// platform's package implements [Adapter] and as many of the small optional
// interfaces as it can; the gateway asserts them once, at start-up.
package adapters

import (
	"context"
	"net/http"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
)

// Adapter is one bot on one platform.
type Adapter interface {
	// Bot is the name under which the configuration knows this bot.
	Bot() chat.BotName

	// Capabilities says what the target takes. It does no I/O and gives the
	// same answer for the same target for as long as the adapter lives.
	Capabilities(t chat.Target) chat.Capabilities

	// Limiter is the limiter of the bot's token. The router draws from it for
	// every send; the adapter itself for calls that it starts on its own. It
	// may be nil: the router then makes one with the platform's preset.
	Limiter() *limiter.RateLimiter

	// Send makes one attempt at one part: no retry, no sleep, no limiting. It
	// is safe for concurrent use. It fails only with a *chat.SendError, or with
	// the context's error if surely nothing was sent. Once bytes have left and
	// no answer was read, the kind is chat.Uncertain, also if the cause is a
	// cancelled context.
	Send(ctx context.Context, t chat.Target, p chat.Part) (chat.Receipt, error)

	// Run receives events until ctx ends, and then returns nil. It owns every
	// goroutine that it starts and reconnects by itself, with jittered
	// backoff. An error means that an operator must act. An event is
	// acknowledged to the platform only after sink returned nil.
	Run(ctx context.Context, sink Sink) error
}

// Sink takes events in the order in which the platform gave them. Nil means
// that all of them are stored, in one commit; an error means that none is, and
// that the platform must not be told that they arrived. It may block when the
// gateway is full, and is safe for concurrent use.
type Sink func(ctx context.Context, events ...chat.Event) error

// Prober is implemented by adapters that can prove their login. A nil error
// means that the platform knows the bot; an error is a *chat.SendError, whose
// kind is chat.Unauthorized if the login is refused.
type Prober interface {
	Probe(ctx context.Context) error
}

// TargetChecker is implemented by adapters that can tell a target that can't
// exist from one that may. CheckTarget does no I/O; its error is for the one
// who wrote the target.
type TargetChecker interface {
	CheckTarget(t chat.Target) error
}

// Typer is implemented by adapters that can show in a chat that the bot is
// writing. It makes one call, like Send.
type Typer interface {
	Typing(ctx context.Context, t chat.Target) error
}

// Announcer is implemented by adapters whose Send calls Part.Leaving right
// before bytes leave: when the connection is there, not while it is being made.
// What is killed before that was surely not sent. For other adapters the whole
// call counts.
type Announcer interface {
	Announces()
}

// Webhook is implemented by adapters to which the platform can push events.
// The handler checks the platform's signature on the raw bytes before anything
// else, and answers with success only after sink returned nil.
type Webhook interface {
	Webhook(sink Sink) http.Handler
}

// Health is what an adapter knows of its connection.
type Health struct {
	Connected  bool      // the last call of the receiving side succeeded
	LastEvent  time.Time // zero before the first
	LastAnswer time.Time // of the platform, to any call of the receiving side
	Err        string    // the latest failure while not connected; holds no credential
}

// Reporter is implemented by adapters that can tell their health.
type Reporter interface {
	Health() Health
}
