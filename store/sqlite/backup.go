package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	backupStep = 256 // pages copied at once: 1 MiB, for which commits wait some milliseconds
	restarts   = 3   // after which the rest is copied at once
)

// Backup copies the store into a new file while it is in use. The copy holds
// everything that was answered before the call, and is whole whatever happens:
// it gets its name only when all of it is on disk. A file that is there already
// is refused with [fs.ErrExist]. Commits go on between the steps of the copy, and
// the WAL is not held.
func (s *Store) Backup(ctx context.Context, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("back up to %s: %w", path, err)
	}
	if err := absent(path); err != nil {
		return fmt.Errorf("back up to %s: %w", path, err)
	}
	partial, err := s.copyTo(ctx, filepath.Dir(path))
	if err == nil {
		err = publish(partial, path)
	}
	if err != nil {
		return fmt.Errorf("back up to %s: %w", path, explain(errors.Join(err, remove(partial))))
	}
	return nil
}

func absent(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}
	return nil
}

// publish gives a file that is whole its name.
func publish(partial, path string) error {
	if err := toDisk(partial); err != nil {
		return err
	}
	if err := absent(path); err != nil {
		return err
	}
	if err := os.Rename(partial, path); err != nil {
		return err
	}
	return toDisk(filepath.Dir(path))
}

// toDisk brings a file, or the names in a folder, to the disk.
func toDisk(path string) error {
	f, err := os.Open(path) //nolint:gosec // the operator's own path
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// copyTo copies the store into a new file in the folder, and gives its path,
// also beside an error.
func (s *Store) copyTo(ctx context.Context, dir string) (string, error) {
	f, err := os.CreateTemp(dir, ".gateway-backup-*")
	if err != nil {
		return "", err
	}
	if err := f.Close(); err != nil {
		return f.Name(), err
	}
	to, err := connect(f.Name(), 0)
	if err != nil {
		return f.Name(), err
	}
	// Nobody reads the file before it is whole and synced.
	for _, p := range []string{"journal_mode = OFF", "synchronous = OFF"} {
		if err := to.exec("PRAGMA " + p); err != nil {
			return f.Name(), errors.Join(err, to.close())
		}
	}
	return f.Name(), errors.Join(s.copyOver(ctx, to), to.close())
}

// copyOver copies step by step. Pages that this connection changes meanwhile
// are carried along; when another process writes, SQLite begins anew.
func (s *Store) copyOver(ctx context.Context, to *connection) error {
	var job uintptr
	err := s.withPen(func() (err error) {
		job, err = s.conn.backup(to)
		return err
	})
	if err != nil {
		return err
	}
	last, again := int32(0), 0
	for done := false; !done && err == nil; {
		err = s.withPen(func() (err error) {
			pages := int32(backupStep)
			if again > restarts {
				pages = -1
			}
			done, err = s.conn.copyPages(job, pages)
			left := sqlite3.Xsqlite3_backup_remaining(s.conn.tls, job)
			if last > 0 && left > last {
				again++
			}
			last = left
			return errors.Join(err, ctx.Err())
		})
	}
	return errors.Join(err, s.withPen(func() error {
		return to.check(sqlite3.Xsqlite3_backup_finish(s.conn.tls, job))
	}))
}

// backup begins to copy the connection's database.
func (c *connection) backup(to *connection) (job uintptr, err error) {
	name, err := libc.CString("main")
	if err != nil {
		return 0, err
	}
	defer libc.Xfree(c.tls, name)
	if job = sqlite3.Xsqlite3_backup_init(c.tls, to.db, name, c.db, name); job == 0 {
		return 0, to.check(sqlite3.Xsqlite3_extended_errcode(to.tls, to.db))
	}
	return job, nil
}

// copyPages copies so many more pages, or all with -1.
func (c *connection) copyPages(job uintptr, pages int32) (done bool, err error) {
	rc := sqlite3.Xsqlite3_backup_step(c.tls, job, pages)
	if rc == sqlite3.SQLITE_DONE {
		return true, nil
	}
	return false, c.check(rc)
}

// Check looks for damage in the whole store, however large it is. It checks a
// copy, which needs as much room beside the store as the store itself: a check
// of the file in use would hold the WAL for as long as it lasts.
func (s *Store) Check(ctx context.Context) error {
	// Pages are to be read from the file, not from memory.
	if err := s.withPen(func() error { return s.conn.exec("PRAGMA shrink_memory") }); err != nil {
		return fmt.Errorf("check %s: %w", s.path, explain(err))
	}
	path, err := s.copyTo(ctx, filepath.Dir(s.path))
	if err == nil {
		err = checkCopy(ctx, path)
	}
	if err = errors.Join(err, remove(path)); err != nil {
		return fmt.Errorf("check %s: %w", s.path, explain(err))
	}
	return nil
}

// checkCopy checks a file that nobody else uses.
func checkCopy(ctx context.Context, path string) (err error) {
	db, err := sql.Open("sqlite", dsnOf(path, "mode=ro", "immutable=1"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return damaged(verdict)
	}
	return nil
}
