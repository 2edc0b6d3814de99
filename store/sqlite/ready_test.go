package sqlite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/store/sqlite"
)

func TestPing_noticesAFileThatIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.db")
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Ping(t.Context()); err != nil {
		t.Fatalf("Ping() = %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "removed or replaced") {
		t.Errorf("Ping() = %v, want that the file was removed", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("Ping() takes another file for ours")
	}
}

func TestOpen_refusesToBeginAfreshBesideAWAL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.db")
	if err := os.WriteFile(path+"-wal", []byte("most of a lost database"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := sqlite.Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), "-wal") {
		t.Errorf("Open() = %v, %v, want an error that names the WAL", s, err)
	}
	if b, err := os.ReadFile(path + "-wal"); err != nil || len(b) == 0 {
		t.Errorf("the WAL was touched: %q, %v", b, err)
	}
}

func TestNote_worksWhateverStandsInItsPlace(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"a file for the folder": func(dir string) error { return os.WriteFile(filepath.Join(dir, "calls"), nil, 0o600) },
		"a folder for the file": func(dir string) error { return os.MkdirAll(filepath.Join(dir, "calls", "support"), 0o700) },
		"a full folder for the file": func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, "calls", "support", "x"), 0o700)
		},
		"garbage": func(dir string) error {
			if err := os.MkdirAll(filepath.Join(dir, "calls"), 0o700); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "calls", "support"), []byte(strings.Repeat("x", 999)), 0o600)
		},
		"a link to elsewhere": func(dir string) error {
			if err := os.MkdirAll(filepath.Join(dir, "calls"), 0o700); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, "precious"), []byte("precious"), 0o600); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(dir, "precious"), filepath.Join(dir, "calls", "support"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			s, err := sqlite.Open(t.Context(), filepath.Join(dir, "gateway.db"))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			o, err := s.Acquire(t.Context(), "support")
			if err != nil {
				t.Fatal(err)
			}
			e := outbox.Entry{Target: chat.Target{Bot: "support", Chat: "1"}, State: outbox.Sending, Priority: outbox.Reply, Parts: []chat.Part{{Text: "x"}}}
			if _, err := s.Apply(t.Context(), outbox.Batch{Owner: o, New: []outbox.Entry{e}}); err != nil {
				t.Fatal(err)
			}
			if got := heads(t, s, o); !got[0].Called {
				t.Errorf("the heads are %+v, want a call that may have been made", got)
			}
			if err := s.Note("support", 0, outbox.Call{ID: 1}); err != nil {
				t.Errorf("Note() = %v", err)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "precious")); err == nil && string(b) != "precious" {
				t.Errorf("the link was followed: %q", b)
			}
		})
	}
}
