// Package policy answers whether somebody may do something now: the limit on
// what comes in, as package limiter is the one on what goes out.
//
// RateLimitPolicy is the contract; SlidingWindowRateLimitPolicy is the
// built-in one. Guard makes any policy safe to call, and Notices says whether
// somebody who is refused is to be told.
package policy

import (
	"context"
	"errors"
	"time"
)

// RateLimitPolicy decides about one event. Check is called once per turn; an
// event that it allows is counted. It must return. Unless the policy is a
// ConcurrentPolicy, it is called by one goroutine at a time.
//
// A policy reclaims by itself what it remembers of identities that stay away.
type RateLimitPolicy interface {
	Check(ctx context.Context, q Query) (Decision, error)
}

// ConcurrentPolicy is a policy that may say that Check is safe for concurrent use.
type ConcurrentPolicy interface {
	RateLimitPolicy
	// ConcurrentSafe is asked once, before the first Check.
	ConcurrentSafe() bool
}

// Query is what a policy is asked. It has to be written with field names, so
// that fields can be added.
type Query struct {
	_ struct{}

	// Identity is who asks.
	Identity string
	// Scope is what for: the same identity is counted apart in each scope.
	Scope string
	// Now is when.
	Now time.Time
}

// Decision is a policy's answer. The zero value refuses.
type Decision struct {
	Allowed bool
	// RetryAfter is when to come back, if refused; zero if that is not known.
	RetryAfter time.Duration
}

// ErrNoTime is the error of a Query without a time.
var ErrNoTime = errors.New("the query has no time")
