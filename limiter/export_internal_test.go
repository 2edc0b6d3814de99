package limiter

// Tracked returns how many channels are remembered.
func (l *RateLimiter) Tracked() int { return l.table.n }
