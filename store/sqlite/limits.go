package sqlite

import (
	"context"
	"database/sql"
	_ "embed" // the schema
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/chatgateway/gateway/limiter"
)

//go:embed limits_schema.sql
var limitsSchema string

const (
	limitsVersion = 1
	// limitsID marks the file as ours, as SQLite's application_id: "gwlm".
	limitsID = 0x67776c6d
)

// Limits is the shared state of limiters, in a file of its own: a limiter.Store
// for several processes on one machine. The file must not be on a network
// drive. It is safe for concurrent use.
//
// Where the system tells its uptime (Linux), that is the clock, which nobody
// steps; elsewhere it is the wall clock: one that is set forward fills the
// buckets then, once. After the system was started anew the buckets start
// empty, since the last commits may be lost: only penalties are synced to the
// disk, which the file's consistency does not need (WAL, synchronous=NORMAL).
type Limits struct {
	path string
	db   *sql.DB
	conn *sql.Conn
	stmt limitStatements
	lock chan struct{} // of the connection; a caller gives up waiting when its context ends

	clock       func() systemTime
	maxChannels int // of one scope
	maxMethods  int // with a penalty, of one scope
}

var _ limiter.Store = (*Limits)(nil)

// OpenLimits opens the file at path, and makes it and its folder (0700) if they
// are missing. A file that a newer program wrote is ErrNewerSchema; one that is
// something else is refused. Neither is changed.
func OpenLimits(ctx context.Context, path string) (*Limits, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		err = writable(path)
	}
	if err != nil {
		return nil, fmt.Errorf("shared limits: %w", err)
	}
	l := &Limits{path: path, lock: make(chan struct{}, 1), clock: systemClock(), maxChannels: maxLimitChannels, maxMethods: maxLimitMethods}
	if err := l.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("shared limits %s: %w", path, explain(err)), l.Close())
	}
	return l, nil
}

func (l *Limits) open(ctx context.Context) error {
	var err error
	if l.db, err = sql.Open("sqlite", dsn(l.path, busyTimeout, "_txlock=immediate")); err != nil {
		return err
	}
	l.db.SetMaxOpenConns(1)
	if l.conn, err = l.db.Conn(ctx); err != nil {
		return err
	}
	if err := l.migrate(ctx); err != nil {
		return err
	}
	if err := l.stmt.prepare(ctx, l.conn); err != nil {
		return err
	}
	if _, err := l.conn.ExecContext(ctx, `PRAGMA busy_timeout = 0`); err != nil { // see patiently
		return err
	}
	return l.stmt.synced(ctx, false)
}

// migrate brings the schema up to date. Processes that open the file together
// do so one after the other.
func (l *Limits) migrate(ctx context.Context) error {
	tx, err := l.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var version, id, tables int
	row := tx.QueryRowContext(ctx, `SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version, pragma_application_id`)
	if err := row.Scan(&version, &id, &tables); err != nil {
		return err
	}
	switch {
	case id != limitsID && (version != 0 || tables != 0):
		return errors.New("the file is a database of something else")
	case version > limitsVersion:
		return fmt.Errorf("%w (limits %d, this program knows %d)", ErrNewerSchema, version, limitsVersion)
	case version == limitsVersion:
		return nil
	}
	if _, err := tx.ExecContext(ctx, limitsSchema+fmt.Sprintf(`; PRAGMA application_id = %d; PRAGMA user_version = %d`, limitsID, limitsVersion)); err != nil {
		return err
	}
	return tx.Commit()
}

// Close closes the file. Everything that asks must have stopped.
func (l *Limits) Close() error {
	var errs []error
	if l.conn != nil {
		errs = append(errs, l.stmt.close(), l.conn.Close())
	}
	if l.db != nil {
		errs = append(errs, l.db.Close())
	}
	return errors.Join(errs...)
}

// Reserve takes a slot in every bucket of the ask, or in none.
func (l *Limits) Reserve(ctx context.Context, a limiter.Ask) (answer limiter.Answer, err error) {
	err = l.step(ctx, a, "reserve", func(r *limitRow) {
		answer = r.ledger.Reserve(r.reading, a)
		answer.Ticket.Shared = answer.Granted && r.overflow
	})
	return answer, err
}

// Cancel gives back what the reservation took, at most.
func (l *Limits) Cancel(ctx context.Context, a limiter.Ask, t limiter.Ticket) error {
	return l.step(ctx, a, "cancel", func(r *limitRow) {
		if a.Call.Channel != "" && r.overflow != t.Shared {
			a.Call.Channel = "" // the channel found room meanwhile, or lost it
		}
		r.ledger.Cancel(r.reading, a, t.Seq)
	})
}

// Penalise closes the bucket for d at least. Nil means that it is on disk.
func (l *Limits) Penalise(ctx context.Context, a limiter.Ask, b limiter.Bucket, d time.Duration) error {
	a.Call.Channel, a.Call.Method = b.Channel, b.Method
	return l.exclusively(ctx, "penalise", func(ctx context.Context) (err error) {
		if err := l.stmt.synced(ctx, true); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.stmt.synced(ctx, false)) }()
		return l.within(ctx, a, func(ctx context.Context, r *limitRow) error {
			wider, err := l.room(ctx, a, b, r)
			r.ledger.Penalise(r.reading, a, wider, d)
			return err
		})
	})
}

// room returns the bucket itself, or a wider one if there is no room to
// remember that it is closed.
func (l *Limits) room(ctx context.Context, a limiter.Ask, b limiter.Bucket, r *limitRow) (limiter.Bucket, error) {
	if b.Method != "" {
		room, err := l.stmt.roomForMethod(ctx, a, b, r.reading, l.maxMethods)
		if err != nil || room {
			return b, err
		}
		b.Method = ""
	}
	if r.overflow {
		b.Channel = ""
	}
	return b, nil
}

// Peek returns what a reservation would find. It waits for nobody who writes.
func (l *Limits) Peek(ctx context.Context, a limiter.Ask) (s limiter.Standing, err error) {
	look := func(ctx context.Context) error {
		var r limitRow
		if err := l.load(ctx, a, &r); err != nil {
			return err
		}
		s = r.ledger.Standing(r.reading)
		return errUnchanged
	}
	err = l.exclusively(ctx, "look", func(ctx context.Context) error {
		return patiently(ctx, busyTimeout, func() error { return l.transaction(ctx, l.stmt.look, look) })
	})
	return s, err
}

// Reset forgets everything of the scope.
func (l *Limits) Reset(ctx context.Context, scope string) error {
	return l.exclusively(ctx, "reset", func(ctx context.Context) error {
		return l.transaction(ctx, l.stmt.begin, func(ctx context.Context) error { return l.stmt.forget(ctx, scope) })
	})
}
