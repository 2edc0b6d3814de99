package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

const (
	headPage = 5_000  // heads read at once, in some milliseconds
	adoption = 20_000 // entries adopted in one commit, which others wait for

	headColumns = `id, chat, thread, state, priority, supersede, not_before, expires_at, due, length(receipts), may_be_duplicate,
		CASE state WHEN 2 THEN length(log) - length(replace(log, char(10), '')) ELSE 0 END`
)

// headReader collects heads. The notes of calls are read when the first one
// asks for them.
type headReader struct {
	calls *callLog
	bot   chat.BotName
	notes *callNotes
	heads []outbox.Head
}

// scan reads the headColumns of a row.
func (h *headReader) scan(r *sql.Rows) error {
	var head outbox.Head
	var notBefore, expires, due int64
	var receipts, attempt int
	err := r.Scan(&head.ID, (*string)(&head.Chat), (*string)(&head.Thread), &head.State, &head.Priority, &head.Supersede,
		&notBefore, &expires, &due, &receipts, &head.MayBeDuplicate, &attempt)
	if err != nil {
		return err
	}
	head.NotBefore, head.ExpiresAt, head.Due = fromMicros(notBefore), fromMicros(expires), fromMicros(due)
	head.Begun = receipts > 0
	if head.State == outbox.Sending {
		if head.Called, err = h.called(outbox.Call{ID: head.ID, Attempt: attempt}); err != nil {
			return err
		}
	}
	h.heads = append(h.heads, head)
	return nil
}

func (h *headReader) called(c outbox.Call) (bool, error) {
	if h.notes == nil {
		notes, err := h.calls.load(h.bot)
		if err != nil {
			return false, fmt.Errorf("notes of calls: %w", err)
		}
		h.notes = &notes
	}
	return h.notes.may(c), nil
}

// Heads reads a page of what is pending.
func (s *Store) Heads(ctx context.Context, o outbox.Owner, after outbox.ID) ([]outbox.Head, error) {
	page := headReader{calls: &s.calls, bot: o.Bot}
	err := s.rows(ctx, page.scan, `SELECT `+headColumns+` FROM entries INDEXED BY entries_pending
		WHERE bot = ? AND outside = 0 AND state <= 3 AND id > ? ORDER BY id LIMIT ?`, string(o.Bot), int64(after), headPage)
	if err != nil {
		return nil, fmt.Errorf("read the heads of %s: %w", o.Bot, err)
	}
	return page.heads, nil
}

// adopt takes over what processes without an owner have stored.
func (s *Store) adopt(ctx context.Context, bot chat.BotName) ([]outbox.Head, error) {
	rows, err := s.stmt.adopt.QueryContext(ctx, string(bot), adoption)
	if err != nil {
		return nil, fmt.Errorf("adopt entries: %w", err)
	}
	defer rows.Close()
	adopted := headReader{calls: &s.calls, bot: bot}
	for rows.Next() {
		if err := adopted.scan(rows); err != nil {
			return nil, fmt.Errorf("adopt entries: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("adopt entries: %w", err)
	}
	slices.SortFunc(adopted.heads, func(a, b outbox.Head) int { return cmp.Compare(a.ID, b.ID) })
	return adopted.heads, nil
}
