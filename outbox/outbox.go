// Package outbox is the contract of durable delivery: what an entry is, the
// states that it passes, the rules between them, and the batches in which
// changes reach the disk. Databases implement [Outbox] under store/; the
// delivery router is its user.
package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
)

// Errors that a caller acts on.
var (
	// ErrNotOwner means that another process owns the bot now. Nothing of the
	// batch was stored.
	ErrNotOwner = errors.New("another process owns this bot")

	// ErrKeyReused means that the idempotency key is known with another body.
	ErrKeyReused = errors.New("idempotency key was used for another message")

	// ErrFull means that the outbox holds as many pending entries as it may.
	ErrFull = errors.New("outbox is full")

	// ErrNoSpace means that the disk is full. Nothing was stored.
	ErrNoSpace = errors.New("no space left for the outbox")

	// ErrReplayed means that an entry can't be replayed: it was already, or it
	// is no dead letter any more. Nothing of the batch was stored.
	ErrReplayed = errors.New("the dead letter was replayed already, or is none any more")
)

// Owner is the right to send for a bot. Its epoch fences every write but that
// of new entries: after another process took over, they fail with [ErrNotOwner].
type Owner struct {
	Bot   chat.BotName
	Epoch int64
}

// Outbox is where entries live. It is safe for concurrent use.
type Outbox interface {
	// Acquire makes the caller the owner of bot and fences every earlier one.
	// The caller must hold the bot's lock.
	Acquire(ctx context.Context, bot chat.BotName) (Owner, error)

	// Load gives the owner what it needs in memory after a start, except for the
	// entries.
	Load(ctx context.Context, o Owner) (Backlog, error)

	// Heads gives pending entries of the owner's bot with ids above after, in
	// their order, up to some thousands at once; none means that there are no
	// more. What other processes have stored and nobody has adopted yet is left
	// out. Bodies stay on disk.
	Heads(ctx context.Context, o Owner, after ID) ([]Head, error)

	// Apply commits b as a whole; nil means that it is on disk. Concurrent
	// callers share one commit. An entry whose key is known is not stored
	// again, also if the batch itself holds the key twice; Applied says so.
	// ErrNotOwner (also for a batch that needs an owner and names none),
	// ErrKeyReused, ErrReplayed and ErrNoSpace mean that nothing changed. A
	// cancelled context does not undo a batch that waits for its commit.
	Apply(ctx context.Context, b Batch) (Applied, error)

	// Note says that the call of an entry that was committed as Sending is made
	// now. It costs no sync: the note outlives the process, though not a power
	// cut, and lets Heads tell calls that were surely not made from those that
	// may have been. Each call in flight has a seat of its own, from 0 on.
	Note(bot chat.BotName, seat int, c Call) error
}

// Archive is what anybody can read of the outbox, its owner or not. It is safe
// for concurrent use.
type Archive interface {
	// Read gives the entries with these ids, in their order; one that is not
	// known is left out.
	Read(ctx context.Context, ids ...ID) ([]Entry, error)

	// List gives whole entries that pass the filter, ordered by id.
	List(ctx context.Context, f Filter) ([]Entry, error)

	// Count counts the entries that pass the filter, which may have no limit.
	Count(ctx context.Context, f Filter) (int, error)

	// DeadTargets gives up to n dead targets of a bot, ordered by chat, with
	// chats after the one given.
	DeadTargets(ctx context.Context, bot chat.BotName, after chat.ChatID, n int) ([]DeadTarget, error)

	// DeadTarget tells whether a chat is dead.
	DeadTarget(ctx context.Context, bot chat.BotName, id chat.ChatID) (DeadTarget, bool, error)
}

// Filter chooses entries. The zero value of each field lets all pass.
type Filter struct {
	States []State
	Bot    chat.BotName
	Chat   chat.ChatID
	Reason string    // is part of the entry's reason
	Since  time.Time // not created before
	Until  time.Time // created before
	Open   bool      // only dead letters that were not replayed
	Untold bool      // only dead letters that nobody was told of; see Batch.Told
	After  ID        // only later ids, or, with Newest, earlier ones
	Newest bool      // the latest first
	Limit  int       // 0: 100
}

