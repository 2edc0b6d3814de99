package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/chatgateway/gateway/limiter"
)

const (
	// maxLimitChannels bounds the rows of one scope's channels, as a limiter does in memory.
	maxLimitChannels = 65536 + 4096
	maxLimitMethods  = 1024
	// sweepLimits is after how many reservations idle channels are forgotten.
	sweepLimits = 1024
)

// errUnchanged ends a step that changed nothing, and so needs no commit.
var errUnchanged = errors.New("nothing changed")

// systemTime is one reading of the system's clocks, in nanoseconds.
type systemTime struct {
	wall   int64  // Unix time
	uptime int64  // of this run of the system
	run    string // names it; "" if the uptime is not known
}

// limitRow is what is kept of a scope and of one call's channel and method.
type limitRow struct {
	ledger   limiter.Ledger
	reading  int64
	clock    systemTime // at that reading
	stepped  bool       // it did not just go on since it was stored: that has to be kept
	swept    int64
	channels int
	channel  string // the name of the channel's row
	known    bool   // there is such a row
	overflow bool   // it is shared by all that found no room
}

// step lets f work on what is kept for the ask, in one transaction.
func (l *Limits) step(ctx context.Context, a limiter.Ask, what string, f func(r *limitRow)) error {
	return l.exclusively(ctx, what, func(ctx context.Context) error {
		return l.within(ctx, a, func(_ context.Context, r *limitRow) error {
			f(r)
			return nil
		})
	})
}

// within is step for who has the connection.
func (l *Limits) within(ctx context.Context, a limiter.Ask, f func(ctx context.Context, r *limitRow) error) error {
	return l.transaction(ctx, l.stmt.begin, func(ctx context.Context) error {
		var r limitRow
		if err := l.load(ctx, a, &r); err != nil {
			return err
		}
		before := r.ledger
		if err := f(ctx, &r); err != nil {
			return err
		}
		if r.ledger == before && !r.stepped {
			return errUnchanged
		}
		return l.save(ctx, a, &r, before)
	})
}

// exclusively runs f while no other goroutine uses the connection.
func (l *Limits) exclusively(ctx context.Context, what string, f func(ctx context.Context) error) error {
	select {
	case l.lock <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%s: shared limits: %w", what, ctx.Err())
	}
	defer func() { <-l.lock }()
	if err := f(ctx); err != nil {
		return fmt.Errorf("%s: shared limits %s: %w", what, l.path, explain(err))
	}
	return nil
}

// transaction runs f in one, and takes everything back if it fails. Once it has
// begun it goes on to its end, which is near, even if ctx ends: a statement that is
// cut off would leave the connection in a state that nobody knows.
func (l *Limits) transaction(ctx context.Context, begin *sql.Stmt, f func(ctx context.Context) error) error {
	inside := context.WithoutCancel(ctx)
	err := patiently(ctx, busyTimeout, func() error {
		_, err := begin.ExecContext(inside)
		return err
	})
	if err != nil {
		return err
	}
	err = f(inside)
	if err == nil {
		_, err = l.stmt.commit.ExecContext(inside)
	}
	if err == nil {
		return nil
	}
	_, failed := l.stmt.rollback.ExecContext(inside)
	if errors.Is(err, errUnchanged) {
		return failed
	}
	return errors.Join(err, failed)
}

// load reads the rows, and the clock: all who ask do so while they have the
// file's lock, so that their readings are in order.
func (l *Limits) load(ctx context.Context, a limiter.Ask, r *limitRow) error {
	now := l.clock()
	if !a.At.IsZero() {
		now = systemTime{wall: a.At.UnixNano()}
	}
	known, err := l.stmt.loadScope(ctx, a.Scope, r)
	if err != nil {
		return err
	}
	if !known {
		r.reading = now.wall
	} else {
		r.advance(now, a)
	}
	r.clock = now
	return l.stmt.loadCall(ctx, a, r, l.maxChannels)
}

// advance moves the reading to now.
func (r *limitRow) advance(now systemTime, a limiter.Ask) {
	switch before := r.clock; {
	case before.run == now.run && now.run != "":
		r.reading += max(now.uptime-before.uptime, 0)
	default:
		r.reading += max(now.wall-before.wall, 0)
		r.stepped = now.wall < before.wall || before.run != now.run
		if before.run != "" {
			r.ledger.Empty(r.reading, a)
		}
	}
}

// save stores what has become of the rows.
func (l *Limits) save(ctx context.Context, a limiter.Ask, r *limitRow, before limiter.Ledger) error {
	g := &r.ledger
	if a.Call.Channel != "" && (g.Delay != before.Delay || g.Rule != before.Rule || g.Channel != before.Channel) {
		if err := l.stmt.saveChannel(ctx, a.Scope, r); err != nil {
			return err
		}
		if !r.known {
			r.channels++
		}
	}
	if err := l.stmt.saveMethods(ctx, a, g, before); err != nil {
		return err
	}
	if g.Seq-r.swept >= sweepLimits {
		n, err := l.stmt.sweep(ctx, a.Scope, r.reading)
		if err != nil {
			return err
		}
		r.channels, r.swept = r.channels-n, g.Seq
	}
	return l.stmt.saveScope(ctx, a.Scope, r)
}

// overflowRow is the name of the row that channels without room share, one for each rule.
func overflowRow(a limiter.Ask) string {
	return fmt.Sprintf("\x01%d/%d", a.Rule.Every, a.Rule.Burst)
}

// noRows is true, without an error, if a query found nothing.
func noRows(err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return true, nil
	}
	return false, err
}
