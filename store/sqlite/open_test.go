package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/store/sqlite"
)

// query runs statements beside the store; the last one's single value is given.
func query(t *testing.T, path string, statements ...string) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	var got sql.NullString
	for i, q := range statements {
		if i < len(statements)-1 {
			_, err = db.ExecContext(t.Context(), q)
		} else if err = db.QueryRowContext(t.Context(), q).Scan(&got); errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		if err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	return got.String
}

func entry(id chat.ChatID, text string) outbox.Entry {
	return outbox.Entry{
		Target: chat.Target{Bot: "support", Chat: id}, State: outbox.Queued, Priority: outbox.Bulk, Parts: []chat.Part{{Text: text}},
	}
}

// filled makes a closed store with n entries.
func filled(t *testing.T, path string, n int) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatalf("Open() failed: %v", err)
	}
	entries := make([]outbox.Entry, n)
	for i := range entries {
		entries[i] = entry(chat.ChatID(fmt.Sprint(i)), "text")
	}
	if _, err := s.Apply(t.Context(), outbox.Batch{New: entries}); err != nil {
		t.Fatalf("Apply() failed: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close() failed: %v", err)
	}
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// refused expects that Open fails, names the path and changes nothing.
func refused(t *testing.T, path string, words ...string) error {
	t.Helper()
	before := contents(t, path)
	s, err := sqlite.Open(t.Context(), path)
	if err == nil {
		s.Close()
		t.Fatal("Open() = nil, want an error")
	}
	for _, w := range append(words, filepath.Dir(path)) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("Open() = %q, want it to say %q", err, w)
		}
	}
	if !bytes.Equal(before, contents(t, path)) {
		t.Errorf("Open() failed and changed the file")
	}
	return err
}

func TestOpen_makesFolderAndFileForTheOwnerOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder", "gateway.db")
	s := open(t, path)
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping() = %v, want nil", err)
	}
	for name, want := range map[string]os.FileMode{filepath.Dir(path): 0o700, path: 0o600, path + "-wal": 0o600} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", name, got, want)
		}
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 3 {
		t.Errorf("the folder holds %v, %v, want the database, its WAL and its index", files, err)
	}
}

func TestOpen_takesAPathWithStrangeCharacters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c=d#é%20&", "gate'way.db")
	filled(t, path, 3)
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestOpen_atOneTimeByMany(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			s, err := sqlite.Open(t.Context(), path)
			if err != nil {
				t.Errorf("Open() failed: %v", err)
				return
			}
			defer s.Close()
			if _, err := s.Apply(t.Context(), outbox.Batch{New: []outbox.Entry{entry("1", "x")}}); err != nil {
				t.Errorf("Apply() failed: %v", err)
			}
		})
	}
	group.Wait()
	if got := query(t, path, `SELECT count(*) FROM entries`); got != "6" {
		t.Errorf("%s entries are stored, want 6", got)
	}
}

func TestOpen_refusesANewerSchema(t *testing.T) {
	path := newPath(t)
	filled(t, path, 10)
	query(t, path, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)`)
	if err := refused(t, path, "999"); !errors.Is(err, sqlite.ErrNewerSchema) {
		t.Errorf("Open() = %v, want ErrNewerSchema", err)
	}
}

func TestOpen_refusesDamage(t *testing.T) {
	page := func(t *testing.T, path, name string) int64 {
		t.Helper()
		var n int64
		if _, err := fmt.Sscan(query(t, path, fmt.Sprintf(`SELECT rootpage FROM sqlite_schema WHERE name = '%s'`, name)), &n); err != nil {
			t.Fatal(err)
		}
		return (n - 1) * 4096
	}
	overwrite := func(t *testing.T, path string, at int64, with []byte) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt(with, at); err != nil {
			t.Fatal(err)
		}
	}
	junk := bytes.Repeat([]byte{0xa5}, 4096)
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, path string)
	}{
		{"a page of an index is overwritten", func(t *testing.T, path string) {
			t.Helper()
			overwrite(t, path, page(t, path, "entries_pending"), junk)
		}},
		{"a page of a table is overwritten", func(t *testing.T, path string) {
			t.Helper()
			overwrite(t, path, page(t, path, "entries"), junk)
		}},
		{"the header is overwritten", func(t *testing.T, path string) {
			t.Helper()
			overwrite(t, path, 0, junk)
		}},
		{"the file is cut short", func(t *testing.T, path string) {
			t.Helper()
			if err := os.Truncate(path, 3*4096); err != nil {
				t.Fatal(err)
			}
		}},
		{"an index misses rows", func(t *testing.T, path string) {
			t.Helper()
			query(t, path, `PRAGMA journal_mode = DELETE`, `CREATE TABLE spare (a)`, `CREATE INDEX spare_a ON spare (a)`,
				`PRAGMA writable_schema = ON`,
				`UPDATE sqlite_schema SET rootpage = (SELECT sum(rootpage) FROM sqlite_schema WHERE name IN ('spare_a', 'entries_pending')) - rootpage
					WHERE name IN ('spare_a', 'entries_pending')`, `PRAGMA writable_schema = RESET`)
			query(t, path, `PRAGMA journal_mode = WAL`)
		}},
		{"it is another kind of file", func(t *testing.T, path string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(strings.Repeat("my precious notes\n", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := newPath(t)
			filled(t, path, 500)
			c.damage(t, path)
			refused(t, path, "gateway.db", "damaged", "restore a backup")
		})
	}
}

func TestOpen_namesWhatStandsInTheWay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"the folder is a file":     filepath.Join(file, "gateway.db"),
		"the file is a folder":     t.TempDir(),
		"the folder can't be":      "/dev/null/x/gateway.db",
		"the name is far too long": filepath.Join(t.TempDir(), strings.Repeat("x", 300)),
	} {
		s, err := sqlite.Open(t.Context(), path)
		if err == nil {
			s.Close()
			t.Errorf("%s: Open() = nil, want an error", name)
		} else if !strings.Contains(err.Error(), filepath.Dir(path)) {
			t.Errorf("%s: Open() = %q, want it to name the path", name, err)
		}
	}
}

func TestOpen_givesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, err := sqlite.Open(ctx, newPath(t))
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Open() = %v, want context.Canceled", err)
	}
}

func TestStore_needsNoFolderForTemporaryFiles(t *testing.T) {
	path := newPath(t)
	t.Setenv("SQLITE_TMPDIR", "/nonexistent")
	t.Setenv("TMPDIR", "/nonexistent")
	s := open(t, path)
	if err := s.Prune(t.Context(), sqlite.Retention{}, time.Now()); err != nil {
		t.Errorf("Prune() failed: %v", err)
	}
}

// A migration that was released is never edited: an edit would leave stores in
// the field with another schema than new ones. A new one is added here.
func TestMigrations_areNeverEdited(t *testing.T) {
	want := map[string]string{
		"0001_control_store.sql":        "264e8a2b4a733280",
		"0002_letters_and_adoption.sql": "599a8879c2a0d16e",
	}
	got, err := sqlite.MigrationSums()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the migrations differ from their recorded sums (-want +got):\n%s", diff)
	}
}
