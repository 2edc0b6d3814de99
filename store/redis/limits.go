// Package redis keeps the limits that several processes share on a Redis
// server, for processes on several machines.
package redis

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/chatgateway/gateway/limiter"
)

//go:embed limits.lua
var limitsScript string

const (
	// maxChannels bounds the channels of one scope, as a limiter does in memory.
	maxChannels = 65536 + 4096
	maxMethods  = 1024
	prefix      = "gateway:limits:"
)

var errAddress = errors.New("the address must read redis://[user:password@]host:port[/database], or rediss:// for TLS")

// Limits is the shared state of limiters on a server: a limiter.Store. Each
// step is one call of a script there, by the server's clock, in whole
// microseconds. It is safe for concurrent use.
//
// A server whose clock is set forward fills the buckets once. One that lost
// what it knew starts with empty buckets, and without penalties: keep its data
// on disk (appendonly) if those must survive its restart. The keys of a scope begin
// with gateway:limits:{scope}, and expire 40 days after their last use.
type Limits struct {
	client      *redis.Client
	script      *redis.Script
	maxChannels int
	maxMethods  int
}

var _ limiter.Store = (*Limits)(nil)

// OpenLimits connects to the server at the address. A server that doesn't
// answer is an error; the address, which may hold a password, is in none.
func OpenLimits(ctx context.Context, address string) (*Limits, error) {
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, fmt.Errorf("shared limits on Redis: %w", errAddress)
	}
	options.ContextTimeoutEnabled = true
	options.MaxRetries = -1 // a step that was made and not heard of must not be made again
	l := &Limits{client: redis.NewClient(options), script: redis.NewScript(limitsScript), maxChannels: maxChannels, maxMethods: maxMethods}
	if err := l.client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("shared limits on Redis at %s: %w", options.Addr, err), l.client.Close())
	}
	return l, nil
}

// Close ends the connections. Everything that asks must have stopped.
func (l *Limits) Close() error { return l.client.Close() }

// Reserve takes a slot in every bucket of the ask, or in none.
func (l *Limits) Reserve(ctx context.Context, a limiter.Ask) (limiter.Answer, error) {
	v, err := l.run(ctx, "reserve", a)
	if err != nil {
		return limiter.Answer{}, err
	}
	if len(v) != 5 {
		return limiter.Answer{}, fmt.Errorf("reserve: the script on Redis says %v", v)
	}
	answer := limiter.Answer{Granted: v[0] == 1, Wait: fromMicros(v[1]), Ticket: limiter.Ticket{Seq: v[3], Shared: v[4] == 1}}
	switch v[2] {
	case 1:
		answer.Blocked.Method = a.Call.Method
	case 2:
		answer.Blocked = limiter.Bucket{Channel: a.Call.Channel, Method: a.Call.Method}
	case 3:
		answer.Blocked.Channel = a.Call.Channel
	}
	return answer, nil
}

// Cancel gives back what the reservation took, at most.
func (l *Limits) Cancel(ctx context.Context, a limiter.Ask, t limiter.Ticket) error {
	shared := 0
	if t.Shared {
		shared = 1
	}
	_, err := l.run(ctx, "cancel", a, t.Seq, shared, 0)
	return err
}

// Penalise closes the bucket for d at least.
func (l *Limits) Penalise(ctx context.Context, a limiter.Ask, b limiter.Bucket, d time.Duration) error {
	a.Call.Channel, a.Call.Method = b.Channel, b.Method
	_, err := l.run(ctx, "penalise", a, b.Channel, b.Method, micros(d))
	return err
}

// Peek returns what a reservation would find.
func (l *Limits) Peek(ctx context.Context, a limiter.Ask) (limiter.Standing, error) {
	v, err := l.run(ctx, "peek", a)
	if err != nil {
		return limiter.Standing{}, err
	}
	if len(v) != 8 {
		return limiter.Standing{}, fmt.Errorf("peek: the script on Redis says %v", v)
	}
	return limiter.Standing{
		Token: fromMicros(v[0]), Ceiling: fromMicros(v[1]), Delay: fromMicros(v[2]), Rule: fromMicros(v[3]),
		Closed: fromMicros(v[4]), Method: fromMicros(v[5]), ChannelMethod: fromMicros(v[6]), Channel: fromMicros(v[7]),
	}, nil
}

// Reset forgets everything of the scope but the number of its last reservation.
func (l *Limits) Reset(ctx context.Context, scope string) error {
	_, err := l.run(ctx, "reset", limiter.Ask{Scope: scope})
	return err
}

// run runs the script; more are its arguments 15 to 17.
func (l *Limits) run(ctx context.Context, op string, a limiter.Ask, more ...any) ([]int64, error) {
	at := int64(0)
	if !a.At.IsZero() {
		at = a.At.UnixMicro()
	}
	args := []any{op, at, a.Call.Channel, a.Call.Method, a.Call.Cost, mode(a.Mode)}
	for _, r := range []limiter.Rule{a.Token, a.Ceiling, a.Delay, a.Rule} {
		args = append(args, micros(r.Every), r.Burst)
	}
	args = append(args, more...)
	for len(args) < 17 {
		args = append(args, 0)
	}
	args = append(args, l.maxChannels, l.maxMethods)
	key := prefix + "{" + a.Scope + "}"
	v, err := l.script.Run(ctx, l.client, []string{key, key + ":channels", key + ":idle", key + ":methods"}, args...).Int64Slice()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("%s on Redis: %w", op, err)
	}
	return v, nil
}

// mode is the script's word for it.
func mode(m limiter.Mode) string {
	switch m {
	case limiter.Ahead:
		return "ahead"
	case limiter.Take:
		return "take"
	case limiter.Try:
	}
	return "try"
}

// micros rounds up: a bucket never fills faster than it should.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// fromMicros is the inverse; what is negative never ends.
func fromMicros(us int64) time.Duration {
	if us < 0 {
		return limiter.Never
	}
	return time.Duration(us) * time.Microsecond
}
