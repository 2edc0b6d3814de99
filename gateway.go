// Package gateway is the front door of the library: it wires platforms, store,
// router and handlers together, starts them, and stops them in an order in
// which nothing is lost. The program in cmd/gateway is a thin shell around it.
//
//	cfg, err := gateway.LoadConfig("gateway.yaml")
//	…
//	g, err := gateway.New(ctx, cfg, gateway.WithHandler("default", handler))
//	…
//	err = g.Run(ctx) // until ctx ends
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/inbound"
	"github.com/chatgateway/gateway/internal/api"
	"github.com/chatgateway/gateway/internal/config"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/store/sqlite"
)

// Gateway is a whole gateway: everything that one process serves. Make it with
// New; Run it once.
type Gateway struct {
	cfg      *Config
	log      *slog.Logger
	dir      string // of the data
	store    *sqlite.Store
	router   *delivery.DeliveryRouter
	pipeline *inbound.Pipeline
	bots     []*bot
	lock     *flock.Flock // of the data folder
	socket   net.Listener
	listener net.Listener // nil if http.listen is empty
	draining atomic.Bool

	pingMu  sync.Mutex
	pinged  time.Time
	pingErr error // of the latest question to the store
}

// New opens the control store and the addresses, and builds every bot. No
// platform is called before Run. A Gateway that is not run must be closed.
func New(ctx context.Context, cfg *Config, opts ...Option) (*Gateway, error) {
	o := options{log: slog.New(slog.DiscardHandler), handlers: map[string]inbound.Handler{}}
	for _, opt := range opts {
		opt(&o)
	}
	if err := cfg.RequireBots(); err != nil {
		return nil, err
	}
	g := &Gateway{cfg: cfg, log: o.log, dir: string(cfg.Gateway.DataDir)}
	if err := g.open(ctx, o); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Gateway) open(ctx context.Context, o options) error {
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	var err error
	if g.lock, err = g.takeFolder(ctx, o.standby); err != nil {
		return err
	}
	if g.store, err = sqlite.Open(ctx, StorePath(g.cfg)); err != nil {
		return err
	}
	if g.socket, err = api.ListenSocket(ctx, g.dir); err != nil {
		return err
	}
	if g.cfg.HTTP.Listen != "" {
		var lc net.ListenConfig
		if g.listener, err = lc.Listen(ctx, "tcp", g.cfg.HTTP.Listen); err != nil {
			return fmt.Errorf("http.listen: %w: choose another address, or \"\" for none", err)
		}
		g.listener = api.LimitConns(g.listener)
	}
	if err := g.wire(o); err != nil {
		return err
	}
	return nil
}

// lockFolder makes the data folder ours, until the process ends. It does not
// rest on the control socket, whose file anybody may have removed.
func lockFolder(dir string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, "gateway.lock"))
	ok, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	if !ok {
		return nil, api.ErrInUse
	}
	return lock, nil
}

// StorePath is where the configuration puts the control store.
func StorePath(cfg *Config) string {
	if cfg.Store.Path != "" {
		return string(cfg.Store.Path)
	}
	return filepath.Join(string(cfg.Gateway.DataDir), "gateway.db")
}

// wire builds router, pipeline and bots.
func (g *Gateway) wire(o options) error {
	rules, err := deliveryRules(g.cfg.Delivery)
	if err != nil {
		return err
	}
	g.router = delivery.New(g.store, delivery.Options{
		Rules: rules, SendTimeout: g.cfg.Delivery.SendTimeout, MaxPending: g.cfg.Delivery.MaxPending,
		ProbeEvery: g.cfg.DeadTargets.ProbeEvery, MaxDead: g.cfg.DeadTargets.Max,
		Held: o.hold, Log: g.log, OnPause: g.paused, OnLoad: g.loaded,
		OnOutside: g.wakeOwner, Seize: g.seize,
	})
	pipe, err := pipelineOptions(g.cfg, g.log)
	if err != nil {
		return err
	}
	g.pipeline = inbound.New(g.store, g.router, pipe)
	shared := limiters{log: g.log, byScope: map[string]*limiter.RateLimiter{}}
	for _, name := range botNames(g.cfg) {
		b, err := g.newBot(g.cfg.Bots[name], &shared, o)
		if err != nil {
			return fmt.Errorf("bot %s: %w", name, err)
		}
		g.bots = append(g.bots, b)
	}
	return nil
}

// maxConcurrent is the configured number of turns at once, or 4 for each CPU,
// from 4 to 32.
func maxConcurrent(cfg *config.Config) int {
	if n := cfg.Gateway.Admission.MaxConcurrent; n > 0 {
		return n
	}
	return min(max(4*runtime.GOMAXPROCS(0), 4), 32)
}

// Addr is where the TCP side of the API listens; nil if it does not.
func (g *Gateway) Addr() net.Addr {
	if g.listener == nil {
		return nil
	}
	return g.listener.Addr()
}

