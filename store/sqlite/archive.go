package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

var _ outbox.Archive = (*Store)(nil)

// Entries looked at in one read, in some hundredths of a second: while a read
// lasts the WAL can only grow.
const (
	listWindow  = 2_000
	countWindow = 20_000
)

const usualLimit = 100 // of a list

// List gives whole entries that pass the filter. It makes many short reads, so
// what changes meanwhile may be seen before or after its change.
func (s *Store) List(ctx context.Context, f outbox.Filter) ([]outbox.Entry, error) {
	if f.Limit <= 0 {
		f.Limit = usualLimit
	}
	runs, err := s.runs(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("list entries: %w", err)
	}
	found := []outbox.Entry{}
	for _, r := range runs {
		part, err := s.listRun(ctx, r, f)
		if err != nil {
			return nil, fmt.Errorf("list entries: %w", err)
		}
		found = append(found, part...)
	}
	slices.SortFunc(found, func(a, b outbox.Entry) int {
		if f.Newest {
			a, b = b, a
		}
		return cmp.Compare(a.ID, b.ID)
	})
	return found[:min(len(found), f.Limit)], nil
}

func (s *Store) listRun(ctx context.Context, r run, f outbox.Filter) ([]outbox.Entry, error) {
	where, args := condition(r, f)
	query := `SELECT ` + entryColumns + ` FROM entries ` + r.from + where + ` AND id BETWEEN ? AND ? ` + order(f) + ` LIMIT ?`
	args = slices.Concat(r.args, args)
	var found []outbox.Entry
	for len(found) < f.Limit {
		w, err := s.window(ctx, r, f, listWindow)
		if err != nil || w.empty() {
			return found, err
		}
		err = s.rows(ctx, func(row *sql.Rows) error {
			e, err := scanEntry(row)
			found = append(found, e)
			return err
		}, query, slices.Concat(args, []any{w.low, w.high, f.Limit - len(found)})...)
		if err != nil {
			return nil, err
		}
		f.After = w.last(f)
	}
	return found, nil
}

// Count counts the entries that pass the filter, in many short reads.
func (s *Store) Count(ctx context.Context, f outbox.Filter) (int, error) {
	runs, err := s.runs(ctx, f)
	if err != nil {
		return 0, fmt.Errorf("count entries: %w", err)
	}
	total := 0
	for _, r := range runs {
		n, err := s.countRun(ctx, r, f)
		if err != nil {
			return 0, fmt.Errorf("count entries: %w", err)
		}
		total += n
	}
	return total, nil
}

func (s *Store) countRun(ctx context.Context, r run, f outbox.Filter) (int, error) {
	where, args := condition(r, f)
	query := `SELECT count(*) FROM entries ` + r.from + where + ` AND id BETWEEN ? AND ?`
	args = slices.Concat(r.args, args)
	for total := 0; ; {
		w, err := s.window(ctx, r, f, countWindow)
		if err != nil || w.empty() {
			return total, err
		}
		var n int
		if err := s.row(ctx, &n, query, slices.Concat(args, []any{w.low, w.high})...); err != nil {
			return 0, err
		}
		total += n
		f.After = w.last(f)
	}
}

// run is a part of the entries that is read in the order of their ids.
type run struct {
	from  string // the index, and the beginning of the condition
	args  []any
	exact bool // it holds nothing but entries in the filter's states
}

// runs gives the fewest entries that hold all that can pass the filter.
func (s *Store) runs(ctx context.Context, f outbox.Filter) ([]run, error) {
	switch {
	case f.Untold:
		return []run{{from: `INDEXED BY entries_untold WHERE state = 5 AND told = 0`}}, nil
	case f.Open, len(f.States) == 1 && f.States[0] == outbox.Dead:
		return []run{{from: `INDEXED BY entries_dead WHERE state = 5`, exact: !f.Open}}, nil
	case len(f.States) == 0, slices.ContainsFunc(f.States, func(st outbox.State) bool { return !st.Pending() }):
		return []run{{from: `NOT INDEXED WHERE true`}}, nil
	}
	bots := []string{string(f.Bot)}
	if f.Bot == "" {
		var err error
		if bots, err = s.pendingBots(ctx); err != nil {
			return nil, err
		}
	}
	all := true
	for _, st := range []outbox.State{outbox.Queued, outbox.Sending, outbox.Waiting} {
		all = all && slices.Contains(f.States, st)
	}
	var runs []run
	for _, bot := range bots {
		for outside := range 2 {
			runs = append(runs, run{
				from: `INDEXED BY entries_pending WHERE bot = ? AND outside = ? AND state <= 3`, args: []any{bot, outside}, exact: all,
			})
		}
	}
	return runs, nil
}

