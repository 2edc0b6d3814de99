package outbox

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chatgateway/gateway/chat"
)

// OnUncertain says what becomes of an entry whose attempt may have arrived.
type OnUncertain int

// The answers to an uncertain attempt.
const (
	Resend OnUncertain = iota + 1 // once more, marked; then a dead letter
	Label                         // the same, with a mark that the reader sees
	Hold                          // a dead letter at once, for a person to decide
)

// String gives the word used in the configuration.
func (o OnUncertain) String() string {
	switch o {
	case Resend:
		return "resend"
	case Label:
		return "label"
	case Hold:
		return "hold"
	}
	return fmt.Sprintf("OnUncertain(%d)", int(o))
}

// ParseOnUncertain reads the word used in the configuration.
func ParseOnUncertain(s string) (OnUncertain, error) {
	switch s {
	case "resend":
		return Resend, nil
	case "label":
		return Label, nil
	case "hold":
		return Hold, nil
	}
	return 0, fmt.Errorf("%q is none of resend, label, hold", s)
}

// Rules say when an entry is given up on. The zero value is not usable; see
// [DefaultRules].
type Rules struct {
	MaxAttempts int           // failed attempts, at least 1 …
	MinAge      time.Duration // … and this age, both needed
	OnUncertain OnUncertain
}

// DefaultRules are those of the shipped configuration.
func DefaultRules() Rules {
	return Rules{MaxAttempts: 5, MinAge: 6 * time.Hour, OnUncertain: Resend}
}

const (
	baseBackoff   = time.Second
	maxBackoff    = 60 * time.Second
	minBlindWait  = time.Second // a limit without a hint waits at least this
	uncertainDead = 2           // uncertain attempts of one part after which nobody knows any more
)

// Backoff is the wait before attempt n+1 after n failed ones: exponential from
// 1 s, doubled each time, at most 60 s, with full jitter. r is a random number
// in [0, 1).
func Backoff(n int, r float64) time.Duration {
	ceiling := maxBackoff
	if n < 7 {
		ceiling = min(maxBackoff, baseBackoff<<max(n-1, 0))
	}
	return time.Duration(r * float64(ceiling))
}

// After gives the settlement of a failed attempt at e's next part. The caller
// acts on the kinds that concern more than the entry: RateLimited, Moved,
// TargetGone and Unauthorized. r is a random number in [0, 1).
func (rules Rules) After(e Entry, fail *chat.SendError, now time.Time, r float64) Settlement {
	s := Settlement{
		ID: e.ID, State: Waiting, Due: now, Reason: clip(fail.Error()),
		Attempts: e.Attempts, Uncertain: e.Uncertain, Degraded: e.Degraded, MayBeDuplicate: e.MayBeDuplicate,
		Log: Attempt{
			At: now, Part: len(e.Receipts), Kind: fail.Kind.String(), Code: fail.Code,
			RetryAfter: fail.RetryAfter, Detail: detail(fail),
		},
	}
	switch fail.Kind {
	case chat.Temporary, chat.Unauthorized: // a refused login that the platform takes elsewhere concerns this message
		s.Attempts++
		s.MayBeDuplicate = s.MayBeDuplicate || fail.MaybeSent
		s.Due = now.Add(max(Backoff(s.Attempts, r), fail.RetryAfter))
		if s.Attempts >= rules.MaxAttempts && now.Sub(e.CreatedAt) >= rules.MinAge {
			s.State = Dead
		}
	case chat.RateLimited: // never counted: the limiter holds the scope, not the entry's own clock
		s.Due = now.Add(fail.RetryAfter)
	case chat.Uncertain:
		rules.For(e).afterUncertain(&s, now, r)
	case chat.Moved:
		// again as soon as the target is rewritten
	case chat.Degradable:
		s.Degraded = true
		if _, ok := e.Parts[len(e.Receipts)].Plainer(); !ok || e.Degraded {
			s.State = Dead
		}
	case chat.Rejected, chat.TargetGone:
		s.State = Dead
	}
	return s
}

func (rules Rules) afterUncertain(s *Settlement, now time.Time, r float64) {
	s.Uncertain++
	if rules.OnUncertain == Hold || s.Uncertain >= uncertainDead {
		s.State = Dead
		return
	}
	s.MayBeDuplicate = true
	s.Due = now.Add(Backoff(1, r))
}

// For gives the rules with what the entry itself asks for.
func (rules Rules) For(e Entry) Rules {
	if e.OnUncertain != 0 {
		rules.OnUncertain = e.OnUncertain
	}
	return rules
}

// SupersededBy is the reason of an entry that a newer one took the place of.
func SupersededBy(id ID) string { return "superseded by message " + id.String() }

// Interrupted gives the settlement of an entry that was Sending when its
// process died, after its call may have been made.
func (rules Rules) Interrupted(e Entry, now time.Time) Settlement {
	return rules.After(e, &chat.SendError{Kind: chat.Uncertain, Err: errInterrupted}, now, 0)
}

// Untouched gives the settlement of an entry that was Sending when its process
// died, before its call was made: it goes on as if nothing had happened.
func Untouched(e Entry) Settlement {
	return Settlement{
		ID: e.ID, State: Queued, Attempts: e.Attempts, Uncertain: e.Uncertain,
		Degraded: e.Degraded, MayBeDuplicate: e.MayBeDuplicate, Reason: e.Reason,
	}
}

var errInterrupted = errors.New("the process ended before the answer was stored")

// BlindWait is the wait for a limit whose platform gave no hint: the backoff
// of the nth such answer in a row, at least 1 s.
func BlindWait(n int, r float64) time.Duration {
	return max(minBlindWait, Backoff(n, r))
}

func detail(fail *chat.SendError) string {
	if fail.Err == nil {
		return ""
	}
	return clip(fail.Err.Error())
}

// clip bounds what is stored of an error's text, and makes it valid UTF-8.
func clip(text string) string {
	const longest = 300 // bytes
	if len(text) > longest {
		text = text[:longest]
	}
	return strings.ToValidUTF8(text, "")
}
