-- Entries learn who replays whom, what they take the place of, what the caller
-- handed over, and who has seen them. The table is made anew, so that the small
-- columns stand before the bodies: a reader of the former never walks through
-- the pages of the latter.

-- +goose Up
CREATE TABLE entries_new (
    id               INTEGER PRIMARY KEY,
    bot              TEXT    NOT NULL,
    chat             TEXT    NOT NULL,
    thread           TEXT    NOT NULL,
    state            INTEGER NOT NULL,
    priority         INTEGER NOT NULL,
    idem_key         TEXT,
    fingerprint      BLOB,
    supersede        TEXT    NOT NULL DEFAULT '',
    on_uncertain     INTEGER NOT NULL DEFAULT 0,
    replay_of        INTEGER NOT NULL DEFAULT 0, -- an id, also when its entry is gone
    replayed_by      INTEGER NOT NULL DEFAULT 0, -- the same
    outside          INTEGER NOT NULL DEFAULT 0, -- 1: stored by a process without an owner, and not adopted yet
    told             INTEGER NOT NULL DEFAULT 0, -- 1: somebody was told of this dead letter
    not_before       INTEGER NOT NULL,
    expires_at       INTEGER NOT NULL,
    due              INTEGER NOT NULL DEFAULT 0,
    attempts         INTEGER NOT NULL DEFAULT 0,
    uncertain        INTEGER NOT NULL DEFAULT 0,
    degraded         INTEGER NOT NULL DEFAULT 0,
    may_be_duplicate INTEGER NOT NULL DEFAULT 0,
    created_at       INTEGER NOT NULL,
    ended_at         INTEGER NOT NULL DEFAULT 0,
    reason           TEXT    NOT NULL DEFAULT '',
    receipts         TEXT    NOT NULL DEFAULT '', -- one JSON string a line
    log              TEXT    NOT NULL DEFAULT '', -- one JSON object a line
    source           TEXT    NOT NULL DEFAULT '', -- JSON, empty where the parts say it all
    parts            TEXT    NOT NULL             -- JSON
) STRICT;

INSERT INTO entries_new (id, bot, chat, thread, state, priority, idem_key, fingerprint, not_before, expires_at, due, attempts,
    uncertain, degraded, may_be_duplicate, created_at, ended_at, reason, receipts, log, parts)
SELECT id, bot, chat, thread, state, priority, idem_key, fingerprint, not_before, expires_at, due, attempts,
    uncertain, degraded, may_be_duplicate, created_at, ended_at, reason, receipts, log, parts FROM entries ORDER BY id;

DROP TABLE entries;
ALTER TABLE entries_new RENAME TO entries;

-- States 1 to 3 are pending, 5 is a dead letter. Every index ends with the id,
-- so new entries of a bot come at the end of its part.
CREATE INDEX entries_pending ON entries (bot, outside) WHERE state <= 3;
CREATE INDEX entries_dead ON entries (state) WHERE state = 5;
CREATE INDEX entries_untold ON entries (state) WHERE state = 5 AND told = 0;
CREATE UNIQUE INDEX entries_key ON entries (idem_key) WHERE idem_key IS NOT NULL;
