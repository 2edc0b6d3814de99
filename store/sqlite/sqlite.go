// Package sqlite is the control store on SQLite: the outbox, the journal of
// events, dead targets and the limiter's anchors in one file. It is the only
// package of the gateway that speaks SQL to SQLite.
//
// The file is in WAL mode with synchronous=FULL, so a commit that returned is
// on disk. Writes of all callers share commits; reads have connections of
// their own and never wait for a write.
package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite" // the driver registers itself as "sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/chatgateway/gateway/outbox"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrNewerSchema means that the file was written by a newer program. Nothing
// was changed.
var ErrNewerSchema = errors.New("the control store was written by a newer version of gateway; run that version, or restore an older backup")

// checkedSize is the largest file, in bytes, that is checked whole at each
// start: about 100 ms of reading.
const checkedSize = 32 << 20

// busyTimeout is how long a lock of another process is waited for.
const busyTimeout = 5 * time.Second

// Store is an open control store. It is safe for concurrent use.
type Store struct {
	path  string
	read  *sql.DB
	conn  *connection // the writing one
	stmt  statements
	w     writer
	calls callLog
	ready readiness

	busy    time.Duration // how long locks are waited for
	swollen chan struct{} // told when the WAL is larger than walBound
	shared  shared        // of the transaction that runs
	batches sync.Pool     // of *application

	walBound int64 // bytes

	readByID *sql.Stmt // on the reading connections
}

// Open opens the file at path, makes it and its folder (0700) if they are
// missing, and brings its schema up to date. An existing file is never
// replaced, whatever is wrong with it.
func Open(ctx context.Context, path string) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("control store: %w", err)
	}
	if err := writable(path); err != nil {
		return nil, fmt.Errorf("control store: %w", err)
	}
	if err := orphaned(path); err != nil {
		return nil, fmt.Errorf("control store: %w", err)
	}
	return openWith(ctx, path, busyTimeout)
}

func openWith(ctx context.Context, path string, busy time.Duration) (*Store, error) {
	// As SQLite is built everywhere else: what a file needs to be read back is
	// synced, its times are not, which can take half of a commit's time.
	if _, err := sqlite.Fdatasync(true); err != nil && !errors.Is(err, sqlite.ErrFdatasyncUnavailable) {
		return nil, fmt.Errorf("control store %s: %w", path, err)
	}
	s := &Store{path: path, busy: busy, swollen: make(chan struct{}, 1), walBound: walBound, calls: callLog{dir: filepath.Join(filepath.Dir(path), "calls")}}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("control store %s: %w", path, explain(err)), s.Close())
	}
	return s, nil
}