// Close gives up what New opened. Run does it by itself.
func (g *Gateway) Close() error {
	var errs []error
	for _, ln := range []net.Listener{g.socket, g.listener} {
		if ln != nil {
			if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
	}
	g.socket, g.listener = nil, nil
	if g.store != nil {
		errs = append(errs, g.store.Close())
		g.store = nil
	}
	if g.lock != nil {
		errs = append(errs, g.lock.Unlock())
		g.lock = nil
	}
	return errors.Join(errs...)
}

// Run serves until ctx ends, then stops in order and returns nil. It returns
// an error if something that everything depends on failed; one bot's trouble
// is not such a thing.
func (g *Gateway) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, g.Close()) }()
	background := context.WithoutCancel(ctx)
	serving := g.serveHTTP(background)
	intake := g.step(ctx, "intake") // follows ctx
	turns := g.step(background, "turns")
	sends := g.step(background, "sends")
	chores := g.step(ctx, "retention")

	grace := g.cfg.Gateway.Drain.Timeout
	turns.group.Go(func() { _ = g.pipeline.Run(turns.ctx, grace) }) // it never fails
	for _, b := range g.bots {
		sends.group.Go(func() { b.send(sends.ctx, grace) })
		intake.group.Go(func() { b.receive(intake.ctx) })
	}
	chores.group.Go(func() { g.prune(chores.ctx) })
	chores.group.Go(func() { g.store.Tend(chores.ctx, g.log) })
	for _, b := range g.bots {
		chores.group.Go(func() { g.listenForWakes(chores.ctx, b) })
	}
	g.log.InfoContext(ctx, "gateway is up", "bots", len(g.bots), "data", g.dir, "http", addr(g.listener))

	select {
	case <-ctx.Done():
	case err = <-serving.failed:
	}
	g.draining.Store(true)
	deadline := time.Now().Add(grace)
	g.log.InfoContext(background, "stopping", "grace", grace.String())
	for _, s := range []*step{intake, chores, turns, sends} {
		s.stop(background, g.log, deadline)
	}
	return errors.Join(err, serving.stop(background))
}

// step is a part of the gateway that is stopped as a whole.
type step struct {
	name  string
	ctx   context.Context //nolint:containedctx // the step is its life
	end   context.CancelFunc
	group sync.WaitGroup
}

func (g *Gateway) step(ctx context.Context, name string) *step {
	ctx, cancel := context.WithCancel(ctx)
	return &step{name: name, ctx: ctx, end: cancel}
}

// stop ends the step and waits for it. Each part bounds its own end by the
// grace; a moment more is for what it then still stores.
func (s *step) stop(ctx context.Context, log *slog.Logger, deadline time.Time) {
	began := time.Now()
	s.end()
	done := make(chan struct{})
	go func() { s.group.Wait(); close(done) }()
	timer := time.NewTimer(time.Until(deadline) + time.Second)
	defer timer.Stop()
	select {
	case <-done:
		log.DebugContext(ctx, "stopped", "step", s.name, "took", time.Since(began).String())
	case <-timer.C:
		log.ErrorContext(ctx, "did not stop in time: what it holds goes on after the next start", "step", s.name)
	}
}

// serving is the HTTP side while it runs.
type serving struct {
	servers []*http.Server
	failed  chan error
	group   sync.WaitGroup
}

func (g *Gateway) serveHTTP(ctx context.Context) *serving {
	o := api.Options{Messages: g, Resolve: g.resolve, Health: g.health, Hooks: g.hooks(), Log: g.log}
	s := &serving{failed: make(chan error, 2)}
	serve := func(ln net.Listener, h http.Handler) {
		if ln == nil {
			return
		}
		srv := api.Server(ctx, h, g.log)
		s.servers = append(s.servers, srv)
		s.group.Go(func() {
			if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				s.failed <- fmt.Errorf("http: %w", err)
			}
		})
	}
	serve(g.socket, api.Control(o))
	serve(g.listener, api.Public(o))
	return s
}

func (s *serving) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var errs []error
	for _, srv := range s.servers {
		if err := srv.Shutdown(ctx); err != nil {
			errs = append(errs, srv.Close())
		}
	}
	s.group.Wait()
	return errors.Join(errs...)
}

// prune forgets what is past its retention, now and every hour.
func (g *Gateway) prune(ctx context.Context) {
	const every = time.Hour
	r := sqlite.Retention{
		Sent: g.cfg.Delivery.Retention, Dead: g.cfg.Delivery.DeadRetention,
		Events: g.cfg.Gateway.InboundRetention, Targets: g.cfg.DeadTargets.TTL,
	}
	timer := time.NewTimer(time.Minute) // after the start's own work
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := g.store.Prune(ctx, r, time.Now()); err != nil && ctx.Err() == nil {
			g.log.WarnContext(ctx, "old rows are not forgotten", "err", err)
		}
		timer.Reset(every)
	}
}

func addr(ln net.Listener) string {
	if ln == nil {
		return "off"
	}
	return ln.Addr().String()
}

func (g *Gateway) hooks() map[chat.BotName]http.Handler {
	hooks := map[chat.BotName]http.Handler{}
	for _, b := range g.bots {
		if b.hook != nil {
			hooks[b.name] = b.hook
		}
	}
	return hooks
}
