package sqlite_test

import (
	"path/filepath"
	"testing"

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
