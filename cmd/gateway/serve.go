package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/chatgateway/gateway"
	"github.com/chatgateway/gateway/simulator"
	"github.com/chatgateway/gateway/simulator/telegram"
)

func serveCommand(s *settings) *cobra.Command {
	var sim bool
	var simListen string
	var hold bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the bots until SIGTERM or Ctrl-C",
		Long: `Run the bots of the configuration until SIGTERM or Ctrl-C; a second signal ends at once.
Without a configuration file, TELEGRAM_BOT_TOKEN alone is enough.`,
		Example: "  gateway serve --sim\n  TELEGRAM_BOT_TOKEN=123456:ABC-DEF gateway serve\n  gateway serve --config gateway.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sim {
				return serveSimulated(cmd, s, simListen, hold)
			}
			cfg, err := s.load(cmd)
			if err != nil {
				return err
			}
			return serve(cmd, cfg, hold, func() {})
		},
	}
	cmd.Flags().BoolVar(&sim, "sim", false, "run on a built-in simulator of the platforms, without any token")
	cmd.Flags().BoolVar(&hold, "hold", false, "send nothing until an operator releases it, for a start from a backup")
	cmd.Flags().StringVar(&simListen, "sim-listen", "127.0.0.1:8090", "`address` of the simulator and its page, with --sim")
	return cmd
}

// serve runs the gateway; opened is called when nothing stands in its way.
func serve(cmd *cobra.Command, cfg *gateway.Config, hold bool, opened func()) error {
	signal.Ignore(syscall.SIGPIPE) // a reader of the log that goes away must not take the bots along
	log := newLogger(cfg.Log, cmd.ErrOrStderr())
	opts := []gateway.Option{gateway.WithLogger(log), gateway.WithStandby()}
	if hold {
		opts = append(opts, gateway.WithHold())
	}
	g, err := gateway.New(cmd.Context(), cfg, opts...)
	if errors.Is(err, context.Canceled) {
		return nil // stopped while it stood by
	}
	if err != nil {
		return err
	}
	opened()
	return g.Run(cmd.Context())
}

// serveSimulated runs the simulator and one bot on it.
func serveSimulated(cmd *cobra.Command, s *settings, listen string, hold bool) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(cmd.Context()))
	defer cancel()
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("--sim-listen: %w: choose another address", err)
	}
	cfg, err := simulatedConfig(cmd, s, "http://"+ln.Addr().String())
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	log := newLogger(cfg.Log, cmd.ErrOrStderr())
	sim := simulator.New(simulator.Options{Logger: log})
	var group sync.WaitGroup
	var simErr error
	group.Go(func() { simErr = sim.Serve(ctx, ln) })
	err = serve(cmd, cfg, hold, func() { fmt.Fprintf(cmd.OutOrStdout(), "Write to the bot at http://%s/\n", ln.Addr()) })
	cancel() // the simulator answers until the gateway has stopped
	group.Wait()
	return errors.Join(err, simErr)
}

// simulatedConfig is the given configuration, or the defaults, with the
// simulator's bot in place of the real ones. It keeps its data apart.
func simulatedConfig(cmd *cobra.Command, s *settings, base string) (*gateway.Config, error) {
	text := fmt.Sprintf("bots:\n  telegram:\n    platform: telegram\n    token: %q\n    api_base: %q\n", telegram.DefaultToken, base)
	o := s.options(cmd)
	o.Path = ""
	simulated, err := gateway.ParseConfig([]byte(text), o)
	if err != nil {
		return nil, usageError{err}
	}
	cfg := simulated
	if s.file != "" {
		if cfg, err = s.load(cmd); err != nil {
			return nil, err
		}
		cfg.Bots = simulated.Bots
		for name, h := range simulated.Handlers {
			if _, ok := cfg.Handlers[name]; !ok {
				cfg.Handlers[name] = h
			}
		}
	}
	if _, chosen := o.Flags["gateway.data_dir"]; !chosen && os.Getenv("GATEWAY_DATA_DIR") == "" {
		cfg.Gateway.DataDir = gateway.Path(filepath.Join(string(cfg.Gateway.DataDir), "simulated"))
	}
	return cfg, nil
}
