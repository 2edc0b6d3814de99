// Package simulator runs the chat platforms' own protocols on one HTTP server: with their limits, their error bodies
// and their faults on demand. Tests use it in process, people through a page in the browser, and programs in any
// language through the control API under /_sim/.
package simulator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/chatgateway/gateway/simulator/telegram"
)

// Options configures a [Simulator]. The zero value is ready to use.
type Options struct {
	// Telegram configures the Bot API. Its Logger defaults to the one below; its Observe is called beside the page's.
	Telegram telegram.Options
	// Hosts are further host names under which the page and the control API answer. Always allowed are addresses,
	// localhost and names without a dot, none of which a foreign web page can borrow.
	Hosts []string
	// Logger receives life-cycle records; nil discards them.
	Logger *slog.Logger
}

// Simulator is an [http.Handler] with every platform, the control API and the page. Create it with [New]. Without a
// running [Simulator.Run] it does everything but deliver webhooks.
type Simulator struct {
	opts     Options
	telegram *telegram.Server
	hub      *hub
	mux      *http.ServeMux
}

// New returns a simulator. It starts no goroutine.
func New(o Options) *Simulator {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Telegram.Logger == nil {
		o.Telegram.Logger = o.Logger
	}
	s := &Simulator{opts: o, hub: newHub(), mux: http.NewServeMux()}
	further := o.Telegram.Observe
	o.Telegram.Observe = func(e telegram.Event) {
		s.hub.publish("telegram", e)
		if further != nil {
			further(e)
		}
	}
	s.telegram = telegram.New(o.Telegram)
	s.mux.Handle("/_sim/telegram/", s.guard(http.StripPrefix("/_sim/telegram", s.telegram.Control())))
	s.mux.Handle("GET /_sim/events", s.guard(http.HandlerFunc(s.hub.serve)))
	s.mux.Handle("GET /_sim/page.css", s.guard(http.HandlerFunc(servePageStyle)))
	s.mux.Handle("GET /_sim/page.js", s.guard(http.HandlerFunc(servePageScript)))
	s.mux.Handle("/_sim/", s.guard(http.NotFoundHandler()))
	s.mux.Handle("GET /{$}", s.guard(http.HandlerFunc(servePage)))
	s.mux.Handle("/", s.telegram)
	return s
}

// Telegram returns the Bot API server, to inject, to look and to break things.
func (s *Simulator) Telegram() *telegram.Server { return s.telegram }

// ServeHTTP answers for all platforms, the control API and the page.
func (s *Simulator) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Run delivers webhooks until ctx ends or the simulator is closed. It owns every goroutine that it starts.
func (s *Simulator) Run(ctx context.Context) error { return s.telegram.Run(ctx) }

// Close ends every request that waits and stops [Simulator.Run]. It may be called more than once.
func (s *Simulator) Close() {
	s.hub.close()
	s.telegram.Close()
}

// Serve runs the simulator on ln until ctx ends, then closes everything, ln included, and returns nil. An error means
// that the listener failed.
func (s *Simulator) Serve(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug),
	}
	running := make(chan error, 1)
	go func() { running <- s.Run(ctx) }()
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	s.opts.Logger.InfoContext(ctx, "simulator listens", "address", ln.Addr().String())
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-served:
		failed = fmt.Errorf("serve the simulator: %w", failed)
		served <- nil
	}
	cancel()
	s.Close()
	grace, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer stop()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close() // Whoever still holds a connection had two seconds.
	}
	return errors.Join(failed, <-running, ignoreClosed(<-served))
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
