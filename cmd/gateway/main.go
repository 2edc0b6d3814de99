// Command gateway runs chat bots on Telegram: `gateway serve` on a bot token
// is the whole installation. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/chatgateway/gateway"
	"github.com/chatgateway/gateway/internal/config"
)

// The exit codes of every command.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2 // the command line or the configuration is wrong
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main without the process, for tests.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signals(ctx)
	defer stop()
	root := rootCommand() //nolint:contextcheck // each command takes its context from cobra
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if !errors.Is(err, errTold) {
		fmt.Fprintln(errOut, "gateway: "+err.Error())
	}
	if isUsage(err) {
		return exitUsage
	}
	return exitFailure
}

// signals ends the context at the first SIGINT or SIGTERM, and the process at
// the second.
func signals(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	caught := make(chan os.Signal, 2)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case <-caught:
			cancel()
		case <-done:
			return
		}
		select {
		case <-caught:
			os.Exit(exitFailure)
		case <-done:
		}
	}()
	return ctx, func() { signal.Stop(caught); close(done); cancel() }
}

// usageError is a mistake of the one who typed the command or the file.
type usageError struct{ error }

// Unwrap gives the mistake.
func (e usageError) Unwrap() error { return e.error }

// errTold is an error that the command has printed by itself.
var errTold = errors.New("told")

func isUsage(err error) bool {
	_, typed := errors.AsType[usageError](err)
	_, key := errors.AsType[*config.KeyError](err)
	return typed || key || errors.Is(err, config.ErrNoBots)
}

// settings are the flags that all commands share.
type settings struct {
	file    string
	lenient bool
}

// processFlags are the flags that stand for a key of the configuration.
func processFlags() []struct{ name, key, usage string } {
	return []struct{ name, key, usage string }{
		{"data-dir", "gateway.data_dir", "`folder` of the database and the control socket"},
		{"listen", "http.listen", "`address` of health checks and webhooks; \"\" for none"},
		{"log-level", "log.level", "debug, info, warn or error"},
		{"log-format", "log.format", "auto, text or json"},
	}
}

func rootCommand() *cobra.Command {
	s := &settings{}
	root := &cobra.Command{
		Use:           "gateway",
		Version:       thisBuild().Version,
		Short:         "Chat bots whose messages are not lost, not doubled and not too many",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := root.PersistentFlags()
	f.StringVarP(&s.file, "config", "c", "", "configuration `file` (default ./gateway.yaml if it exists, else the environment alone)")
	f.BoolVar(&s.lenient, "lenient", false, "take an unknown key for a warning")
	for _, flag := range processFlags() {
		f.String(flag.name, "", flag.usage)
	}
	root.SuggestionsMinimumDistance = 2
	root.AddCommand(serveCommand(s), checkCommand(s), sendCommand(s), configCommand(s), versionCommand())
	for _, c := range root.Commands() {
		usageArgs(c)
	}
	return root
}

// knownCommand refuses a word that is no command, and names the nearest one.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageError{errors.New(text + "\nRun gateway --help for the commands.")}
}

// usageArgs makes wrong arguments a usage error, for the command and those
// below it.
func usageArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError{fmt.Errorf("%w\n%s", err, cmd.UseLine())}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		usageArgs(sub)
	}
}

// options gives what the flags of cmd say of the configuration.
func (s *settings) options(cmd *cobra.Command) gateway.LoadOptions {
	o := gateway.LoadOptions{Path: s.file, Lenient: s.lenient, Flags: map[string]string{}}
	for _, flag := range processFlags() {
		if f := cmd.Flags().Lookup(flag.name); f != nil && f.Changed {
			o.Flags[flag.key] = f.Value.String()
		}
	}
	return o
}

// load reads the configuration and tells its warnings.
func (s *settings) load(cmd *cobra.Command) (*gateway.Config, error) {
	cfg, err := gateway.LoadConfig(s.options(cmd))
	if err != nil {
		return nil, usageError{fmt.Errorf("the configuration is wrong:\n%w", err)}
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "gateway: warning: "+w.Error())
	}
	return cfg, nil
}