// pendingBots gives the bots that have pending entries, in a step each.
func (s *Store) pendingBots(ctx context.Context) ([]string, error) {
	var bots []string
	for last := (sql.NullString{Valid: true}); ; bots = append(bots, last.String) {
		err := s.row(ctx, &last, `SELECT min(bot) FROM entries INDEXED BY entries_pending WHERE state <= 3 AND bot > ?`, last.String)
		if err != nil || !last.Valid {
			return bots, err
		}
	}
}

// condition is the filter in SQL, beside what its run says.
func condition(r run, f outbox.Filter) (where string, args []any) {
	add := func(clause string, arg ...any) {
		where, args = where+" AND "+clause, append(args, arg...)
	}
	if len(f.States) > 0 && !r.exact {
		add(`state IN (SELECT value FROM json_each(?))`, jsonLine(f.States))
	}
	if f.Bot != "" {
		add(`bot = ?`, string(f.Bot))
	}
	if f.Chat != "" {
		add(`chat = ?`, string(f.Chat))
	}
	if f.Reason != "" {
		add(`instr(reason, ?) > 0`, f.Reason)
	}
	if !f.Since.IsZero() {
		add(`created_at >= ?`, microsUp(f.Since))
	}
	if !f.Until.IsZero() {
		add(`created_at < ?`, microsUp(f.Until))
	}
	if f.Open {
		add(`state = 5 AND replayed_by = 0`)
	}
	if f.Untold {
		add(`state = 5 AND told = 0`)
	}
	return where, args
}

func order(f outbox.Filter) string {
	if f.Newest {
		return `ORDER BY id DESC`
	}
	return `ORDER BY id`
}

// window is a range of ids; high is 0 where nothing is left.
type window struct{ low, high int64 }

func (w window) empty() bool { return w.high == 0 }

// last gives the id from which the filter goes on.
func (w window) last(f outbox.Filter) outbox.ID {
	if f.Newest {
		return outbox.ID(w.low)
	}
	return outbox.ID(w.high)
}

// window gives the range of the next n entries of a run.
func (s *Store) window(ctx context.Context, r run, f outbox.Filter, n int) (window, error) {
	beyond := window{low: int64(f.After) + 1, high: math.MaxInt64}
	if f.Newest {
		beyond.low = 1
		if f.After > 0 {
			beyond.high = int64(f.After) - 1
		}
	}
	var low, high sql.NullInt64
	err := s.rows(ctx, func(row *sql.Rows) error { return row.Scan(&low, &high) },
		`SELECT min(id), max(id) FROM (SELECT id FROM entries `+r.from+` AND id BETWEEN ? AND ? `+order(f)+` LIMIT ?)`,
		slices.Concat(r.args, []any{beyond.low, beyond.high, n})...)
	return window{low: low.Int64, high: high.Int64}, err
}

// row runs a query of a single value.
func (s *Store) row(ctx context.Context, into any, query string, args ...any) error {
	return s.rows(ctx, func(r *sql.Rows) error { return r.Scan(into) }, query, args...)
}

// DeadTargets gives a page of a bot's dead targets.
func (s *Store) DeadTargets(ctx context.Context, bot chat.BotName, after chat.ChatID, n int) ([]outbox.DeadTarget, error) {
	dead, err := s.deadTargets(ctx, `bot = ? AND chat > ? ORDER BY chat LIMIT ?`, string(bot), string(after), n)
	if err != nil {
		return nil, fmt.Errorf("read dead targets of %s: %w", bot, err)
	}
	return dead, nil
}

// DeadTarget tells whether a chat is dead.
func (s *Store) DeadTarget(ctx context.Context, bot chat.BotName, id chat.ChatID) (outbox.DeadTarget, bool, error) {
	dead, err := s.deadTargets(ctx, `bot = ? AND chat = ?`, string(bot), string(id))
	if err != nil {
		return outbox.DeadTarget{}, false, fmt.Errorf("read dead target: %w", err)
	}
	if len(dead) == 0 {
		return outbox.DeadTarget{}, false, nil
	}
	return dead[0], true, nil
}

func (s *Store) deadTargets(ctx context.Context, where string, args ...any) ([]outbox.DeadTarget, error) {
	var dead []outbox.DeadTarget
	err := s.rows(ctx, func(r *sql.Rows) error {
		var d outbox.DeadTarget
		var since, at, probeAt int64
		err := r.Scan((*string)(&d.Chat), &d.Reason, &d.Code, &since, &at, &d.Count, &probeAt)
		d.Since, d.At, d.ProbeAt = fromMicros(since), fromMicros(at), fromMicros(probeAt)
		dead = append(dead, d)
		return err
	}, `SELECT chat, reason, code, since, at, count, probe_at FROM dead_targets WHERE `+where, args...)
	return dead, err
}
