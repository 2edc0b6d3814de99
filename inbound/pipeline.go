// Package inbound leads an event to its answer: journal, policy, one turn at a
// time in each chat, handler, and the turn's end together with its replies.
package inbound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/policy"
)

// Handler answers turns. It is called concurrently for different chats, one
// turn at a time in each.
type Handler interface {
	// Handle gives the replies to a turn, in order; none is fine. An error
	// makes the turn run again later. The context ends with the turn's time
	// limit, or when the gateway stops; a turn cut off by a stop runs again
	// after the restart, with a higher Turn.Attempt.
	Handle(ctx context.Context, t Turn) ([]chat.Message, error)
}

// HandlerFunc lets a function be a handler.
type HandlerFunc func(ctx context.Context, t Turn) ([]chat.Message, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, t Turn) ([]chat.Message, error) { return f(ctx, t) }

// ErrStopping refuses events while the gateway stops. The platform keeps them.
var ErrStopping = errors.New("the gateway is stopping")

// router is what the pipeline needs of delivery.DeliveryRouter.
type router interface {
	EndTurn(ctx context.Context, bot chat.BotName, end outbox.TurnEnd, replies ...delivery.Request) ([]delivery.Ticket, error)
	Revive(ctx context.Context, t chat.Target) error
	Move(ctx context.Context, t chat.Target, to chat.ChatID) error
}

// Options configure a pipeline. The zero value of each field is its default.
type Options struct {
	Policy        policy.RateLimitPolicy // safe for concurrent use, as a policy.Guard is; everybody is let in without one
	Scope         PolicyScope            // ScopeBot
	Notice        string                 // sent to who is denied; {retry_after} is the wait; empty: silence
	Notices       *policy.Notices        // says when a notice is due; nobody is told without them
	MaxConcurrent int                    // turns at once; 8
	MaxWaiting    int                    // turns in memory, at most 16 of a chat; beyond it events are left with the platform; 1,000
	Timeout       time.Duration          // of one run of a handler; 300 s
	MaxAttempts   int                    // runs of a turn whose handler fails; 5
	Log           *slog.Logger           // nothing is logged without it
}

