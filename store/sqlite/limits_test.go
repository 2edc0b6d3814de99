package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/store/sqlite"
	"github.com/chatgateway/gateway/store/storetest"
)

func TestLimits(t *testing.T) {
	storetest.RunLimits(t, func(t *testing.T) limiter.Store {
		t.Helper()
		return openLimits(t, filepath.Join(t.TempDir(), "limits.db"))
	})
}

// openLimits opens the file and closes it when the test ends.
func openLimits(tb testing.TB, path string) *sqlite.Limits {
	tb.Helper()
	l, err := sqlite.OpenLimits(tb.Context(), path)
	if err != nil {
		tb.Fatalf("OpenLimits() failed: %v", err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Errorf("Close() failed: %v", err)
		}
	})
	return l
}

// within opens the file for f alone.
func within(t *testing.T, path string, f func(l *sqlite.Limits)) {
	t.Helper()
	l, err := sqlite.OpenLimits(t.Context(), path)
	if err != nil {
		t.Fatalf("OpenLimits() failed: %v", err)
	}
	f(l)
	if err := l.Close(); err != nil {
		t.Errorf("Close() failed: %v", err)
	}
}

func TestOpenLimits_refusesWhatIsNotItsOwn(t *testing.T) {
	dir := t.TempDir()
	newer, control, text := filepath.Join(dir, "newer.db"), filepath.Join(dir, "gateway.db"), filepath.Join(dir, "text.db")
	within(t, newer, func(*sqlite.Limits) {})
	query(t, newer, `PRAGMA user_version = 2`)
	open(t, control)
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{newer: "newer version", control: "something else", text: "damaged"} {
		l, err := sqlite.OpenLimits(t.Context(), path)
		if err == nil {
			t.Fatalf("OpenLimits(%s) succeeded: %v", path, l.Close())
		}
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("OpenLimits(%s) = %v, want %q", path, err, want)
		}
		if errors.Is(err, sqlite.ErrNewerSchema) != (path == newer) {
			t.Errorf("OpenLimits(%s) = %v: ErrNewerSchema is for a newer file", path, err)
		}
	}
	if got := query(t, control, `SELECT count(*) FROM sqlite_schema WHERE name LIKE 'limit_%'`); got != "0" {
		t.Errorf("the control store got %s tables", got)
	}
}

func TestOpenLimits_manyAtOnceMakeOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "limits.db")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			l, err := sqlite.OpenLimits(t.Context(), path)
			if err != nil {
				t.Errorf("OpenLimits() failed: %v", err)
				return
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestLimits_goOnAfterTheProcessWasStartedAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.db")
	a := limiter.Ask{Scope: "s", Mode: limiter.Try, Call: limiter.Call{Cost: 1}, Token: limiter.Rule{Every: time.Hour, Burst: 2}}
	for i, want := range []bool{true, true, false} {
		within(t, path, func(l *sqlite.Limits) {
			if got, err := l.Reserve(t.Context(), a); err != nil || got.Granted != want {
				t.Errorf("process %d: Reserve() = %+v, %v, want granted: %v", i, got, err, want)
			}
		})
	}
}

// BenchmarkLimits measures one reservation in a channel, and one look for penalties.
func BenchmarkLimits(b *testing.B) {
	l := openLimits(b, filepath.Join(b.TempDir(), "limits.db"))
	a := limiter.Ask{
		Scope: "s", Mode: limiter.Ahead, Call: limiter.Call{Channel: "a", Method: "m", Cost: 1},
		Token: limiter.Rule{Every: time.Nanosecond, Burst: 1000}, Delay: limiter.Rule{Every: time.Nanosecond, Burst: 1},
	}
	b.Run("reserve", func(b *testing.B) {
		for b.Loop() {
			if got, err := l.Reserve(b.Context(), a); err != nil || !got.Granted {
				b.Fatal(got, err)
			}
		}
	})
	b.Run("peek", func(b *testing.B) {
		for b.Loop() {
			if _, err := l.Peek(b.Context(), a); err != nil {
				b.Fatal(err)
			}
		}
	})
}
