package policy

import (
	"fmt"
	"sync"
	"time"
)

// Notices says whether an identity that is refused is to be told so: once per
// window and scope. It is safe for concurrent use and remembers 100,000
// identities; as long as that many were told within their windows, nobody else is told.
type Notices struct {
	window int64

	mu    sync.Mutex
	store *store
}

// NewNotices returns notices with that window, which must be more than 0.
func NewNotices(window time.Duration) (*Notices, error) {
	if window <= 0 || window > maxDuration {
		return nil, fmt.Errorf("new notices: window %v is not between 1ns and %v", window, maxDuration)
	}
	return &Notices{window: int64(window), store: newStore(maxIdentities)}, nil
}

// Due is true if the identity is to be told now, and counts it as told.
func (n *Notices) Due(q Query) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.store
	t, ok := s.reading(q.Now)
	if !ok {
		return false
	}
	hash := s.hash(q.Scope, q.Identity)
	place, known := s.find(hash)
	if known {
		e := s.entry(place)
		if t-e.at < n.window {
			return false
		}
		e.at = t
		s.move(place, e, below)
		return true
	}
	place, ok = s.fresh()
	if !ok {
		oldest := s.lists[below].oldest
		if t-s.entry(oldest).at < n.window {
			return false
		}
		s.giveUp(oldest)
		place, _ = s.fresh()
	}
	s.add(hash, place).at = t
	return true
}
