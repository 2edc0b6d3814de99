package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/chatgateway/gateway/outbox"
)

// probeSize is what must have room beside the database after a failed commit:
// one page would often find some in a WAL that takes no message any more.
const probeSize = 256 << 10

// readiness remembers what is needed to tell whether the store works.
type readiness struct {
	mu   sync.Mutex
	file os.FileInfo // of the database, as it was at the first question
}

// Ping reports whether the store can be written to, and whether its file is
// still the one at its path. As long as commits succeed it only takes the lock;
// after one that failed, a page must reach the disk and some space must be free
// before the store counts as writable again.
func (s *Store) Ping(context.Context) error {
	s.ready.mu.Lock()
	defer s.ready.mu.Unlock()
	if err := s.ready.samePath(s.path); err != nil {
		return err
	}
	if !s.w.failing.Load() {
		return s.exec(`UPDATE bots SET epoch = epoch WHERE name = ''`)
	}
	if err := probe(filepath.Dir(s.path), probeSize); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w: %w", outbox.ErrNoSpace, err)
		}
		return fmt.Errorf("control store %s: %w", s.path, err)
	}
	return s.exec(`PRAGMA user_version = 1`) // nothing reads it
}

// samePath finds out that somebody removed or replaced the file: what is
// written then is gone when the process ends.
func (r *readiness) samePath(path string) error {
	info, err := os.Stat(path)
	if err != nil || r.file != nil && !os.SameFile(info, r.file) {
		return fmt.Errorf("control store %s: the file was removed or replaced while it is in use; stop the gateway and put it back", path)
	}
	r.file = info
	return nil
}

// orphaned refuses to begin afresh beside what a lost database has left: its
// WAL may hold most of it, and would be overwritten.
func orphaned(path string) error {
	wal, err := os.Stat(path + "-wal")
	if err != nil || wal.Size() == 0 {
		return nil //nolint:nilerr // without a WAL nothing is orphaned
	}
	if db, err := os.Stat(path); err == nil && db.Size() > 0 {
		return nil
	}
	return fmt.Errorf("%s is missing or empty, but %s-wal is there with %d bytes: put the database back, or move both away to begin afresh", path, path, wal.Size())
}
