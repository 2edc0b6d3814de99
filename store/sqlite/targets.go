package sqlite

import (
	"context"
	"fmt"

	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

func (s *Store) applyTargets(ctx context.Context, b outbox.Batch) error {
	bot := string(b.Owner.Bot)
	for _, d := range b.Dead {
		if _, err := s.stmt.markDead.ExecContext(ctx, bot, string(d.Chat), d.Reason, d.Code,
			micros(d.Since), micros(d.At), d.Count, micros(d.ProbeAt)); err != nil {
			return fmt.Errorf("mark dead target: %w", err)
		}
	}
	for _, c := range b.Revived {
		if _, err := s.stmt.revive.ExecContext(ctx, bot, string(c)); err != nil {
			return fmt.Errorf("revive target: %w", err)
		}
	}
	for _, d := range b.Ended {
		if _, err := s.stmt.end.ExecContext(ctx, int(d.State), micros(b.At), d.Reason, bot, jsonLine(d.IDs)); err != nil {
			return fmt.Errorf("end entries: %w", err)
		}
	}
	for _, m := range b.Moves {
		if _, err := s.stmt.moveEntries.ExecContext(ctx, string(m.To), bot, jsonLine(m.IDs)); err != nil {
			return fmt.Errorf("move entries: %w", err)
		}
		if _, err := s.stmt.addMove.ExecContext(ctx, bot, string(m.From), string(m.To)); err != nil {
			return fmt.Errorf("remember move: %w", err)
		}
	}
	return nil
}

func (s *Store) applyAnchors(ctx context.Context, anchors []limiter.Anchors) error {
	for _, a := range anchors {
		if _, err := s.stmt.anchorState.ExecContext(ctx, a.Scope, a.Tokens, a.Ceiling, microsUp(a.At),
			microsUp(a.PenaltyUntil), a.PenaltyFor.Microseconds(), a.Clean); err != nil {
			return fmt.Errorf("store anchor: %w", err)
		}
		if a.Cleared {
			if _, err := s.stmt.clearChannels.ExecContext(ctx, a.Scope); err != nil {
				return fmt.Errorf("clear channel anchors: %w", err)
			}
		}
		for _, c := range a.Channels {
			if _, err := s.stmt.anchorChannel.ExecContext(ctx, a.Scope, c.Channel, c.Method, micros(a.At),
				microsUp(c.DelayUntil), microsUp(c.RuleUntil), microsUp(c.PenaltyUntil), c.PenaltyFor.Microseconds()); err != nil {
				return fmt.Errorf("store channel anchor: %w", err)
			}
		}
	}
	return nil
}
