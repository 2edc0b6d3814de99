package sqlite_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/store/sqlite"
)

// Other packages' tests run a store in a bubble. It must be opened and closed
// inside.
func TestStore_worksInABubble(t *testing.T) {
	path := newPath(t)
	synctest.Test(t, func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				time.Sleep(time.Hour)
				if _, err := s.Apply(t.Context(), outbox.Batch{New: []outbox.Entry{entry("1", "x")}}); err != nil {
					t.Errorf("Apply() failed: %v", err)
				}
			})
		}
		group.Wait()
		entries, err := s.Read(t.Context(), 20)
		if err != nil || len(entries) != 1 || !entries[0].CreatedAt.Equal(time.Now()) {
			t.Errorf("Read() = %v, %v, want an entry made at %v", entries, err, time.Now())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
