package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
)

// typingMethod names a typing call in the limiter.
const typingMethod = "typing"

// Typing shows in a chat that the bot is writing, if the bot has a call to
// spare: such a call is never queued and never waits. It is left out, and shown
// is false, while anything waits for a slot, while less than half of the bot's
// bucket is there, and where the platform can't show it.
func (r *DeliveryRouter) Typing(ctx context.Context, t chat.Target) (shown bool, err error) {
	b, err := r.bot(t.Bot)
	if err != nil {
		return false, err
	}
	if b.typer == nil {
		return false, nil
	}
	return b.cosmetic(ctx, t, typingMethod, func(ctx context.Context, t chat.Target) error { return b.typer.Typing(ctx, t) })
}

// cosmetic makes a call that nobody misses, or leaves it out.
func (b *bot) cosmetic(ctx context.Context, t chat.Target, method string, call func(context.Context, chat.Target) error) (bool, error) {
	b.mu.Lock()
	t = b.resolve(t)
	now := time.Now()
	ok := b.sends() && !b.hold.on && b.dead[t.Chat] == nil && !b.anyReady() && b.spare(now)
	if ok {
		_, _, ok = b.limiter.TryReserve(now, limiter.Call{Channel: string(t.Chat), Method: method})
	}
	if !ok {
		b.mu.Unlock()
		return false, nil
	}
	b.active++
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.finished()
	}()
	ctx, cancel := context.WithTimeout(ctx, b.opts.SendTimeout)
	defer cancel()
	err := call(ctx, t)
	if fail, is := errors.AsType[*chat.SendError](err); is && fail.Kind == chat.RateLimited {
		b.penaliseCosmetic(t, method, fail)
	}
	return err == nil, err
}

// spare reports whether at least half of the bucket is there. The caller holds
// the mutex.
func (b *bot) spare(now time.Time) bool {
	levels := b.limiter.Levels(now)
	return levels.Tokens >= float64(levels.Depth)/2
}

func (b *bot) penaliseCosmetic(t chat.Target, method string, fail *chat.SendError) {
	bucket := limiter.Bucket{}
	switch fail.Scope {
	case chat.ScopeChannel:
		bucket.Channel = string(t.Chat)
	case chat.ScopeMethod:
		bucket.Method = method
	case chat.ScopeBot:
	}
	b.limiter.PenaliseAt(time.Now(), bucket, max(fail.RetryAfter, time.Second))
}
