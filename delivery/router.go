// Package delivery is the only way out. The [DeliveryRouter] takes replies and
// proactive messages alike, stores them, and sends them in the order of their
// lanes, through the limiter of their bot, until each is sent or given up on.
package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

// Errors of [DeliveryRouter.Deliver] that a caller acts on, beside those of
// package outbox and [DeadTargetError].
var (
	ErrUnknownBot = errors.New("no such bot")
	ErrEmpty      = errors.New("the message has neither text nor attachments")
	ErrTooLate    = errors.New("the message's deliver-by has passed already")
	ErrNoFiles    = errors.New("the target takes no such attachment")
)

// noFiles stands for Options.Files where there are none.
type noFiles struct{}

// Open fails.
func (noFiles) Open(string) (io.ReadCloser, error) { return nil, ErrNoFiles }

// Keep fails.
func (noFiles) Keep(string) error { return ErrNoFiles }

// Store is what the router stores in.
type Store interface {
	outbox.Outbox
	outbox.Archive
}

// DeadTargetError refuses a message to a chat that can't be reached. Nothing
// was stored.
type DeadTargetError struct {
	Target chat.Target
	Reason string
	Since  time.Time
}

// Error describes the refusal.
func (e *DeadTargetError) Error() string {
	return fmt.Sprintf("%s can't be reached since %s: %s", e.Target, e.Since.UTC().Format(time.RFC3339), e.Reason)
}

// Request is a message on its way into the outbox.
type Request struct {
	Target    chat.Target
	Message   chat.Message
	Priority  outbox.Priority // zero: outbox.Proactive
	Key       string          // idempotency key; empty for none
	NotBefore time.Time       // zero: at once
	ExpiresAt time.Time       // deliver-by; zero: never too late
	// Supersede names what the message is the newest word on, within its target:
	// an older message with the same one that has not been sent, not even in
	// part, is cancelled. Empty for none.
	Supersede   string
	OnUncertain outbox.OnUncertain // zero: as the rules say
}

// Ticket is the answer to a request: the entry's id, and whether the key was
// known before.
type Ticket struct {
	ID        outbox.ID
	Duplicate bool
}

// Options configure a router. The zero value of each field is its default.
type Options struct {
	Rules       outbox.Rules  // outbox.DefaultRules
	SendTimeout time.Duration // of one attempt; 30 s
	MaxPending  int           // entries of all bots; 1,000,000
	ProbeEvery  time.Duration // a dead target is tried again after this; 1 h
	MaxDead     int           // dead targets a bot; 10,000
	Held        bool          // bots start on hold: see DeliveryRouter.Hold
	Files       Files         // of attachments; without it none are taken
	Log         *slog.Logger  // nothing is logged without it

	// OnPause is told when a send finds the bot's login refused, and the platform
	// says the same when it is asked. The bot's entries wait until Resume. It must not block, but may call the router.
	OnPause func(bot chat.BotName, cause error)

	// OnLoad is told when Run has loaded what waits for a bot. It must not
	// block.
	OnLoad func(bot chat.BotName)

	// OnOutside is told when entries were stored for a bot that this process does
	// not own, so that its owner can be told to adopt them. It must not block.
	OnOutside func(bot chat.BotName)

	// Seize takes the lock of a bot that no process owns, for a change of what is
	// stored for it, and gives what gives it back. Without it only owned bots can
	// be changed.
	Seize func(bot chat.BotName) (release func(), err error)

	// OnDead is told when an entry has become a dead letter. It must not block.
	OnDead func()
}

// Files are where the bytes of attachments are.
type Files interface {
	// Open gives the bytes with this digest, for the caller to close.
	Open(digest string) (io.ReadCloser, error)
	// Keep makes sure that the bytes are on disk and stay there as long as an
	// entry names them. It fails if they are not known.
	Keep(digest string) error
}

