package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/store/sqlite"
)

const (
	ourBot   = chat.BotName("bench")
	ourChats = 1000 // over which the messages are spread
)

// noop is a platform that takes everything at once.
type noop struct {
	limiter *limiter.RateLimiter
	called  func()
}

var _ adapters.Adapter = (*noop)(nil)

// Bot is the only bot's name.
func (*noop) Bot() chat.BotName { return ourBot }

// Capabilities let every message pass in one part.
func (*noop) Capabilities(chat.Target) chat.Capabilities {
	return chat.Capabilities{MaxText: 4096, TextUnit: chat.CodePoints, Threads: true}
}

// Limiter is asked for every message.
func (a *noop) Limiter() *limiter.RateLimiter { return a.limiter }

// Send takes the message.
func (a *noop) Send(context.Context, chat.Target, chat.Part) (chat.Receipt, error) {
	a.called()
	return "1234567", nil
}

// Run receives nothing.
func (*noop) Run(ctx context.Context, _ adapters.Sink) error {
	<-ctx.Done()
	return nil
}

// unlimited is a limiter that is asked as always and never refuses.
func unlimited() (*limiter.RateLimiter, error) {
	return limiter.New(limiter.Config{MessagesPerSecond: 1e9, BurstSize: 1_000_000}, limiter.WithScope("bench"))
}

// watched tells when ends of messages are on disk.
type watched struct {
	delivery.Store

	settled func(n int)
}

// Apply passes the batch on, and counts.
func (w watched) Apply(ctx context.Context, b outbox.Batch) (outbox.Applied, error) {
	applied, err := w.Store.Apply(ctx, b)
	if n := len(b.Settled); err == nil && n > 0 {
		w.settled(n)
	}
	return applied, err
}

// ours is the delivery engine of this project.
type ours struct {
	idle

	store   *sqlite.Store
	router  *delivery.DeliveryRouter
	stop    context.CancelFunc
	done    chan error
	targets []chat.Target
	turn    atomic.Uint64
}

func openOurs(ctx context.Context, dir string, h hooks) (engine, error) {
	l, err := unlimited()
	if err != nil {
		return nil, err
	}
	return startOurs(ctx, dir, &noop{limiter: l, called: h.called}, h.settled)
}

// startOurs opens the store in dir and runs a router over it, which has loaded
// what waits when startOurs returns.
func startOurs(ctx context.Context, dir string, a *noop, settled func(int)) (*ours, error) {
	store, err := sqlite.Open(ctx, filepath.Join(dir, "gateway.db"))
	if err != nil {
		return nil, err
	}
	loaded := make(chan struct{})
	o := &ours{store: store, done: make(chan error, 1), targets: targets(ourChats)}
	o.router = delivery.New(watched{Store: store, settled: settled}, delivery.Options{
		MaxPending: 2_000_000,
		OnLoad:     func(chat.BotName) { close(loaded) },
	})
	if err := o.router.Add(a, "bench"); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	ctx, o.stop = context.WithCancel(ctx)
	go func() { o.done <- o.router.Run(ctx, ourBot, 10*time.Second) }()
	select {
	case <-loaded:
		return o, nil
	case err := <-o.done:
		return nil, errors.Join(fmt.Errorf("run the router: %w", err), store.Close())
	}
}

// targets are n chats with names as long as real ones.
func targets(n int) []chat.Target {
	ts := make([]chat.Target, n)
	for i := range ts {
		ts[i] = chat.Target{Bot: ourBot, Chat: chat.ChatID(strconv.Itoa(100_000_000 + i))}
	}
	return ts
}

func (o *ours) batch() int { return 1 }

func (o *ours) send(ctx context.Context, _ int) error {
	t := o.targets[o.turn.Add(1)%uint64(len(o.targets))]
	_, err := o.router.Deliver(ctx, delivery.Request{Target: t, Message: chat.Message{Text: payload}})
	return err
}

func (o *ours) close() error {
	o.stop()
	return errors.Join(<-o.done, o.store.Close())
}
