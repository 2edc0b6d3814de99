package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

// Read gives whole entries by their ids.
func (s *Store) Read(ctx context.Context, ids ...outbox.ID) ([]outbox.Entry, error) {
	entries := make([]outbox.Entry, 0, len(ids))
	for _, id := range ids {
		e, err := s.readEntry(ctx, id)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("control store %s: read entry %d: %w", s.path, id, explain(err))
		}
		entries = append(entries, e)
	}
	return entries, nil
}

const entryColumns = `id, bot, chat, thread, state, priority, coalesce(idem_key, ''), fingerprint, supersede, on_uncertain,
	replay_of, replayed_by, not_before, expires_at, due, attempts, uncertain, degraded, may_be_duplicate, created_at, ended_at,
	reason, receipts, log, source, parts`

const selectEntry = `SELECT ` + entryColumns + ` FROM entries WHERE id = ?`

func (s *Store) readEntry(ctx context.Context, id outbox.ID) (outbox.Entry, error) {
	return scanEntry(s.readByID.QueryRowContext(ctx, int64(id)))
}

// scanEntry reads the entryColumns of a row.
func scanEntry(row interface{ Scan(into ...any) error }) (outbox.Entry, error) {
	var (
		e                                       outbox.Entry
		notBefore, expires, due, created, ended int64
		receipts, log, source, parts            []byte
	)
	err := row.Scan(
		&e.ID, (*string)(&e.Target.Bot), (*string)(&e.Target.Chat), (*string)(&e.Target.Thread), &e.State, &e.Priority,
		&e.Key, &e.Fingerprint, &e.Supersede, &e.OnUncertain, &e.ReplayOf, &e.ReplayedBy, &notBefore, &expires, &due,
		&e.Attempts, &e.Uncertain, &e.Degraded, &e.MayBeDuplicate, &created, &ended, &e.Reason, &receipts, &log, &source, &parts)
	if err != nil {
		return e, err
	}
	e.NotBefore, e.ExpiresAt, e.Due = fromMicros(notBefore), fromMicros(expires), fromMicros(due)
	e.CreatedAt, e.EndedAt = fromMicros(created), fromMicros(ended)
	if err := json.Unmarshal(parts, &e.Parts); err != nil {
		return e, fmt.Errorf("decode parts: %w", err)
	}
	if len(source) > 0 {
		if err := json.Unmarshal(source, &e.Source); err != nil {
			return e, fmt.Errorf("decode source: %w", err)
		}
	}
	if e.Receipts, err = jsonLines[chat.Receipt](receipts); err != nil {
		return e, err
	}
	e.Log, err = jsonLines[outbox.Attempt](log)
	return e, err
}

// Load reads what the owner starts from, except for the entries.
func (s *Store) Load(ctx context.Context, o outbox.Owner) (outbox.Backlog, error) {
	var b outbox.Backlog
	var err error
	if b.Dead, err = s.loadDead(ctx, o.Bot); err != nil {
		return b, fmt.Errorf("load %s: dead targets: %w", o.Bot, err)
	}
	if b.Moves, err = s.loadMoves(ctx, o.Bot); err != nil {
		return b, fmt.Errorf("load %s: moved chats: %w", o.Bot, err)
	}
	if b.Anchors, err = s.loadAnchors(ctx); err != nil {
		return b, fmt.Errorf("load %s: limiter anchors: %w", o.Bot, err)
	}
	return b, nil
}

// rows runs a query and scans each of its rows.
func (s *Store) rows(ctx context.Context, scan func(*sql.Rows) error, query string, args ...any) error {
	rows, err := s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("control store %s: %w", s.path, explain(err))
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("control store %s: %w", s.path, explain(err))
	}
	return nil
}

func (s *Store) loadDead(ctx context.Context, bot chat.BotName) ([]outbox.DeadTarget, error) {
	return s.deadTargets(ctx, `bot = ? ORDER BY at`, string(bot))
}

func (s *Store) loadMoves(ctx context.Context, bot chat.BotName) ([]outbox.Move, error) {
	var moves []outbox.Move
	err := s.rows(ctx, func(r *sql.Rows) error {
		var m outbox.Move
		err := r.Scan((*string)(&m.From), (*string)(&m.To))
		moves = append(moves, m)
		return err
	}, `SELECT from_chat, to_chat FROM moved_chats WHERE bot = ? ORDER BY id`, string(bot))
	return moves, err
}

// loadAnchors reads the state of every scope: which one the bot's limiter has
// is the limiter's business.
func (s *Store) loadAnchors(ctx context.Context) ([]limiter.Anchors, error) {
	var anchors []limiter.Anchors
	index := map[string]int{}
	err := s.rows(ctx, func(r *sql.Rows) error {
		var a limiter.Anchors
		var at, until, length int64
		err := r.Scan(&a.Scope, &a.Tokens, &a.Ceiling, &at, &until, &length, &a.Clean)
		a.At, a.PenaltyUntil, a.PenaltyFor = fromMicros(at), fromMicros(until), time.Duration(length)*time.Microsecond
		index[a.Scope] = len(anchors)
		anchors = append(anchors, a)
		return err
	}, `SELECT scope, tokens, ceiling, last_refill, penalty_until, penalty_for, clean FROM rate_limit_state`)
	if err != nil {
		return nil, err
	}
	err = s.rows(ctx, func(r *sql.Rows) error {
		var c limiter.ChannelAnchor
		var scope string
		var delay, rule, until, length int64
		if err := r.Scan(&scope, &c.Channel, &c.Method, &delay, &rule, &until, &length); err != nil {
			return err
		}
		c.DelayUntil, c.RuleUntil, c.PenaltyUntil = fromMicros(delay), fromMicros(rule), fromMicros(until)
		c.PenaltyFor = time.Duration(length) * time.Microsecond
		if i, ok := index[scope]; ok {
			anchors[i].Channels = append(anchors[i].Channels, c)
		}
		return nil
	}, `SELECT scope, channel, method, delay_until, rule_until, penalty_until, penalty_for
		FROM rate_limit_channel ORDER BY at`)
	return anchors, err
}
