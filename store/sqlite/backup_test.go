package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatgateway/gateway/outbox"
)

// others gives what stands beside a path, without the store's own.
func others(t *testing.T, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range all {
		if !strings.HasPrefix(f.Name(), "gateway.db") && f.Name() != "calls" {
			names = append(names, f.Name())
		}
	}
	return names
}

func TestBackup_holdsWhatWasAnsweredBefore(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	for n := range 20 {
		var b outbox.Batch
		for i := range 100 {
			b.New = append(b.New, entry("1", fmt.Sprint(n, " ", i, strings.Repeat("x", 9_000))))
		}
		if _, err := s.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var group sync.WaitGroup
	var answered atomic.Int64
	longest := make([]time.Duration, 4)
	for i := range longest {
		group.Go(func() {
			for {
				start := time.Now()
				if _, err := s.Apply(context.WithoutCancel(t.Context()), outbox.Batch{New: []outbox.Entry{entry("2", strings.Repeat("y", 500))}}); err != nil {
					t.Errorf("Apply() beside the backup failed: %v", err)
				}
				answered.Add(1)
				longest[i] = max(longest[i], time.Since(start))
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	before := answered.Load()
	copied := filepath.Join(t.TempDir(), "copy.db")
	start := time.Now()
	err := s.Backup(t.Context(), copied)
	took := time.Since(start)
	beside := answered.Load() - before
	close(stop)
	group.Wait()
	if err != nil {
		t.Fatalf("Backup() failed: %v", err)
	}
	t.Logf("%d writes came through beside %v of copying, the slowest took %v", beside, took, longest)
	if beside < 20 {
		t.Errorf("%d writes came through beside the backup, want many", beside)
	}
	if info, err := os.Stat(copied); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy is %v, %v, want it for the owner only", info, err)
	}
	if got := others(t, filepath.Dir(copied)); len(got) != 1 {
		t.Errorf("beside the copy there are %v", got)
	}
	if got := query(t, copied, `PRAGMA integrity_check`); got != "ok" {
		t.Errorf("integrity_check of the copy says %q", got)
	}
	c := open(t, copied)
	n, err := c.Count(t.Context(), outbox.Filter{})
	if err != nil || int64(n) < 2000+before || int64(n) > 2000+answered.Load() {
		t.Errorf("the copy holds %d entries, %v, want the %d answered before, and no more than %d", n, err, 2000+before, 2000+answered.Load())
	}
	if _, err := c.Apply(t.Context(), outbox.Batch{New: []outbox.Entry{entry("3", "z")}}); err != nil {
		t.Errorf("Apply() on the copy failed: %v", err)
	}
}

func TestBackup_refusesAndLeavesNothing(t *testing.T) {
	path := newPath(t)
	filled(t, path, 2000)
	s := open(t, path)
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	writeTo(t, taken, "precious")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name string
		path string
		want error
	}{
		{"a file that is there", taken, fs.ErrExist},
		{"a folder that is not", filepath.Join(dir, "none", "copy"), fs.ErrNotExist},
		{"a context that has ended", filepath.Join(dir, "copy"), context.Canceled},
	} {
		ctx := t.Context()
		if errors.Is(c.want, context.Canceled) {
			ctx = cancelled
		}
		if err := s.Backup(ctx, c.path); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: Backup() = %v, want %v and the path", c.name, err, c.want)
		}
	}
	if got := string(contents(t, taken)); got != "precious" {
		t.Errorf("the file that was there holds %q", got)
	}
	if got := others(t, dir); len(got) != 1 {
		t.Errorf("the folder holds %v, want what was there before", got)
	}
	if err := s.Backup(t.Context(), filepath.Join(dir, "copy")); err != nil {
		t.Errorf("Backup() afterwards = %v, want nil", err)
	}
}

func writeTo(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Another process that writes makes SQLite begin the copy anew, and must not
// keep it from its end.
func TestBackup_endsBesideAnotherProcess(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	filled(t, path, 20_000)
	s, other := open(t, path), open(t, path)
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			if _, err := other.Apply(context.WithoutCancel(t.Context()), outbox.Batch{New: []outbox.Entry{entry("2", "y")}}); err != nil {
				t.Errorf("Apply() of the other failed: %v", err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	copied := filepath.Join(t.TempDir(), "copy.db")
	err := s.Backup(t.Context(), copied)
	close(stop)
	group.Wait()
	if err != nil {
		t.Fatalf("Backup() = %v, want nil", err)
	}
	if n, err := open(t, copied).Count(t.Context(), outbox.Filter{}); err != nil || n < 20_000 {
		t.Errorf("the copy holds %d entries, %v, want 20,000 at least", n, err)
	}
}

func TestCheck_findsDamageInAStoreInUse(t *testing.T) {
	path := newPath(t)
	filled(t, path, 2000)
	s := open(t, path)
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check() = %v, want nil", err)
	}
	spoil(t, path)
	err := s.Check(t.Context())
	for _, w := range []string{path, "damaged", "restore a backup"} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("Check() = %v, want it to say %q", err, w)
		}
	}
	if got := others(t, filepath.Dir(path)); len(got) > 0 {
		t.Errorf("Check() left %v", got)
	}
}

// spoil overwrites a page that holds entries, in the file itself.
func spoil(t *testing.T, path string) {
	t.Helper()
	var page int64
	if _, err := fmt.Sscan(query(t, path, `SELECT max(pageno) FROM dbstat WHERE name = 'entries' AND pagetype = 'leaf'`), &page); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(strings.Repeat("\xa5", 4096)), (page-1)*4096); err != nil {
		t.Fatal(err)
	}
}
