package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
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
func (s *Store) Accept(_ context.Context, intakes ...inbound.Intake) ([]inbound.Accepted, error) {
	bodies := make([]string, len(intakes))
	for i, in := range intakes {
		body, err := json.Marshal(in.Event)
		if err != nil {
			return nil, fmt.Errorf("accept event %s: %w", in.Event.ID, err)
		}
		bodies[i] = string(body)
	}
	accepted := make([]inbound.Accepted, len(intakes))
	err := s.write(func() error {
		at := micros(now())
		for i, in := range intakes {
			var err error
			if accepted[i], err = s.insertEvent(in, bodies[i], at); err != nil {
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

func (s *Store) insertEvent(in inbound.Intake, body string, at int64) (inbound.Accepted, error) {
	state, ended := eventAccepted, int64(0)
	if in.Ended {
		state, ended = 10+int(outbox.TurnDone), at
	}
	bot, id := text(in.Event.Source.Bot), text(in.Event.ID)
	err := s.stmt.insertEvent.run(bot, id, integer(state), integer(at), integer(ended), text(body))
	if err != nil {
		return inbound.Accepted{}, fmt.Errorf("insert event: %w", err)
	}
	if s.conn.changed() > 0 {
		return inbound.Accepted{Turn: outbox.TurnID(s.conn.lastID()), Fresh: true}, nil
	}
	known := inbound.Accepted{}
	st := s.stmt.eventByPlatformsID
	err = st.each(func() error {
		known.Turn = outbox.TurnID(st.integer(0))
		return nil
	}, bot, id)
	return known, err
}

// Admit records the policy's yes.
func (s *Store) Admit(_ context.Context, turns ...outbox.TurnID) error {
	err := s.write(func() error {
		for _, t := range turns {
			if err := s.stmt.admit.run(integer(t)); err != nil {
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
func (s *Store) Begin(_ context.Context, t outbox.TurnID) (int, error) {
	var attempt int
	err := s.write(func() error {
		attempt = 0
		return s.stmt.beginTurn.each(func() error {
			attempt = int(s.stmt.beginTurn.integer(0))
			return nil
		}, integer(t))
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
