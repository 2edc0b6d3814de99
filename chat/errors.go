package chat

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind says what a failed send means. Every failure has exactly one.
type Kind int

// The kinds of failures, each with one consequence in the delivery router.
const (
	Uncertain    Kind = iota + 1 // the request may have been carried out; no answer was read
	Temporary                    // nothing was sent; trying again later can help
	RateLimited                  // the platform asks to wait; RetryAfter and Scope say how long and for what
	Moved                        // the chat has a new id, in MovedTo
	Degradable                   // the markup or the reply target was refused; the plain form may pass
	Rejected                     // this content can never be sent as it is; the target is fine
	TargetGone                   // the chat can't be reached any more
	Unauthorized                 // the bot's login is refused or restricted
)

// String names the kind as it stands in logs and in the time line of a message.
func (k Kind) String() string {
	switch k {
	case Uncertain:
		return "uncertain"
	case Temporary:
		return "temporary"
	case RateLimited:
		return "rate_limited"
	case Moved:
		return "moved"
	case Degradable:
		return "degradable"
	case Rejected:
		return "rejected"
	case TargetGone:
		return "target_gone"
	case Unauthorized:
		return "unauthorized"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Scope says what a platform's wait is for.
type Scope int

// The scopes that platforms name. The zero Scope stands for the chat.
const (
	ScopeChannel Scope = iota // the chat
	ScopeMethod               // one API method
	ScopeBot                  // every call with the bot's token
)

// String names the scope.
func (s Scope) String() string {
	switch s {
	case ScopeChannel:
		return "channel"
	case ScopeMethod:
		return "method"
	case ScopeBot:
		return "bot"
	}
	return fmt.Sprintf("Scope(%d)", int(s))
}

// SendError is the only error type that an adapter's Send returns, beside the
// context's own error where nothing was sent.
type SendError struct {
	Kind       Kind
	Scope      Scope         // with RateLimited
	RetryAfter time.Duration // with RateLimited and Temporary; 0 means that the platform did not say
	MovedTo    ChatID        // with Moved
	NotFound   bool          // with TargetGone: the platform does not know the chat, which many at once may not be the chats' fault
	MaybeSent  bool          // with Temporary: unlikely as it is, the call may have been carried out, so a repeat is marked
	Code       string        // the platform's own code, for people
	Err        error         // the cause; holds no credential
}

// Error describes the failure in one line.
func (e *SendError) Error() string {
	var b strings.Builder
	b.WriteString(e.Kind.String())
	if e.Code != "" {
		b.WriteString(" (" + e.Code + ")")
	}
	if e.RetryAfter > 0 {
		b.WriteString(", retry after " + e.RetryAfter.String())
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *SendError) Unwrap() error { return e.Err }

// KindOf gives the kind of a failed send. Anything that is no [SendError] is
// [Uncertain], since losing a message is worse than repeating it.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*SendError](err); ok && e.Kind != 0 {
		return e.Kind
	}
	return Uncertain
}
