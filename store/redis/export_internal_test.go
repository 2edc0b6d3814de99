package redis

// SetBounds changes how many channels and penalties on methods are kept of a scope.
func (l *Limits) SetBounds(channels, methods int) { l.maxChannels, l.maxMethods = channels, methods }
