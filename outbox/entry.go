package outbox

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/chatgateway/gateway/chat"
)

// ID numbers an entry. Within one store later entries have larger numbers, and
// a number is never used again.
type ID int64

// String writes the id as the API does.
func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }

// ParseID reads what [ID.String] wrote, and no other spelling of it.
func ParseID(s string) (ID, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 || ID(n).String() != s {
		return 0, fmt.Errorf("%q is no message id", s)
	}
	return ID(n), nil
}

// State says where an entry stands. docs/ARCHITECTURE.md draws the ways
// between the states.
type State int

// The states of an entry. The first three are pending, the others are ends.
const (
	Queued    State = iota + 1 // waits for its turn in its lane
	Sending                    // its call is being made, or was when the process died
	Waiting                    // waits for a retry or for a penalty to end
	Sent                       // every part has its receipt
	Dead                       // given up on: a dead letter
	Expired                    // its deliver-by passed before its first part left
	Cancelled                  // withdrawn before it was sent
)

// Pending reports whether the entry has yet to end.
func (s State) Pending() bool { return s == Queued || s == Sending || s == Waiting }

// String names the state as the API does.
func (s State) String() string {
	switch s {
	case Queued:
		return "queued"
	case Sending:
		return "sending"
	case Waiting:
		return "waiting"
	case Sent:
		return "sent"
	case Dead:
		return "dead"
	case Expired:
		return "expired"
	case Cancelled:
		return "cancelled"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Priority orders lanes when they compete for a slot.
type Priority int

// The priorities, from the least urgent.
const (
	Bulk      Priority = iota + 1 // broadcasts
	Proactive                     // what a program or a schedule sends by itself
	Reply                         // the answer to a person who waits
)

// String names the priority as the API does.
func (p Priority) String() string {
	switch p {
	case Bulk:
		return "bulk"
	case Proactive:
		return "proactive"
	case Reply:
		return "reply"
	}
	return fmt.Sprintf("Priority(%d)", int(p))
}

// ParsePriority reads the word used in the API; the empty string is [Proactive].
func ParsePriority(s string) (Priority, error) {
	switch s {
	case "", "proactive":
		return Proactive, nil
	case "reply":
		return Reply, nil
	case "bulk":
		return Bulk, nil
	}
	return 0, fmt.Errorf("priority %q is none of reply, proactive, bulk", s)
}

// Entry is one message on its way, with its whole story.
type Entry struct {
	ID             ID
	Target         chat.Target
	State          State
	Priority       Priority
	Key            string        // idempotency key; empty for none
	Fingerprint    []byte        // of the message under that key
	Supersede      string        // supersede key within its target; empty for none
	Supersedes     ID            // of a new entry that the store does not know yet: the pending one that ends as Cancelled when it is stored
	OnUncertain    OnUncertain   // zero: as the rules say
	ReplayOf       ID            // the dead letter that this entry replays; zero for none
	ReplayedBy     ID            // of a dead letter: the entry that replays it; zero if none does
	Source         *chat.Message // what the caller handed over, where Parts do not say it all; nil: the one part is it
	Parts          []chat.Part
	Receipts       []chat.Receipt // of the parts sent so far: the next part's index is len(Receipts)
	NotBefore      time.Time      // zero: at once
	ExpiresAt      time.Time      // zero: never
	Due            time.Time      // while Waiting
	Attempts       int            // failed ones that count towards the dead-letter rule
	Uncertain      int            // attempts of the next part that ended uncertain
	Degraded       bool           // the next part goes out in its plainer form
	MayBeDuplicate bool           // it was, or will be, sent again after an uncertain attempt
	Reason         string         // why it ended, or what it waits for
	CreatedAt      time.Time
	EndedAt        time.Time // zero while pending
	Log            []Attempt // its time line
}

// Fingerprint tells one message from another under the same idempotency key.
func Fingerprint(t chat.Target, m chat.Message, p Priority) []byte {
	b, err := json.Marshal([]any{t, m, p})
	if err != nil {
		panic("outbox: a message that is not JSON: " + err.Error()) // strings and numbers only
	}
	sum := sha256.Sum256(b)
	return sum[:16]
}

// Attempt is one line of an entry's time line. It is stored as JSON.
type Attempt struct {
	At         time.Time     `json:"at"`
	Part       int           `json:"part"`
	Kind       string        `json:"kind"` // "sent", or the kind of failure
	Code       string        `json:"code,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"` // nanoseconds
	Detail     string        `json:"detail,omitempty"`
}

// Message is what the caller handed over, as far as it has not been sent.
func (e Entry) Message() chat.Message {
	if e.Source != nil && len(e.Receipts) == 0 {
		return *e.Source
	}
	var m chat.Message
	if e.Source != nil {
		m = *e.Source
		m.Text, m.Attachments = "", nil
	}
	for i, p := range e.Parts[len(e.Receipts):] {
		if i > 0 && p.Text != "" && m.Text != "" {
			m.Text += "\n"
		}
		m.Text += p.Text
		m.Silent = m.Silent || p.Silent
		if p.ReplyTo != "" {
			m.ReplyTo = p.ReplyTo
		}
		if p.Attachment != nil {
			m.Attachments = append(m.Attachments, *p.Attachment)
		}
	}
	return m
}

// Settlement records the end of an attempt and what becomes of the entry.
type Settlement struct {
	ID             ID
	State          State
	Receipt        chat.Receipt // of the part that was sent
	Delivered      bool         // a part was sent: Receipt is one more of the entry's receipts
	Due            time.Time
	Attempts       int
	Uncertain      int
	Degraded       bool
	MayBeDuplicate bool
	Reason         string
	Log            Attempt // zero Kind: nothing happened on the wire
}