func (o Options) withDefaults() Options {
	if o.Rules == (outbox.Rules{}) {
		o.Rules = outbox.DefaultRules()
	}
	if o.SendTimeout <= 0 {
		o.SendTimeout = 30 * time.Second
	}
	if o.MaxPending <= 0 {
		o.MaxPending = 1_000_000
	}
	if o.ProbeEvery <= 0 {
		o.ProbeEvery = time.Hour
	}
	if o.MaxDead <= 0 {
		o.MaxDead = 10_000
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.OnPause == nil {
		o.OnPause = func(chat.BotName, error) {}
	}
	if o.OnLoad == nil {
		o.OnLoad = func(chat.BotName) {}
	}
	if o.Files == nil {
		o.Files = noFiles{}
	}
	if o.OnOutside == nil {
		o.OnOutside = func(chat.BotName) {}
	}
	if o.OnDead == nil {
		o.OnDead = func() {}
	}
	return o
}

// DeliveryRouter delivers for all bots. It is safe for concurrent use.
type DeliveryRouter struct {
	box     Store
	opts    Options
	pending atomic.Int64 // entries of all bots that have not ended, as far as is known here

	mu       sync.RWMutex
	bots     map[chat.BotName]*bot
	restored map[*limiter.RateLimiter]bool // limiters that go on from the stored state
}

// New gives a router over box. Bots join with Add; nothing is sent before Run.
func New(box Store, opts Options) *DeliveryRouter {
	return &DeliveryRouter{box: box, opts: opts.withDefaults(), bots: map[chat.BotName]*bot{}, restored: map[*limiter.RateLimiter]bool{}}
}

// Add makes the adapter's bot known, so that messages to it are taken. An
// adapter without a limiter gets one with the platform's preset, which the
// router keeps. Adding a bot again is an error.
func (r *DeliveryRouter) Add(a adapters.Adapter, platform chat.Platform) error {
	lim := a.Limiter()
	if lim == nil {
		lim = limiter.ForPlatform(string(platform))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.bots[a.Bot()]; ok {
		return fmt.Errorf("add bot %s: it is there already", a.Bot())
	}
	r.bots[a.Bot()] = newBot(a, lim, r)
	return nil
}

// Run sends for one bot until ctx ends; the caller holds the bot's lock. After
// that no new call is made, calls in flight get up to grace to end, and what
// is left stays on disk. It returns nil after such a stop, and
// outbox.ErrNotOwner if another process took the bot over.
func (r *DeliveryRouter) Run(ctx context.Context, name chat.BotName, grace time.Duration) error {
	b, err := r.bot(name)
	if err != nil {
		return err
	}
	if err := b.run(ctx, grace); err != nil {
		return fmt.Errorf("send for %s: %w", name, err)
	}
	return nil
}

// Deliver takes a message: it is checked, rendered, split and stored. Nil
// means that it is on disk and will be sent, or end as a dead letter.
func (r *DeliveryRouter) Deliver(ctx context.Context, q Request) (Ticket, error) {
	b, err := r.bot(q.Target.Bot)
	if err != nil {
		return Ticket{}, fmt.Errorf("deliver to %s: %w", q.Target, err)
	}
	e, err := b.compose(q)
	if err != nil {
		return Ticket{}, fmt.Errorf("deliver to %s: %w", q.Target, err)
	}
	tickets, err := b.enqueue(ctx, []outbox.Entry{e}, nil)
	if err != nil {
		return Ticket{}, fmt.Errorf("deliver to %s: %w", q.Target, err)
	}
	return tickets[0], nil
}

// EndTurn ends a turn of the bot and stores its replies, in one commit. A
// reply that can't be taken (without text, to a dead target, through another
// bot) is left out and logged; the turn ends all the same.
func (r *DeliveryRouter) EndTurn(ctx context.Context, name chat.BotName, end outbox.TurnEnd, replies ...Request) ([]Ticket, error) {
	b, err := r.bot(name)
	if err != nil {
		return nil, fmt.Errorf("end turn %d: %w", end.Turn, err)
	}
	entries := make([]outbox.Entry, 0, len(replies))
	for _, q := range replies {
		e, err := b.compose(q)
		if err == nil && q.Target.Bot != name {
			err = ErrUnknownBot
		}
		if err == nil {
			err = b.refuses(e.Target, time.Now())
		}
		if err != nil {
			b.log.WarnContext(ctx, "reply left out", "target", q.Target.String(), "err", err)
			continue
		}
		entries = append(entries, e)
	}
	tickets, err := b.enqueue(ctx, entries, &end)
	if err != nil {
		return nil, fmt.Errorf("end turn %d: %w", end.Turn, err)
	}
	return tickets, nil
}

// Message gives an entry with its whole story.
func (r *DeliveryRouter) Message(ctx context.Context, id outbox.ID) (outbox.Entry, bool, error) {
	entries, err := r.box.Read(ctx, id)
	if err != nil || len(entries) == 0 {
		return outbox.Entry{}, false, err
	}
	return entries[0], true, nil
}

// Revive takes the chat off the dead targets, as an event from it does. It
// costs nothing for a chat that is not dead. Only the bot's owner can do it.
func (r *DeliveryRouter) Revive(ctx context.Context, t chat.Target) error {
	b, err := r.bot(t.Bot)
	if err != nil {
		return fmt.Errorf("revive %s: %w", t, err)
	}
	return b.revive(ctx, t.Chat)
}

// Move rewrites a chat's id, with everything that waits for it. A platform may
// announce this in an event before a send finds it out. Only the bot's owner
// can do it.
func (r *DeliveryRouter) Move(ctx context.Context, t chat.Target, to chat.ChatID) error {
	b, err := r.bot(t.Bot)
	if err != nil {
		return fmt.Errorf("move %s: %w", t, err)
	}
	return b.move(ctx, t.Chat, to)
}

// Resume lets a bot send again whose login had been refused.
func (r *DeliveryRouter) Resume(name chat.BotName) {
	if b, err := r.bot(name); err == nil {
		b.resume()
	}
}

// Status is what the router knows of a bot.
type Status struct {
	Owned    bool // this process sends for it
	Pending  int  // entries that have not ended
	InFlight int  // calls being made
	Paused   error
	OnHold   bool // by an operator
}

// Status tells where a bot stands; the zero Status for an unknown one.
func (r *DeliveryRouter) Status(name chat.BotName) Status {
	b, err := r.bot(name)
	if err != nil {
		return Status{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return Status{Owned: b.owned, Pending: b.waiting(), InFlight: b.inFlight, Paused: b.paused, OnHold: b.onHold}
}

func (r *DeliveryRouter) bot(name chat.BotName) (*bot, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	b, ok := r.bots[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrUnknownBot, name)
	}
	return b, nil
}

// restore lets a limiter go on from the stored state, once: bots that share a
// limiter start one after the other.
func (r *DeliveryRouter) restore(l *limiter.RateLimiter, anchors []limiter.Anchors, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.restored[l] {
		return
	}
	r.restored[l] = true
	for _, a := range anchors {
		if a.Scope == l.Scope() {
			l.Restore(now, a)
		}
	}
}
