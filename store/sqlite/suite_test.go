package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/store/sqlite"
	"github.com/chatgateway/gateway/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store {
		t.Helper()
		return open(t, newPath(t))
	})
}

func newPath(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "gateway.db")
}

// open opens the store and closes it when the test ends.
func open(tb testing.TB, path string) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.Open(tb.Context(), path)
	if err != nil {
		tb.Fatalf("Open() failed: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("Close() failed: %v", err)
		}
	})
	return s
}

// heads adopts what was stored without an owner, and gives all that is pending.
func heads(tb testing.TB, s *sqlite.Store, o outbox.Owner) []outbox.Head {
	tb.Helper()
	for more := true; more; {
		a, err := s.Apply(tb.Context(), outbox.Batch{Owner: o, Adopt: true})
		if err != nil {
			tb.Fatalf("Apply() failed: %v", err)
		}
		more = len(a.Adopted) > 0
	}
	var all []outbox.Head
	for after := outbox.ID(0); ; after = all[len(all)-1].ID {
		page, err := s.Heads(tb.Context(), o, after)
		if err != nil {
			tb.Fatalf("Heads() failed: %v", err)
		}
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
	}
}
