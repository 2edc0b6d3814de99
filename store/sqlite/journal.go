package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/inbound"
	"github.com/chatgateway/gateway/outbox"
)

var _ inbound.Journal = (*Store)(nil)

// The states of an event. An end is 10 + its outbox.Outcome.
const (
	eventAccepted = 1
	eventAdmitted = 2
)

// Accept stores events in one commit.
func (s *Store) Accept(ctx context.Context, intakes ...inbound.Intake) ([]inbound.Accepted, error) {
	bodies := make([]string, len(intakes))
	for i, in := range intakes {
		body, err := json.Marshal(in.Event)
		if err != nil {
			return nil, fmt.Errorf("accept event %s: %w", in.Event.ID, err)
		}
		bodies[i] = string(body)
	}
	accepted := make([]inbound.Accepted, len(intakes))
	err := s.w.do(ctx, s, func(ctx context.Context) error {
		at := micros(now())
		for i, in := range intakes {
			var err error
			if accepted[i], err = s.insertEvent(ctx, in, bodies[i], at); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("accept events: %w", err)
	}
	return accepted, nil
}

func (s *Store) insertEvent(ctx context.Context, in inbound.Intake, body string, at int64) (inbound.Accepted, error) {
	state, ended := eventAccepted, int64(0)
	if in.Ended {
		state, ended = 10+int(outbox.TurnDone), at
	}
	bot, id := string(in.Event.Source.Bot), in.Event.ID
	res, err := s.stmt.insertEvent.ExecContext(ctx, bot, id, state, at, ended, body)
	if err != nil {
		return inbound.Accepted{}, fmt.Errorf("insert event: %w", err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		var turn int64
		err := errors.Join(err, s.stmt.eventByPlatformsID.QueryRowContext(ctx, bot, id).Scan(&turn))
		return inbound.Accepted{Turn: outbox.TurnID(turn)}, err
	}
	turn, err := res.LastInsertId()
	return inbound.Accepted{Turn: outbox.TurnID(turn), Fresh: true}, err
}

// Admit records the policy's yes.
func (s *Store) Admit(ctx context.Context, turns ...outbox.TurnID) error {
	err := s.w.do(ctx, s, func(ctx context.Context) error {
		for _, t := range turns {
			if _, err := s.stmt.admit.ExecContext(ctx, int64(t)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("admit turns: %w", err)
	}
	return nil
}

// Begin counts an attempt at a turn.
func (s *Store) Begin(ctx context.Context, t outbox.TurnID) (int, error) {
	var attempt int
	err := s.w.do(ctx, s, func(ctx context.Context) error {
		attempt = 0
		err := s.stmt.beginTurn.QueryRowContext(ctx, int64(t)).Scan(&attempt)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("begin turn %d: %w", t, err)
	}
	return attempt, nil
}

// Unfinished reads turns that have not ended.
func (s *Store) Unfinished(ctx context.Context, bot chat.BotName, after outbox.TurnID, limit int) ([]inbound.Turn, error) {
	var turns []inbound.Turn
	err := s.rows(ctx, func(r *sql.Rows) error {
		var t inbound.Turn
		var state int
		var body string
		if err := r.Scan(&t.ID, &state, &t.Attempt, &body); err != nil {
			return err
		}
		t.Admitted = state == eventAdmitted
		if err := json.Unmarshal([]byte(body), &t.Event); err != nil {
			return fmt.Errorf("decode event %d: %w", t.ID, err)
		}
		turns = append(turns, t)
		return nil
	}, `SELECT id, state, attempt, body FROM events WHERE bot = ? AND state <= 2 AND id > ? ORDER BY id LIMIT ?`,
		string(bot), int64(after), limit)
	if err != nil {
		return nil, fmt.Errorf("read unfinished turns of %s: %w", bot, err)
	}
	return turns, nil
}
