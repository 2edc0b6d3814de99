-- The shared state of limiters (limits.go). Times are nanoseconds: "reading" is of
-- a clock that never steps back, and all ends of penalties and fillings are such readings.
CREATE TABLE IF NOT EXISTS limit_scopes (
	scope TEXT PRIMARY KEY,
	reading INTEGER NOT NULL,
	wall INTEGER NOT NULL,   -- the wall clock at that reading, Unix time
	uptime INTEGER NOT NULL, -- of the system, at that reading
	run TEXT NOT NULL,       -- of the system; '' if it is not known
	seq INTEGER NOT NULL,    -- of the last reservation
	swept INTEGER NOT NULL,  -- the reservation after which idle channels were forgotten
	token_full INTEGER NOT NULL, token_since INTEGER NOT NULL, token_last INTEGER NOT NULL, token_low INTEGER NOT NULL,
	ceiling_full INTEGER NOT NULL, ceiling_since INTEGER NOT NULL, ceiling_last INTEGER NOT NULL, ceiling_low INTEGER NOT NULL,
	closed INTEGER NOT NULL, -- the end of the penalty on the whole bucket
	channels INTEGER NOT NULL -- how many rows of limit_channels are the scope's
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS limit_channels (
	scope TEXT NOT NULL,
	channel TEXT NOT NULL,
	delay_full INTEGER NOT NULL, delay_since INTEGER NOT NULL, delay_last INTEGER NOT NULL, delay_low INTEGER NOT NULL,
	rule_full INTEGER NOT NULL, rule_since INTEGER NOT NULL, rule_last INTEGER NOT NULL, rule_low INTEGER NOT NULL,
	closed INTEGER NOT NULL,
	PRIMARY KEY (scope, channel)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS limit_methods (
	scope TEXT NOT NULL,
	channel TEXT NOT NULL, -- '' for the method in all channels
	method TEXT NOT NULL,
	closed INTEGER NOT NULL,
	PRIMARY KEY (scope, channel, method)
) STRICT, WITHOUT ROWID;
