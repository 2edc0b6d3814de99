package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/chatgateway/gateway/limiter"
)

// limitStatements are what a step runs, prepared once on its connection.
type limitStatements struct {
	begin, commit, rollback *sql.Stmt
	look                    *sql.Stmt // begins a transaction that writes nothing
	scope, channel, method  *sql.Stmt
	putScope, putChannel    *sql.Stmt
	putMethod               *sql.Stmt
	all                     []*sql.Stmt
	conn                    *sql.Conn
}

const (
	selectScope = `SELECT reading, wall, uptime, run, seq, swept, channels, closed,
	token_full, token_since, token_last, token_low, ceiling_full, ceiling_since, ceiling_last, ceiling_low
FROM limit_scopes WHERE scope = ?`
	putScope = `INSERT OR REPLACE INTO limit_scopes (scope, reading, wall, uptime, run, seq, swept, channels, closed,
	token_full, token_since, token_last, token_low, ceiling_full, ceiling_since, ceiling_last, ceiling_low)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	forgetScope = `UPDATE limit_scopes SET channels = 0, closed = 0, swept = seq,
	token_full = 0, token_since = 0, token_last = 0, token_low = 0, ceiling_full = 0, ceiling_since = 0, ceiling_last = 0, ceiling_low = 0
WHERE scope = ?`
	selectChannel = `SELECT delay_full, delay_since, delay_last, delay_low, rule_full, rule_since, rule_last, rule_low, closed
FROM limit_channels WHERE scope = ? AND channel = ?`
	putChannel = `INSERT OR REPLACE INTO limit_channels (scope, channel,
	delay_full, delay_since, delay_last, delay_low, rule_full, rule_since, rule_last, rule_low, closed)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	selectMethod = `SELECT closed FROM limit_methods WHERE scope = ? AND channel = ? AND method = ?`
	putMethod    = `INSERT OR REPLACE INTO limit_methods (scope, channel, method, closed) VALUES (?, ?, ?, ?)`
)

func (s *limitStatements) prepare(ctx context.Context, conn *sql.Conn) error {
	s.conn = conn
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&s.begin, `BEGIN IMMEDIATE`},
		{&s.look, `BEGIN`},
		{&s.commit, `COMMIT`},
		{&s.rollback, `ROLLBACK`},
		{&s.scope, selectScope},
		{&s.channel, selectChannel},
		{&s.method, selectMethod},
		{&s.putScope, putScope},
		{&s.putChannel, putChannel},
		{&s.putMethod, putMethod},
	} {
		stmt, err := conn.PrepareContext(ctx, p.text) //nolint:sqlclosecheck // close closes them all
		if err != nil {
			return err
		}
		*p.stmt, s.all = stmt, append(s.all, stmt)
	}
	return nil
}

