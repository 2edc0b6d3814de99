package sqlite

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// messages are a log whose lines can be waited for.
type messages chan slog.Record

func (m messages) Enabled(context.Context, slog.Level) bool { return true }
func (m messages) WithAttrs([]slog.Attr) slog.Handler       { return m }
func (m messages) WithGroup(string) slog.Handler            { return m }
func (m messages) Handle(_ context.Context, r slog.Record) error {
	m <- r
	return nil
}

func TestTend_cutsTheWALBackWhenALongReaderHasLetGo(t *testing.T) {
	t.Parallel()
	s := openShort(t, filepath.Join(t.TempDir(), "gateway.db"))
	s.walBound = 6 << 20
	lines := make(messages, 10)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { s.Tend(ctx, slog.New(lines)) })
	defer group.Wait()
	defer cancel()
	write := func(n int) {
		for range n {
			if _, err := s.Apply(t.Context(), batch(strings.Repeat("x", 100_000))); err != nil {
				t.Error(err)
			}
		}
	}
	write(160)
	if size := s.walSize(); size > s.walBound {
		t.Errorf("the WAL has %d bytes with nobody reading", size)
	}
	tx, err := s.read.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRowContext(t.Context(), `SELECT count(*) FROM entries`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	write(160)
	warning := <-lines
	held := s.walSize()
	if warning.Level != slog.LevelWarn || !strings.Contains(warning.Message, "another program") || held <= s.walBound {
		t.Errorf("with a WAL of %d bytes the log says %q", held, warning.Message)
	}
	write(32)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if done := <-lines; !strings.Contains(done.Message, "was cut back") {
		t.Errorf("the log says %q, want one warning, and that the WAL was cut back", done.Message)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v after the reader had let go, want 5 s at most", took)
	}
	if size := s.walSize(); size > 0 {
		t.Errorf("the WAL still has %d bytes", size)
	}
	if got, err := s.pragma("wal_autocheckpoint"); err != nil || got != "1000" {
		t.Errorf("wal_autocheckpoint is %q, %v, want 1000 again", got, err)
	}
	if n := count(t, s); n != 352 {
		t.Errorf("%d entries are stored, want 352", n)
	}
	select {
	case more := <-lines:
		t.Errorf("the log says also %q", more.Message)
	default:
	}
}
