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
	headPage = 5_000 // heads read at once, in some hundredths of a second
	adoption = 5_000 // entries adopted in one commit, which others wait for

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

// headRow is what a head is made of.
type headRow struct {
	outbox.Head
	notBefore, expires, due int64
	receipts, attempt       int
}

// scan reads the headColumns of a row.
func (h *headReader) scan(r *sql.Rows) error {
	var row headRow
	err := r.Scan(&row.ID, (*string)(&row.Chat), (*string)(&row.Thread), &row.State, &row.Priority, &row.Supersede,
		&row.notBefore, &row.expires, &row.due, &row.receipts, &row.MayBeDuplicate, &row.attempt)
	if err != nil {
		return err
	}
	return h.add(row)
}

// read is scan for a row that the writing connection gives.
func (h *headReader) read(st *statement) error {
	return h.add(headRow{
		Head: outbox.Head{
			ID: outbox.ID(st.integer(0)), Chat: chat.ChatID(st.text(1)), Thread: chat.ThreadID(st.text(2)),
			State: outbox.State(st.integer(3)), Priority: outbox.Priority(st.integer(4)), Supersede: st.text(5),
			MayBeDuplicate: st.integer(10) != 0,
		},
		notBefore: st.integer(6), expires: st.integer(7), due: st.integer(8), receipts: int(st.integer(9)), attempt: int(st.integer(11)),
	})
}

func (h *headReader) add(row headRow) error {
	row.NotBefore, row.ExpiresAt, row.Due = fromMicros(row.notBefore), fromMicros(row.expires), fromMicros(row.due)
	row.Begun = row.receipts > 0
	if row.State == outbox.Sending {
		var err error
		if row.Called, err = h.called(outbox.Call{ID: row.ID, Attempt: row.attempt}); err != nil {
			return err
		}
	}
	h.heads = append(h.heads, row.Head)
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
func (s *Store) adopt(bot chat.BotName) ([]outbox.Head, error) {
	adopted := headReader{calls: &s.calls, bot: bot}
	st := s.stmt.adopt
	err := st.each(func() error { return adopted.read(st) }, text(bot), integer(adoption))
	if err != nil {
		return nil, fmt.Errorf("adopt entries: %w", err)
	}
	slices.SortFunc(adopted.heads, func(a, b outbox.Head) int { return cmp.Compare(a.ID, b.ID) })
	return adopted.heads, nil
}
