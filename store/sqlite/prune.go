package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// Retention says how long what has ended is kept.
type Retention struct {
	Sent    time.Duration // sent, expired and cancelled entries
	Dead    time.Duration // dead letters
	Events  time.Duration // events; at least the days within which platforms repeat themselves
	Targets time.Duration // dead targets since their latest mark
}

const (
	keyLife    = 7 * 24 * time.Hour // an idempotency key is known this long after its entry's end
	eventLife  = 7 * 24 * time.Hour // a repeated event is recognised this long
	pruneChunk = 500                // rows a commit, so that sends between two chunks hardly wait
	channelCap = 65_536             // stored channel anchors of all scopes
	moveCap    = 10_000             // remembered moves
)

// Prune forgets what is older than its retention, in small commits. The newest
// row of a table always stays, so that its number is never given out again.
func (s *Store) Prune(ctx context.Context, r Retention, now time.Time) error {
	before := func(d time.Duration) int64 { return micros(now.Add(-d)) }
	for _, old := range []aged{
		{
			table: "entries", at: "created_at", before: before(min(r.Sent, r.Dead)),
			gone: `state > 3 AND ended_at < CASE state WHEN 5 THEN ?2 ELSE ?1 END AND (idem_key IS NULL OR ended_at < ?3)`,
			args: []any{before(r.Sent), before(r.Dead), before(keyLife)},
		},
		{
			table: "events", at: "received_at", before: before(max(r.Events, eventLife)),
			gone: `state > 2 AND ended_at < ?1`,
			args: []any{before(max(r.Events, eventLife))},
		},
	} {
		if err := s.pruneAged(ctx, old); err != nil {
			return fmt.Errorf("prune %s: %w", old.table, err)
		}
	}
	return s.pruneCapped(before(r.Targets), before(keyLife))
}

// aged names the rows of a table that are too old. Rows come in the order of
// their ids and nearly of their age (a clock can be stepped), so the look stops
// where none of those read at once is old.
type aged struct {
	table, at string
	before    int64
	gone      string
	args      []any
}

// pruneAged looks on a reading connection, where nobody waits for it, and
// deletes what it found by id.
func (s *Store) pruneAged(ctx context.Context, old aged) error {
	const look = 5000 // rows read at once
	query := fmt.Sprintf(`SELECT id, %s, %s FROM %s WHERE id > ?%d AND id < (SELECT max(id) FROM %s) ORDER BY id LIMIT %d`,
		old.at, old.gone, old.table, len(old.args)+1, old.table, look)
	last := int64(0)
	for more := true; more; {
		var ids []int64
		more = false
		err := s.rows(ctx, func(r *sql.Rows) error {
			var at int64
			var gone bool
			if err := r.Scan(&last, &at, &gone); err != nil {
				return err
			}
			more = more || at < old.before
			if gone {
				ids = append(ids, last)
			}
			return nil
		}, query, append(old.args, last)...)
		if err != nil {
			return err
		}
		if err := s.deleteRows(ctx, old.table, ids); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) deleteRows(ctx context.Context, table string, ids []int64) error {
	for len(ids) > 0 && ctx.Err() == nil {
		chunk := ids[:min(len(ids), pruneChunk)]
		ids = ids[len(chunk):]
		list, err := json.Marshal(chunk)
		if err != nil {
			return err
		}
		err = s.exec(`DELETE FROM `+table+` WHERE id IN (SELECT value FROM json_each(?))`, textOf(list))
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (s *Store) pruneCapped(targets, anchors int64) error {
	for _, q := range []struct {
		query string
		arg   int64
	}{
		{`DELETE FROM dead_targets WHERE at < ?`, targets},
		{`DELETE FROM rate_limit_channel WHERE at < ?`, anchors}, // no wait is longer than seven days
		{`DELETE FROM rate_limit_channel WHERE (scope, channel, method) IN
			(SELECT scope, channel, method FROM rate_limit_channel ORDER BY at DESC LIMIT -1 OFFSET ?)`, channelCap},
		{`DELETE FROM moved_chats WHERE id IN (SELECT id FROM moved_chats ORDER BY id DESC LIMIT -1 OFFSET ?)`, moveCap},
	} {
		if err := s.exec(q.query, integer(q.arg)); err != nil {
			return fmt.Errorf("prune: %w", err)
		}
	}
	return nil
}

// exec runs one statement in a commit that it shares.
func (s *Store) exec(query string, args ...value) error {
	return s.write(func() error { return s.conn.exec(query, args...) })
}
