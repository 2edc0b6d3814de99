package sqlite

import (
	"context"
	"errors"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// patiently calls try again every millisecond as long as another process has
// the lock, for up to busy. SQLite's own waiting soon asks ten times a second
// only, so that whoever has waited longest would get the lock last; and while
// another process makes the same new file a WAL database it does not wait at all.
func patiently(ctx context.Context, busy time.Duration, try func() error) error {
	waiting, cancel := context.WithTimeout(ctx, busy)
	defer cancel()
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for {
		err := try()
		if e, ok := errors.AsType[coded](err); !ok || e.Code()&0xff != sqlite3.SQLITE_BUSY || waiting.Err() != nil {
			return err
		}
		select {
		case <-pause.C:
		case <-waiting.Done():
			return err
		}
	}
}