// writable names the folder or file that stands in the way, where SQLite would
// only say that it can't open the database.
func writable(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the data folder %s: %w", dir, err)
	}
	if err := probe(dir, 0); err != nil {
		return fmt.Errorf("the data folder %s must be writable, for the database and the files beside it: %w", dir, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the operator's own path
	if err != nil {
		return fmt.Errorf("the database must be readable and writable: %w", err)
	}
	return f.Close()
}

// probe makes a file of that size in the folder, and removes it again.
func probe(dir string, size int) error {
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return errors.Unwrap(err) // without a name that is gone
	}
	_, err = f.Write(make([]byte, size))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

func (s *Store) open(ctx context.Context) error {
	db, err := sql.Open("sqlite", dsn(s.path, s.busy, "_txlock=immediate"))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	return errors.Join(s.openOver(ctx, db), db.Close())
}

// openOver makes the connections that stay while db, over which the schema is
// brought up to date, is still open: the last one to close would take the WAL
// away.
func (s *Store) openOver(ctx context.Context, db *sql.DB) error {
	if err := patiently(ctx, s.busy, func() error { return migrate(ctx, db) }); err != nil {
		return err
	}
	if err := check(ctx, db, s.path); err != nil {
		return err
	}
	var err error
	if s.read, err = sql.Open("sqlite", dsn(s.path, s.busy, "_pragma=query_only(1)")); err != nil {
		return err
	}
	s.read.SetMaxOpenConns(2)
	s.read.SetConnMaxIdleTime(time.Minute)
	if s.readByID, err = s.read.PrepareContext(ctx, selectEntry); err != nil {
		return err
	}
	if s.conn, err = connect(s.path, s.busy); err != nil {
		return err
	}
	for _, p := range pragmas() {
		if err := s.conn.exec("PRAGMA " + p); err != nil {
			return err
		}
	}
	return s.stmt.prepare(s.conn)
}

// dsn sets busy_timeout first, so that the pragmas after it wait for a lock
// instead of failing.
func dsn(path string, busy time.Duration, more string) string {
	options := []string{fmt.Sprintf("_pragma=busy_timeout(%d)", busy.Milliseconds())}
	for _, p := range pragmas() {
		options = append(options, "_pragma="+url.QueryEscape(p))
	}
	return dsnOf(path, append(options, more)...)
}

func dsnOf(path string, options ...string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + strings.Join(options, "&")
}

// pragmas are those of every connection.
func pragmas() []string {
	return []string{
		"journal_mode = WAL",
		"synchronous = FULL", // a commit that returned survives a power cut
		"foreign_keys = ON",
		"temp_store = MEMORY",           // a full folder for temporary files stops nothing
		"cache_size = -2000",            // 2 MB a connection keeps an idle gateway small
		"journal_size_limit = 67108864", // the WAL is cut back to 64 MiB
	}
}

// Close closes the store. Everything that writes must have stopped.
func (s *Store) Close() error {
	errs := []error{s.calls.close()}
	if s.conn != nil {
		errs = append(errs, s.stmt.close(), s.conn.close())
	}
	if s.readByID != nil {
		errs = append(errs, s.readByID.Close())
	}
	if s.read != nil {
		errs = append(errs, s.read.Close())
	}
	return errors.Join(errs...)
}

func migrate(ctx context.Context, db *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	have, want, err := versions(ctx, p)
	for err == nil && have < want {
		_, failed := p.Up(ctx)
		if failed == nil {
			return nil
		}
		before := have
		have, want, err = versions(ctx, p)
		if err == nil && have == before { // no other process that opens the file did it meanwhile
			return fmt.Errorf("bring the schema up to date: %w", failed)
		}
	}
	return err
}

// versions gives the schema's version and the one that this program wants.
func versions(ctx context.Context, p *goose.Provider) (have, want int64, err error) {
	have, want, err = p.GetVersions(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("read the schema's version: %w", err)
	}
	if have > want {
		return 0, 0, fmt.Errorf("%w (schema %d, this program knows %d)", ErrNewerSchema, have, want)
	}
	return have, want, nil
}

// MigrationSums gives the checksum of each migration by its file name. A
// released migration is never edited; a test holds the sums.
func MigrationSums() (map[string]string, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	sums := make(map[string]string, len(names))
	for _, name := range names {
		b, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(b)
		sums[filepath.Base(name)] = hex.EncodeToString(sum[:8])
	}
	return sums, nil
}

// check finds damage before it spreads. A large file is not read whole here.
func check(ctx context.Context, db *sql.DB, path string) error {
	if info, err := os.Stat(path); err != nil || info.Size() > checkedSize {
		return err
	}
	var verdict string
	if err := db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&verdict); err != nil {
		return fmt.Errorf("check the database: %w", err)
	}
	if verdict != "ok" {
		return damaged(verdict)
	}
	return nil
}

// damaged says what was found, and what to do.
func damaged(verdict string) error {
	return fmt.Errorf("the database is damaged (%s); nothing was changed: restore a backup, or recover it with the sqlite3 tool's .recover", verdict)
}

// coded is an error of SQLite: the driver's, or ours.
type coded interface {
	error
	Code() int
}

// explain gives the errors that a caller or an operator acts on their names.
func explain(err error) error {
	e, ok := errors.AsType[coded](err)
	if !ok {
		return err
	}
	if e.Code() == sqlite3.SQLITE_IOERR_SHMSIZE { // the index of the WAL could not grow
		return fmt.Errorf("%w: %w", outbox.ErrNoSpace, err)
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %w", outbox.ErrNoSpace, err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("the database is damaged; nothing was changed: restore a backup, or recover it with the sqlite3 tool's .recover: %w", err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("another program holds the database's lock: %w", err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return fmt.Errorf("the database and its folder must be readable and writable: %w", err)
	}
	return err
}

// now stamps rows whose caller gives no time.
func now() time.Time {
	return time.Now() //nolint:forbidigo // Acquire and Accept have no time of their own, and nothing is computed from it
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// microsUp rounds up, for the ends of waits: a call must not leave early.
func microsUp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Add(time.Microsecond - time.Nanosecond).UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}
