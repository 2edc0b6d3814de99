package main

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"github.com/chatgateway/gateway/internal/config"
)

// newLogger writes for people on a terminal and JSON into a pipe, unless the
// configuration says otherwise.
func newLogger(cfg config.Log, w io.Writer) *slog.Logger {
	terminal := isTerminal(w)
	if cfg.Format == "json" || cfg.Format == "auto" && !terminal {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: cfg.Slog(), ReplaceAttr: readable}))
	}
	return slog.New(tint.NewTextHandler(w, &tint.Options{Level: cfg.Slog(), TimeFormat: time.TimeOnly, NoColor: !terminal || os.Getenv("NO_COLOR") != ""}))
}

// readable writes durations as people do; JSON would count nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
