// Command greeter is a bot in one Go file: it greets everybody by their
// identity and counts. Start it like the gateway itself:
//
//	TELEGRAM_BOT_TOKEN=123456:ABC-DEF go run ./examples/greeter
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/chatgateway/gateway"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "greeter:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	cfg, err := gateway.LoadConfig(gateway.LoadOptions{})
	if err != nil {
		return err
	}
	var count atomic.Int64
	greet := func(_ context.Context, t gateway.Turn) ([]gateway.Message, error) {
		text := fmt.Sprintf("Hello, %s! You are number %d today.", t.Event.Sender, count.Add(1))
		return []gateway.Message{{Text: text}}, nil
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	g, err := gateway.New(ctx, cfg, gateway.WithLogger(log), gateway.WithHandler("default", gateway.HandlerFunc(greet)))
	if err != nil {
		return err
	}
	return g.Run(ctx)
}
