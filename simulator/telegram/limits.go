package telegram

import "time"

// Rate is a bucket: one call each Every, and up to Burst at once after a rest.
type Rate struct {
	Every time.Duration
	Burst int
}

// Limits are the rate limits of one bot. A zero Rate or GroupMessages switches that single limit off.
type Limits struct {
	// Off switches all limits off, those on polling included.
	Off bool
	// Private is each private chat's bucket; sends and edits share it.
	Private Rate
	// GroupMessages is how many sends and edits one group takes in any GroupWindow.
	GroupMessages int
	GroupWindow   time.Duration
	// Global is the bot's bucket over all chats. Typing, reactions, deletions and button answers draw from it alone.
	Global Rate
	// Jitter is how far the network may move calls together before they count as too early.
	Jitter time.Duration
	// Absorb holds a call back in silence for up to this long in all, and answers 429 only beyond; 0 answers at once.
	Absorb time.Duration
	// Penalty is added to a running cooldown by every call that ignores it.
	Penalty time.Duration
	// Polling holds busy getUpdates loops back and limits setWebhook and close, as the platform does.
	Polling bool
}

// DefaultLimits are the platform's stated rates: 1/s in a private chat with a burst of 3, 20 in any 60 s in a group and
// 30/s over all chats (Bot API FAQ, "Broadcasting to users"; read 2026-11-30).
func DefaultLimits() Limits {
	return Limits{
		Private:       Rate{Every: time.Second, Burst: 3},
		GroupMessages: 20,
		GroupWindow:   time.Minute,
		Global:        Rate{Every: time.Second / 30, Burst: 30},
		Jitter:        100 * time.Millisecond,
		Polling:       true,
	}
}

// cost says which buckets a method draws from.
type cost int

const (
	costNone   cost = iota // reads and polling
	costGlobal             // acts, but puts no message into a chat
	costChat               // puts a message into a chat
)

// gcra is a bucket in integer arithmetic: tat is when it would be full again, in nanoseconds since 1970.
type gcra struct{ tat int64 }

// wait returns how long a call at now is too early; 0 or less means that it may go.
func (g *gcra) wait(now int64, r Rate) int64 {
	if r.Every <= 0 || r.Burst <= 0 {
		return 0
	}
	return g.tat - int64(r.Every)*int64(r.Burst-1) - now
}

func (g *gcra) take(now int64, r Rate) {
	if r.Every > 0 && r.Burst > 0 {
		g.tat = max(g.tat, now) + int64(r.Every)
	}
}

// window remembers the last accepted calls of a group, oldest first.
type window struct{ at []int64 }

func (w *window) wait(now int64, n int, span time.Duration) int64 {
	if n <= 0 || len(w.at) < n {
		return 0
	}
	return w.at[len(w.at)-n] + int64(span) - now
}

func (w *window) take(now int64, n int) {
	if n <= 0 {
		return
	}
	w.at = append(w.at, now)
	if len(w.at) > 2*n {
		w.at = append(w.at[:0], w.at[len(w.at)-n:]...)
	}
}

// cooldown is a time in which every call is refused.
type cooldown struct{ until int64 }

// strike returns how long the cooldown still lasts at now, after adding the penalty to a running one.
func (c *cooldown) strike(now int64, penalty time.Duration) int64 {
	if c.until <= now {
		return 0
	}
	c.until += int64(penalty)
	return c.until - now
}

func (c *cooldown) start(now int64, seconds int) {
	c.until = max(c.until, now+int64(seconds)*int64(time.Second))
}

// wholeSeconds rounds up to at least one second: the platform never names less.
func wholeSeconds(ns int64) int {
	return max(1, int((ns+int64(time.Second)-1)/int64(time.Second)))
}

// reserve takes a slot for the call from the buckets of its bot and chat. In absorb mode it may ask the dispatcher, by
// an error with hold set, to run the call again later.
func (s *Server) reserve(c *call, rm *room, k cost) *apiError {
	l := s.limits
	if k == costNone {
		return nil
	}
	now := c.now.UnixNano()
	if wait := c.bot.cool.strike(now, l.Penalty); wait > 0 {
		c.early = true
		return s.tooEarly(c, wait, nil)
	}
	chat := rm != nil && k == costChat
	if chat {
		if wait := rm.cool.strike(now, l.Penalty); wait > 0 {
			c.early = true
			return s.tooEarly(c, wait, nil)
		}
	}
	if l.Off {
		return nil
	}
	if chat {
		if wait := rm.wait(now, l); wait > int64(l.Jitter) {
			return s.tooEarly(c, wait, &rm.cool)
		}
	}
	if wait := c.bot.bucket.wait(now, l.Global); wait > int64(l.Jitter) {
		return s.tooEarly(c, wait, &c.bot.cool)
	}
	if chat {
		rm.take(now, l)
	}
	c.bot.bucket.take(now, l.Global)
	return nil
}

// tooEarly answers a call that has to wait: by holding it back while the absorb budget lasts, otherwise by a 429 that
// starts the cooldown.
func (s *Server) tooEarly(c *call, wait int64, cool *cooldown) *apiError {
	budget := s.limits.Absorb
	if c.method.name == "sendChatAction" {
		budget = min(budget, 2*time.Second) // Typing is worth nothing when it comes late (telegram-bot-api; read 2026-11-30).
	}
	if hold := time.Duration(wait); c.absorbed+hold <= budget {
		return &apiError{hold: hold}
	}
	seconds := wholeSeconds(wait)
	if cool != nil {
		cool.start(c.now.UnixNano(), seconds)
	}
	return errTooMany(seconds)
}

func (r *room) wait(now int64, l Limits) int64 {
	if r.kind == chatPrivate {
		return r.bucket.wait(now, l.Private)
	}
	return r.window.wait(now, l.GroupMessages, l.GroupWindow)
}

func (r *room) take(now int64, l Limits) {
	if r.kind == chatPrivate {
		r.bucket.take(now, l.Private)
		return
	}
	r.window.take(now, l.GroupMessages)
}
