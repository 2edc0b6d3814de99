package gateway

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/inbound"
	"github.com/chatgateway/gateway/internal/api"
	"github.com/chatgateway/gateway/internal/config"
	"github.com/chatgateway/gateway/outbox"
)

const (
	standbyLook  = 250 * time.Millisecond // how often a bot's lock is tried while another process holds it
	steadyAfter  = time.Minute            // a bot that was up this long starts its backoff anew
	firstRetry   = time.Second
	temporaryCap = 5 * time.Second // between tries while the platform is down
	refusedCap   = 5 * time.Minute // between tries while the login is refused
)

// The states of a bot, as /readyz shows them.
const (
	stateStarting  = "starting"
	stateStandby   = "standby" // another process owns the bot
	stateConnected = "connected"
	stateRefused   = "refused" // the platform does not take the login
	stateFailing   = "failing" // the platform can't be reached
	stateStopped   = "stopped"
)

// bot is one login while the gateway runs.
type bot struct {
	name     chat.BotName
	platform chat.Platform
	adapter  adapters.Adapter
	hook     http.Handler // nil unless the platform can push
	router   *delivery.DeliveryRouter
	pipeline *inbound.Pipeline
	lock     *flock.Flock
	log      *slog.Logger
	loaded   chan struct{} // closed when this process owns the bot and has loaded what waits
	once     sync.Once     // closes it

	mu        sync.Mutex
	state     string
	err       string
	interrupt context.CancelFunc // of the adapter's run, when a send finds the login refused
}

func (g *Gateway) newBot(cfg *config.Bot, shared *limiters, o options) (*bot, error) {
	s, err := decodeBot(cfg)
	if err != nil {
		return nil, err
	}
	l, err := shared.forBot(cfg, s.login())
	if err != nil {
		return nil, err
	}
	name := chat.BotName(cfg.Name)
	a, err := s.build(name, l, g.log)
	if err != nil {
		return nil, err
	}
	h, err := o.handler(g.cfg, cfg.Handler)
	if err != nil {
		return nil, err
	}
	if err := g.router.Add(a, chat.Platform(cfg.Platform)); err != nil {
		return nil, err
	}
	g.pipeline.Add(inbound.Bot{Name: name, Platform: chat.Platform(cfg.Platform), Handler: h})
	lock, err := g.botLock(name)
	if err != nil {
		return nil, err
	}
	b := &bot{
		name: name, platform: chat.Platform(cfg.Platform), adapter: a, router: g.router, pipeline: g.pipeline,
		lock: lock, log: g.log.With("bot", cfg.Name),
		loaded: make(chan struct{}), state: stateStarting,
	}
	if hook, ok := a.(adapters.Webhook); ok {
		b.hook = hook.Webhook(g.pipeline.Accept)
	}
	return b, nil
}

// send owns the bot and sends for it until ctx ends. If the store fails it
// tries again; while another process holds the bot, it stands by.
func (b *bot) send(ctx context.Context, grace time.Duration) {
	if !b.acquire(ctx) {
		return
	}
	defer func() {
		if err := b.lock.Unlock(); err != nil {
			b.log.WarnContext(ctx, "the bot's lock is not given back before the process ends", "err", err)
		}
	}()
	for wait := firstRetry; ; wait = min(2*wait, temporaryCap) {
		err := b.router.Run(ctx, b.name, grace)
		if ctx.Err() != nil {
			if err != nil {
				b.log.ErrorContext(ctx, "sending did not stop cleanly", "err", err)
			}
			return
		}
		b.log.ErrorContext(ctx, "sending stopped: it is started again", "wait", wait.String(), "err", err)
		if !pause(ctx, wait) {
			return
		}
	}
}

// acquire waits for the bot's lock, which the system frees when its holder
// ends, however it ends.
func (b *bot) acquire(ctx context.Context) bool {
	logged := false
	for {
		ok, err := b.lock.TryLock()
		switch {
		case ok:
			b.set(stateStarting, "")
			return true
		case err != nil && !logged:
			b.log.ErrorContext(ctx, "the bot's lock can't be taken", "err", err)
			b.set(stateFailing, err.Error())
		case !logged:
			b.log.WarnContext(ctx, "another process owns this bot: standing by")
			b.set(stateStandby, "")
		}
		logged = true
		if !pause(ctx, standbyLook) {
			return false
		}
	}
}

// receive brings the bot's events in until ctx ends. A failure is never final:
// it is told, and tried again.
func (b *bot) receive(ctx context.Context) {
	defer b.set(stateStopped, "")
	select {
	case <-b.loaded:
	case <-ctx.Done():
		return
	}
	b.recover(ctx)
	wait := firstRetry
	for ctx.Err() == nil {
		began := time.Now()
		err := b.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > steadyAfter {
			wait = firstRetry
		}
		most := temporaryCap
		if chat.KindOf(err) == chat.Unauthorized {
			most = refusedCap
		}
		wait = min(wait, most)
		actual := wait/2 + rand.N(wait/2) //nolint:gosec // jitter is no secret
		if fail, ok := errors.AsType[*chat.SendError](err); ok {
			actual = max(actual, fail.RetryAfter)
		}
		b.tell(ctx, err, actual)
		if !pause(ctx, actual) {
			return
		}
		wait = min(2*wait, most)
	}
}