func (o Options) withDefaults() Options {
	if o.Scope == 0 {
		o.Scope = ScopeBot
	}
	if o.MaxConcurrent <= 0 {
		o.MaxConcurrent = 8
	}
	if o.MaxWaiting <= 0 {
		o.MaxWaiting = 1000
	}
	if o.Timeout <= 0 {
		o.Timeout = 300 * time.Second
	}
	if o.MaxAttempts <= 0 {
		o.MaxAttempts = 5
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// PolicyScope says what one count of the policy is for.
type PolicyScope int

// The scopes of the policy.
const (
	ScopeBot      PolicyScope = iota + 1 // each bot counts for itself
	ScopeChat                            // each chat
	ScopePlatform                        // all bots of a platform together
	ScopeGateway                         // everything together
)

// String gives the word used in the configuration.
func (s PolicyScope) String() string {
	switch s {
	case ScopeBot:
		return "bot"
	case ScopeChat:
		return "chat"
	case ScopePlatform:
		return "platform"
	case ScopeGateway:
		return "gateway"
	}
	return fmt.Sprintf("PolicyScope(%d)", int(s))
}

// ParsePolicyScope reads the word used in the configuration.
func ParsePolicyScope(s string) (PolicyScope, error) {
	for _, scope := range []PolicyScope{ScopeBot, ScopeChat, ScopePlatform, ScopeGateway} {
		if scope.String() == s {
			return scope, nil
		}
	}
	return 0, fmt.Errorf("%q is none of bot, chat, platform, gateway", s)
}

// Bot is where a bot's events go.
type Bot struct {
	Name     chat.BotName
	Platform chat.Platform
	Handler  Handler
}

// Pipeline takes events from the adapters and runs turns. It is safe for
// concurrent use.
type Pipeline struct {
	journal Journal
	router  router
	opts    Options
	log     *slog.Logger
	room    *semaphore.Weighted // turns in memory
	perChat int                 // of them, for one chat
	wake    chan struct{}

	mu       sync.Mutex
	bots     map[chat.BotName]Bot
	gates    map[chat.BotName]*semaphore.Weighted // shared by those who accept, taken whole by who recovers
	sessions map[chat.Target]*session
	ready    []*session // whose turn it is to start, first come first served
	delayed  []*session // that wait to try a turn again
	running  int
	stopping bool
}

// New gives a pipeline; nothing runs before Run.
func New(j Journal, r router, opts Options) *Pipeline {
	opts = opts.withDefaults()
	return &Pipeline{
		journal: j, router: r, opts: opts, log: opts.Log,
		room:     semaphore.NewWeighted(int64(opts.MaxWaiting)),
		perChat:  min(mostPerChat, share(opts.MaxWaiting)),
		wake:     make(chan struct{}, 1),
		bots:     map[chat.BotName]Bot{},
		gates:    map[chat.BotName]*semaphore.Weighted{},
		sessions: map[chat.Target]*session{},
	}
}

// share is the part of the room that one chat, or one commit, may take.
func share(room int) int { return max(room/8, 1) }

// Add makes a bot's events welcome.
func (p *Pipeline) Add(b Bot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bots[b.Name] = b
	p.gates[b.Name] = semaphore.NewWeighted(wholeGate)
}

// Accept is the adapters' Sink: it stores the events, in order, and starts
// their turns. It blocks while the turns of too many chats wait, so that events
// stay with the platform.
func (p *Pipeline) Accept(ctx context.Context, events ...chat.Event) error {
	for len(events) > 0 { // one commit, unless so many would wait for the room of all
		n := min(len(events), share(p.opts.MaxWaiting))
		if err := p.accept(ctx, events[:n]); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

func (p *Pipeline) accept(ctx context.Context, events []chat.Event) error {
	if err := p.room.Acquire(ctx, int64(len(events))); err != nil { // before the gate: nobody waits for room inside it
		return fmt.Errorf("wait for room: %w", err)
	}
	taken := 0
	defer func() { p.room.Release(int64(len(events) - taken)) }()
	leave, err := p.enter(ctx, events[0].Source.Bot, 1)
	if err != nil {
		return err
	}
	defer leave()
	if p.isStopping() {
		return ErrStopping
	}
	intakes := make([]Intake, len(events))
	for i, e := range events {
		intakes[i] = Intake{Event: e, Ended: !answerable(e)}
	}
	accepted, err := p.journal.Accept(ctx, intakes...)
	if err != nil {
		return err
	}
	repeats, first := 0, ""
	for i, a := range accepted {
		if !a.Fresh {
			if repeats == 0 {
				first = events[i].ID
			}
			repeats++
			continue
		}
		p.log.DebugContext(ctx, "event", "target", events[i].Source.String(), "kind", events[i].Kind.String())
		p.observe(context.WithoutCancel(ctx), events[i])
	}
	if repeats > 0 {
		p.log.InfoContext(ctx, "events are repeats: they are not run again", "bot", string(events[0].Source.Bot), "count", repeats, "event", first)
	}
	// From here on the events are stored: whatever fails is tried again after
	// the next start, and the platform is told that they arrived.
	taken = p.admit(ctx, intakes, accepted)
	return nil
}

// wholeGate is the weight of one who lets nobody else through a bot's gate.
const wholeGate = 1 << 30

// enter passes the bot's gate: accepting and recovering exclude each other, so
// that a turn is queued once and older ones come first. Nobody waits for room
// inside it.
func (p *Pipeline) enter(ctx context.Context, bot chat.BotName, weight int64) (leave func(), err error) {
	p.mu.Lock()
	gate, ok := p.gates[bot]
	p.mu.Unlock()
	if !ok {
		return func() {}, nil
	}
	if err := gate.Acquire(ctx, weight); err != nil {
		return nil, fmt.Errorf("wait for the bot's turns: %w", err)
	}
	return func() { gate.Release(weight) }, nil
}

// answerable says whether an event starts a turn. Bots are not answered, so
// that two of them can't keep each other busy, nor is what came from no chat.
func answerable(e chat.Event) bool {
	if e.Source.Chat == "" {
		return false
	}
	switch e.Kind {
	case chat.EventMessage, chat.EventEdited, chat.EventButton:
		return !e.FromBot
	case chat.EventReaction, chat.EventMembership, chat.EventMoved, chat.EventOther:
	}
	return false
}

// observe takes in what an event says of its chat.
func (p *Pipeline) observe(ctx context.Context, e chat.Event) {
	if e.Source.Chat == "" {
		return
	}
	var err error
	switch e.Kind {
	case chat.EventMessage, chat.EventEdited, chat.EventButton, chat.EventReaction:
		err = p.router.Revive(ctx, e.Source)
	case chat.EventMoved:
		if e.MovedTo != "" {
			err = p.router.Move(ctx, e.Source, e.MovedTo)
		}
	case chat.EventMembership, chat.EventOther:
	}
	if err != nil {
		p.log.WarnContext(ctx, "what an event says of its chat was not kept", "bot", string(e.Source.Bot), "err", err)
	}
}

// admit asks the policy about fresh turns and queues those that it lets in. It
// gives the number of those that stay in memory.
func (p *Pipeline) admit(ctx context.Context, intakes []Intake, accepted []Accepted) int {
	var fresh []Turn
	for i, a := range accepted {
		if a.Fresh && !intakes[i].Ended {
			fresh = append(fresh, Turn{ID: a.Turn, Event: intakes[i].Event})
		}
	}
	return p.queue(p.sift(ctx, fresh), inMemory)
}

// sift gives the turns that the policy lets in, noted as admitted, and ends
// the others.
func (p *Pipeline) sift(ctx context.Context, turns []Turn) []Turn {
	if p.opts.Policy == nil {
		return turns
	}
	var in []Turn
	var ids []outbox.TurnID
	var denials sync.WaitGroup // they share commits
	for _, t := range turns {
		now := time.Now()
		q := policy.Query{Identity: identity(t.Event), Scope: p.scope(t.Event), Now: now}
		d, err := p.opts.Policy.Check(context.WithoutCancel(ctx), q) // the event is stored: it is decided now
		if err == nil && d.Allowed {
			in = append(in, t)
			ids = append(ids, t.ID)
			continue
		}
		tell := p.opts.Notice != "" && p.opts.Notices != nil && p.opts.Notices.Due(q)
		denials.Go(func() { p.deny(ctx, t, d.RetryAfter, tell) })
	}
	denials.Wait()
	if len(ids) > 0 {
		if err := p.journal.Admit(context.WithoutCancel(ctx), ids...); err != nil {
			p.log.WarnContext(ctx, "admitted turns were not noted: after a restart the policy is asked again", "err", err)
		}
	}
	return in
}

// deny ends a turn that the policy refused, and tells the sender where that is
// due.
func (p *Pipeline) deny(ctx context.Context, t Turn, wait time.Duration, tell bool) {
	var replies []delivery.Request
	if tell {
		replies = append(replies, delivery.Request{
			Target: t.Event.Source, Message: chat.Message{Text: noticeText(p.opts.Notice, wait)}, Priority: outbox.Reply,
		})
	}
	p.log.DebugContext(ctx, "turn denied", "bot", string(t.Event.Source.Bot), "wait", wait.String())
	p.endTurn(ctx, t, outbox.TurnEnd{Turn: t.ID, Outcome: outbox.TurnDenied, Reason: "rate limit: retry after " + wait.String()}, replies)
}

func identity(e chat.Event) string {
	if e.Sender != "" {
		return string(e.Sender)
	}
	return "chat:" + string(e.Source.Chat)
}

func (p *Pipeline) scope(e chat.Event) string {
	switch p.opts.Scope {
	case ScopeChat:
		return string(e.Source.Bot) + ":" + string(e.Source.Chat)
	case ScopePlatform:
		p.mu.Lock()
		defer p.mu.Unlock()
		return string(p.bots[e.Source.Bot].Platform)
	case ScopeGateway:
		return "gateway"
	case ScopeBot:
	}
	return string(e.Source.Bot)
}

// noticeText names the wait in whole seconds, rounded up so that who obeys it
// is let in.
func noticeText(text string, wait time.Duration) string {
	wait = max(wait+time.Second-time.Nanosecond, time.Second).Truncate(time.Second)
	return strings.ReplaceAll(text, "{retry_after}", wait.String())
}

func (p *Pipeline) isStopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopping
}