// Batch is a set of changes for one bot that become durable together.
type Batch struct {
	// Owner is zero in a process that only enqueues: then only New and Turns may
	// be set, and the entries wait until the owner adopts them.
	Owner   Owner
	At      time.Time
	New     []Entry // ID is given by the store; State is Queued or Sending
	Sending []ID    // the call is about to be made
	Settled []Settlement
	Turns   []TurnEnd
	Dead    []DeadTarget  // marked, or marked again
	Revived []chat.ChatID // no longer dead
	Ended   []Ending      // without an attempt
	Moves   []Move
	Anchors []limiter.Anchors
	Edits   []Edit // of dead letters
	Dropped []ID   // dead letters that nobody wants any more: they end as Cancelled
	Told    []ID   // dead letters that somebody was told of; others' ids change nothing
	Adopt   bool   // take over what processes without an owner have stored, up to some thousand entries at once
}

// Edit replaces the content of a dead letter that was not replayed.
type Edit struct {
	ID       ID
	Target   chat.Target // of the same bot
	Parts    []chat.Part
	Receipts []chat.Receipt // of the parts that were sent, and stay
	Source   *chat.Message
}

// Call names one attempt: the entry, and how many lines its time line has.
type Call struct {
	ID      ID
	Attempt int
}

// Applied is what a commit gave.
type Applied struct {
	New     []Stored // one for each entry of Batch.New, in its order
	Adopted []Head   // with Batch.Adopt: ordered by id, each given once; none means that there are no more
	Missed  []ID     // of Edits and Dropped: they are no dead letters, or were replayed
}

// Stored tells where a new entry stands.
type Stored struct {
	ID        ID
	Duplicate bool // the key was known: ID is the earlier entry's
}

// TurnID numbers an event in the journal. Later events have larger numbers.
type TurnID int64

// Outcome says how a turn ended.
type Outcome int

// The ends of a turn.
const (
	TurnDone   Outcome = iota + 1 // answered, perhaps with nothing
	TurnDenied                    // refused by the policy; never run later
	TurnDead                      // given up on
)

// String names the outcome.
func (o Outcome) String() string {
	switch o {
	case TurnDone:
		return "done"
	case TurnDenied:
		return "denied"
	case TurnDead:
		return "dead"
	}
	return "unknown"
}

// TurnEnd ends a turn. It commits together with the turn's replies.
type TurnEnd struct {
	Turn    TurnID
	Outcome Outcome
	Reason  string // for people; empty when done
}

// DeadTarget is a chat that can't be reached any more.
type DeadTarget struct {
	Chat    chat.ChatID
	Reason  string
	Code    string
	Since   time.Time // the first mark
	At      time.Time // the latest mark
	Count   int       // how often it was marked
	ProbeAt time.Time // from when on the next real message is let through
}

// Ending ends pending entries for another reason than an attempt.
type Ending struct {
	IDs    []ID
	State  State // Dead, Expired or Cancelled
	Reason string
}

// Move remembers a chat's new id, and rewrites it in pending entries.
type Move struct {
	From, To chat.ChatID
	IDs      []ID // of the entries
}

// Backlog is what an owner starts from, beside the entries.
type Backlog struct {
	Dead    []DeadTarget
	Moves   []Move // oldest first, without ids
	Anchors []limiter.Anchors
}

// Head is a pending entry without its body.
type Head struct {
	ID             ID
	Chat           chat.ChatID
	Thread         chat.ThreadID
	State          State
	Priority       Priority
	Supersede      string
	NotBefore      time.Time // zero: at once
	ExpiresAt      time.Time // zero: never
	Due            time.Time // of a waiting entry
	Begun          bool      // a part of it was sent
	MayBeDuplicate bool
	Called         bool // of an entry that is Sending: its call may have been made
}