// tell shows why the bot is not connected.
func (b *bot) tell(ctx context.Context, err error, wait time.Duration) {
	if chat.KindOf(err) == chat.Unauthorized {
		b.set(stateRefused, err.Error())
		b.log.ErrorContext(ctx, "the platform refuses the bot's login: check its token", "wait", wait.String(), "err", err)
		return
	}
	b.set(stateFailing, err.Error())
	b.log.WarnContext(ctx, "the bot is not connected", "wait", wait.String(), "err", err)
}

// recover queues what a former run left unanswered, before anything new.
func (b *bot) recover(ctx context.Context) {
	for wait := firstRetry; ; wait = min(2*wait, temporaryCap) {
		err := b.pipeline.Recover(ctx, b.name)
		if err == nil || ctx.Err() != nil {
			return
		}
		b.log.ErrorContext(ctx, "unanswered events can't be read: it is tried again", "err", err)
		if !pause(ctx, wait) {
			return
		}
	}
}

// errPaused ends the adapter's run when a send found the login refused.
var errPaused = &chat.SendError{Kind: chat.Unauthorized, Err: errors.New("a send was answered that the login is refused")}

// connect proves the login and receives until something fails.
func (b *bot) connect(ctx context.Context) error {
	if p, ok := b.adapter.(adapters.Prober); ok {
		if err := p.Probe(ctx); err != nil {
			return err
		}
	}
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	b.mu.Lock()
	b.interrupt = cancel
	b.mu.Unlock()
	b.router.Resume(b.name)
	b.set(stateConnected, "")
	b.log.InfoContext(ctx, "bot is connected")
	err := b.adapter.Run(run, b.pipeline.Accept)
	if err == nil {
		err = errPaused
	}
	return err
}

// paused is told by the router that a send found a login refused.
func (g *Gateway) paused(name chat.BotName, _ error) {
	if b := g.bot(name); b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.interrupt != nil {
			b.interrupt()
		}
	}
}

// loaded is told by the router that a bot's backlog is loaded.
func (g *Gateway) loaded(name chat.BotName) {
	if b := g.bot(name); b != nil {
		b.once.Do(func() { close(b.loaded) })
	}
}

func (g *Gateway) bot(name chat.BotName) *bot {
	for _, b := range g.bots {
		if b.name == name {
			return b
		}
	}
	return nil
}

func (b *bot) set(state, err string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state, b.err = state, err
}

// status is what /readyz says of the bot.
func (b *bot) status() api.Bot {
	s := b.router.Status(b.name)
	b.mu.Lock()
	out := api.Bot{Platform: string(b.platform), State: b.state, Error: b.err, Pending: s.Pending}
	b.mu.Unlock()
	r, ok := b.adapter.(adapters.Reporter)
	if !ok {
		return out
	}
	h := r.Health()
	if !h.LastEvent.IsZero() {
		out.LastEvent = new(h.LastEvent.UTC())
	}
	if !h.LastAnswer.IsZero() {
		out.LastAnswer = new(h.LastAnswer.UTC())
	}
	if out.State == stateConnected && !h.Connected && h.Err != "" {
		out.State, out.Error = stateFailing, h.Err
	}
	return out
}

// pause waits, or reports false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Deliver stores a message for delivery. It refuses while the gateway stops.
func (g *Gateway) Deliver(ctx context.Context, q delivery.Request) (delivery.Ticket, error) {
	if g.draining.Load() {
		return delivery.Ticket{}, api.ErrDraining
	}
	return g.router.Deliver(ctx, q)
}

// Message gives an entry of the outbox with its whole story.
func (g *Gateway) Message(ctx context.Context, id outbox.ID) (outbox.Entry, bool, error) {
	return g.router.Message(ctx, id)
}

func (g *Gateway) resolve(s string) (chat.Target, error) { return ResolveTarget(g.cfg, s) }

// storeWorks asks the store; after a failure at most once a second, since it
// then really writes.
func (g *Gateway) storeWorks(ctx context.Context) error {
	g.pingMu.Lock()
	defer g.pingMu.Unlock()
	if g.pingErr != nil && time.Since(g.pinged) < time.Second {
		return g.pingErr
	}
	g.pingErr, g.pinged = g.store.Ping(ctx), time.Now()
	if g.pingErr != nil {
		g.log.WarnContext(ctx, "not ready", "err", g.pingErr)
	}
	return g.pingErr
}

func (g *Gateway) health(ctx context.Context) api.Health {
	h := api.Health{Ready: true, Status: "ready", Bots: map[string]api.Bot{}}
	for _, b := range g.bots {
		h.Bots[string(b.name)] = b.status()
	}
	switch {
	case g.draining.Load():
		h.Ready, h.Status = false, "draining"
	default:
		if err := g.storeWorks(ctx); err != nil {
			h.Ready, h.Status = false, "the control store does not work"
		}
	}
	return h
}