func (s *limitStatements) close() error {
	var errs []error
	for _, stmt := range s.all {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(errs...)
}

// loadScope returns false if nothing is kept of the scope.
func (s *limitStatements) loadScope(ctx context.Context, scope string, r *limitRow) (bool, error) {
	t, c := &r.ledger.Token, &r.ledger.Ceiling
	none, err := noRows(s.scope.QueryRowContext(ctx, scope).Scan(
		&r.reading, &r.clock.wall, &r.clock.uptime, &r.clock.run, &r.ledger.Seq, &r.swept, &r.channels, &r.ledger.Closed,
		&t.Full, &t.Since, &t.Last, &t.Low, &c.Full, &c.Since, &c.Last, &c.Low))
	return !none, err
}

func (s *limitStatements) saveScope(ctx context.Context, scope string, r *limitRow) error {
	t, c := &r.ledger.Token, &r.ledger.Ceiling
	_, err := s.putScope.ExecContext(ctx,
		scope, r.reading, r.clock.wall, r.clock.uptime, r.clock.run, r.ledger.Seq, r.swept, r.channels, r.ledger.Closed,
		t.Full, t.Since, t.Last, t.Low, c.Full, c.Since, c.Last, c.Low)
	return err
}

// loadCall reads what is kept of the call's channel and method.
func (s *limitStatements) loadCall(ctx context.Context, a limiter.Ask, r *limitRow, most int) error {
	g := &r.ledger
	if r.channel = a.Call.Channel; r.channel != "" {
		if err := s.loadChannel(ctx, a.Scope, r); err != nil {
			return err
		}
		if !r.known && r.channels >= most {
			r.channel, r.overflow = overflowRow(a), true
			if err := s.loadChannel(ctx, a.Scope, r); err != nil {
				return err
			}
		}
	}
	if a.Call.Method == "" {
		return nil
	}
	_, err := noRows(s.method.QueryRowContext(ctx, a.Scope, "", a.Call.Method).Scan(&g.Method))
	if err == nil && a.Call.Channel != "" {
		_, err = noRows(s.method.QueryRowContext(ctx, a.Scope, a.Call.Channel, a.Call.Method).Scan(&g.ChannelMethod))
	}
	return err
}

func (s *limitStatements) loadChannel(ctx context.Context, scope string, r *limitRow) error {
	d, o := &r.ledger.Delay, &r.ledger.Rule
	none, err := noRows(s.channel.QueryRowContext(ctx, scope, r.channel).Scan(
		&d.Full, &d.Since, &d.Last, &d.Low, &o.Full, &o.Since, &o.Last, &o.Low, &r.ledger.Channel))
	r.known = !none
	return err
}

func (s *limitStatements) saveChannel(ctx context.Context, scope string, r *limitRow) error {
	d, o := &r.ledger.Delay, &r.ledger.Rule
	_, err := s.putChannel.ExecContext(ctx, scope, r.channel,
		d.Full, d.Since, d.Last, d.Low, o.Full, o.Since, o.Last, o.Low, r.ledger.Channel)
	return err
}

// saveMethods stores the penalties on methods that changed.
func (s *limitStatements) saveMethods(ctx context.Context, a limiter.Ask, g *limiter.Ledger, before limiter.Ledger) error {
	if g.Method != before.Method {
		if _, err := s.putMethod.ExecContext(ctx, a.Scope, "", a.Call.Method, g.Method); err != nil {
			return err
		}
	}
	if g.ChannelMethod != before.ChannelMethod {
		if _, err := s.putMethod.ExecContext(ctx, a.Scope, a.Call.Channel, a.Call.Method, g.ChannelMethod); err != nil {
			return err
		}
	}
	return nil
}

// roomForMethod makes room for a penalty on the method, if it can.
func (s *limitStatements) roomForMethod(ctx context.Context, a limiter.Ask, b limiter.Bucket, t int64, most int) (bool, error) {
	var n, known int
	err := s.conn.QueryRowContext(ctx, `SELECT count(*), count(CASE WHEN channel = ? AND method = ? THEN 1 END) FROM limit_methods WHERE scope = ?`,
		b.Channel, b.Method, a.Scope).Scan(&n, &known)
	if err != nil || n < most || known > 0 {
		return err == nil, err
	}
	done, err := s.conn.ExecContext(ctx, `DELETE FROM limit_methods WHERE scope = ? AND closed <= ?`, a.Scope, t)
	if err != nil {
		return false, err
	}
	freed, err := done.RowsAffected()
	return freed > 0, err
}

// sweep forgets the channels that have nothing to remember, and penalties on
// methods that are over; it returns how many channels those were.
func (s *limitStatements) sweep(ctx context.Context, scope string, t int64) (int, error) {
	if _, err := s.conn.ExecContext(ctx, `DELETE FROM limit_methods WHERE scope = ? AND closed <= ?`, scope, t); err != nil {
		return 0, err
	}
	done, err := s.conn.ExecContext(ctx, `DELETE FROM limit_channels WHERE scope = ? AND max(delay_full, rule_full, closed) <= ?`, scope, t)
	if err != nil {
		return 0, err
	}
	n, err := done.RowsAffected()
	return int(n), err
}

// forget deletes everything of the scope but the number of its last
// reservation: those before can't be given back.
func (s *limitStatements) forget(ctx context.Context, scope string) error {
	for _, text := range []string{
		`DELETE FROM limit_channels WHERE scope = ?`, `DELETE FROM limit_methods WHERE scope = ?`, forgetScope,
	} {
		if _, err := s.conn.ExecContext(ctx, text, scope); err != nil {
			return err
		}
	}
	return nil
}

// synced sets whether a commit reaches the disk before it returns.
func (s *limitStatements) synced(ctx context.Context, on bool) error {
	text := `PRAGMA synchronous = NORMAL`
	if on {
		text = `PRAGMA synchronous = FULL`
	}
	_, err := s.conn.ExecContext(context.WithoutCancel(ctx), text)
	return err
}
