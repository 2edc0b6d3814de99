package policy

// SetBounds makes the policy small, so that a test reaches its bounds.
func (p *SlidingWindowRateLimitPolicy) SetBounds(identities uint32, stamps int) {
	p.store = newStore(identities)
	if p.logs != nil {
		p.logs.most = stamps
	}
}

// Stamps returns the room in all logs.
func (p *SlidingWindowRateLimitPolicy) Stamps() int { return p.logs.total }

// SetBound makes the notices small.
func (n *Notices) SetBound(identities uint32) { n.store = newStore(identities) }
