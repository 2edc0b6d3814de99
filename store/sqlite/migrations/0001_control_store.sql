-- The control store: one database for everything that must survive a restart.
-- Times are microseconds since 1970, 0 for none.

-- +goose Up
CREATE TABLE bots (
    name        TEXT PRIMARY KEY,
    epoch       INTEGER NOT NULL,
    acquired_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE entries (
    id               INTEGER PRIMARY KEY,
    bot              TEXT    NOT NULL,
    chat             TEXT    NOT NULL,
    thread           TEXT    NOT NULL,
    state            INTEGER NOT NULL,
    priority         INTEGER NOT NULL,
    idem_key         TEXT,
    fingerprint      BLOB,
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
    parts            TEXT    NOT NULL             -- JSON
) STRICT;

-- States 1 to 3 are pending. The chat comes before the id, so that giving up on
-- one chat, or moving it, does not read the whole backlog.
CREATE INDEX entries_pending ON entries (bot, chat, id) WHERE state <= 3;
CREATE UNIQUE INDEX entries_key ON entries (idem_key) WHERE idem_key IS NOT NULL;

CREATE TABLE dead_targets (
    bot      TEXT    NOT NULL,
    chat     TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    code     TEXT    NOT NULL,
    since    INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    count    INTEGER NOT NULL,
    probe_at INTEGER NOT NULL,
    PRIMARY KEY (bot, chat)
) STRICT, WITHOUT ROWID;

CREATE TABLE moved_chats (
    id        INTEGER PRIMARY KEY, -- their order, which a clock can't tell
    bot       TEXT    NOT NULL,
    from_chat TEXT    NOT NULL,
    to_chat   TEXT    NOT NULL,
    UNIQUE (bot, from_chat)
) STRICT;

CREATE TABLE rate_limit_state (
    scope         TEXT    PRIMARY KEY,
    tokens        REAL    NOT NULL,
    ceiling       REAL    NOT NULL,
    last_refill   INTEGER NOT NULL,
    penalty_until INTEGER NOT NULL,
    penalty_for   INTEGER NOT NULL, -- microseconds
    clean         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE rate_limit_channel (
    scope         TEXT    NOT NULL,
    channel       TEXT    NOT NULL,
    method        TEXT    NOT NULL,
    at            INTEGER NOT NULL,
    delay_until   INTEGER NOT NULL,
    rule_until    INTEGER NOT NULL,
    penalty_until INTEGER NOT NULL,
    penalty_for   INTEGER NOT NULL, -- microseconds
    PRIMARY KEY (scope, channel, method)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    id          INTEGER PRIMARY KEY,
    bot         TEXT    NOT NULL,
    event_id    TEXT    NOT NULL,
    state       INTEGER NOT NULL, -- 1 accepted, 2 admitted; then 11 done, 12 denied, 13 dead
    attempt     INTEGER NOT NULL DEFAULT 0,
    received_at INTEGER NOT NULL,
    ended_at    INTEGER NOT NULL DEFAULT 0,
    reason      TEXT    NOT NULL DEFAULT '',
    body        TEXT    NOT NULL, -- JSON
    UNIQUE (bot, event_id)
) STRICT;

CREATE INDEX events_unfinished ON events (bot, id) WHERE state <= 2;
