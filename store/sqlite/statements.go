package sqlite

import "errors"

// statements are those of the writing connection, prepared once.
type statements struct {
	begin, commit, rollback         *statement
	epoch, acquire                  *statement
	insertEntry, entryByKey         *statement
	supersede, letter, replay       *statement
	markSending, settle             *statement
	end, moveEntries, addMove       *statement
	edit, drop, tell, adopt         *statement
	markDead, revive                *statement
	anchorState, anchorChannel      *statement
	clearChannels                   *statement
	endTurn, admit, beginTurn       *statement
	insertEvent, eventByPlatformsID *statement
	all                             []*statement
}

// prepared is a statement and its text.
type prepared struct {
	into  **statement
	query string
}

func (st *statements) prepare(c *connection) error {
	for _, p := range append(st.ofEntries(), st.ofOthers()...) {
		stmt, err := c.prepare(p.query)
		if err != nil {
			return errors.Join(err, st.close())
		}
		*p.into = stmt
		st.all = append(st.all, stmt)
	}
	return nil
}

func (st *statements) ofEntries() []prepared {
	return []prepared{
		{&st.insertEntry, `INSERT INTO entries
			(bot, chat, thread, state, priority, idem_key, fingerprint, supersede, on_uncertain, replay_of, outside,
				not_before, expires_at, may_be_duplicate, created_at, receipts, source, parts)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`},
		{&st.supersede, `UPDATE entries SET state = 7, ended_at = ?, reason = ? WHERE id = ? AND bot = ? AND state <= 3`},
		{&st.letter, `SELECT 1 FROM entries WHERE id = ? AND bot = ? AND state = 5 AND replayed_by = 0`},
		{&st.replay, `UPDATE entries SET replayed_by = ? WHERE id = ?`},
		{&st.entryByKey, `SELECT id, fingerprint FROM entries WHERE idem_key = ?`},
		{&st.markSending, `UPDATE entries SET state = 2 WHERE id = ? AND bot = ? AND state <= 3`},
		{&st.settle, `UPDATE entries SET state = ?, due = ?, attempts = ?, uncertain = ?, degraded = ?,
			may_be_duplicate = ?, ended_at = ?, reason = ?, receipts = receipts || ?, log = log || ?
			WHERE id = ? AND bot = ? AND state <= 3`},
		// The plus signs keep the search at the ids given, away from the index of all that is pending.
		{&st.end, `UPDATE entries SET state = ?, ended_at = ?, reason = ?
			WHERE +bot = ? AND +state <= 3 AND id IN (SELECT value FROM json_each(?))`},
		{&st.moveEntries, `UPDATE entries SET chat = ? WHERE +bot = ? AND +state <= 3 AND id IN (SELECT value FROM json_each(?))`},
		{&st.edit, `UPDATE entries SET chat = ?, thread = ?, parts = ?, receipts = ?, source = ?
			WHERE id = ? AND bot = ? AND state = 5 AND replayed_by = 0`},
		{&st.drop, `UPDATE entries SET state = 7, ended_at = ? WHERE id = ? AND bot = ? AND state = 5 AND replayed_by = 0`},
		{&st.tell, `UPDATE entries SET told = 1 WHERE id = ? AND bot = ? AND state = 5`},
		{&st.adopt, `UPDATE entries SET outside = 0
			WHERE id IN (SELECT id FROM entries INDEXED BY entries_pending WHERE bot = ? AND outside = 1 AND state <= 3 ORDER BY id LIMIT ?)
			RETURNING ` + headColumns},
	}
}

func (st *statements) ofOthers() []prepared {
	return []prepared{
		{&st.begin, `BEGIN IMMEDIATE`},
		{&st.commit, `COMMIT`},
		{&st.rollback, `ROLLBACK`},
		{&st.epoch, `SELECT epoch FROM bots WHERE name = ?`},
		{&st.acquire, `INSERT INTO bots (name, epoch, acquired_at) VALUES (?, 1, ?)
			ON CONFLICT (name) DO UPDATE SET epoch = epoch + 1, acquired_at = excluded.acquired_at
			RETURNING epoch`},
		{&st.addMove, `INSERT OR REPLACE INTO moved_chats (bot, from_chat, to_chat) VALUES (?, ?, ?)`},
		{&st.markDead, `INSERT INTO dead_targets (bot, chat, reason, code, since, at, count, probe_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET reason = excluded.reason, code = excluded.code, at = excluded.at,
				count = excluded.count, probe_at = excluded.probe_at`},
		{&st.revive, `DELETE FROM dead_targets WHERE bot = ? AND chat = ?`},
		{&st.anchorState, `INSERT INTO rate_limit_state (scope, tokens, ceiling, last_refill, penalty_until, penalty_for, clean)
			VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET tokens = excluded.tokens, ceiling = excluded.ceiling, last_refill = excluded.last_refill,
				penalty_until = excluded.penalty_until, penalty_for = excluded.penalty_for, clean = excluded.clean`},
		{&st.clearChannels, `DELETE FROM rate_limit_channel WHERE scope = ?`},
		{&st.anchorChannel, `INSERT INTO rate_limit_channel
			(scope, channel, method, at, delay_until, rule_until, penalty_until, penalty_for)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET at = excluded.at, delay_until = excluded.delay_until,
				rule_until = excluded.rule_until, penalty_until = excluded.penalty_until, penalty_for = excluded.penalty_for`},
		{&st.endTurn, `UPDATE events SET state = ?, ended_at = ?, reason = ? WHERE id = ? AND state <= 2`},
		{&st.admit, `UPDATE events SET state = 2 WHERE id = ? AND state = 1`},
		{&st.beginTurn, `UPDATE events SET state = 2, attempt = attempt + 1 WHERE id = ? AND state <= 2 RETURNING attempt`},
		{&st.insertEvent, `INSERT INTO events (bot, event_id, state, received_at, ended_at, body) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT DO NOTHING`},
		{&st.eventByPlatformsID, `SELECT id FROM events WHERE bot = ? AND event_id = ?`},
	}
}

func (st *statements) close() error {
	var errs []error
	for _, stmt := range st.all {
		errs = append(errs, stmt.close())
	}
	st.all = nil
	return errors.Join(errs...)
}
