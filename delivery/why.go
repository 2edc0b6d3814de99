package delivery

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

// Obstacle is one thing that keeps an entry from being sent now.
type Obstacle struct {
	// Name is one of owner, hold, login, distrust, not_before, behind, busy,
	// retry, proof, limit, penalty, turn.
	Name   string
	Detail string
	Until  time.Time // zero: until something happens that has no time
}

// Explanation says what an entry, or a target, waits for.
type Explanation struct {
	Target    chat.Target
	Pending   int        // entries of the target that have not ended
	Ahead     int        // of them before the entry
	Obstacles []Obstacle // empty: nothing is in the way
	// Estimate is when the entry goes, if nothing else happens; zero if that
	// can't be told.
	Estimate time.Time
}

// Why says what a pending entry waits for. For one that has ended the
// explanation is empty: its time line tells.
func (r *DeliveryRouter) Why(ctx context.Context, id outbox.ID) (outbox.Entry, Explanation, error) {
	e, err := r.find(ctx, id)
	if err != nil {
		return e, Explanation{}, fmt.Errorf("why: %w", err)
	}
	if !e.State.Pending() {
		return e, Explanation{Target: e.Target}, nil
	}
	r.mu.RLock()
	b, known := r.bots[e.Target.Bot]
	r.mu.RUnlock()
	if !known {
		return e, Explanation{Target: e.Target, Obstacles: []Obstacle{{Name: "owner", Detail: "the bot is not configured here"}}}, nil
	}
	return e, b.why(e.Target, id), nil
}

// WhyTarget says what the next entry of a target waits for.
func (r *DeliveryRouter) WhyTarget(t chat.Target) (Explanation, error) {
	b, err := r.bot(t.Bot)
	if err != nil {
		return Explanation{}, fmt.Errorf("why: %w", err)
	}
	return b.why(t, 0), nil
}

// Limits tells how full a bot's buckets are.
func (r *DeliveryRouter) Limits(name chat.BotName) (limiter.Levels, error) {
	b, err := r.bot(name)
	if err != nil {
		return limiter.Levels{}, err
	}
	return b.limiter.Levels(time.Now()), nil
}

// why explains an entry; 0 stands for the first of its lane.
func (b *bot) why(t chat.Target, id outbox.ID) Explanation {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	x := Explanation{Target: b.resolve(t)}
	if !b.owned {
		x.Obstacles = append(x.Obstacles, Obstacle{Name: "owner", Detail: "another process sends for the bot, or none"})
		return x
	}
	x.Obstacles = b.whyBot()
	if d, ok := b.dead[x.Target.Chat]; ok && !d.probing && now.Before(d.ProbeAt) {
		x.Obstacles = append(x.Obstacles, Obstacle{Name: "dead_target", Detail: d.Reason, Until: d.ProbeAt})
	}
	l, ok := b.lanes[x.Target]
	if !ok {
		return x
	}
	x.Pending = len(l.items) + len(l.future)
	if at := slices.IndexFunc(l.future, func(it item) bool { return it.id == id }); at >= 0 {
		x.Ahead = len(l.items)
		x.Obstacles = append(x.Obstacles, Obstacle{Name: "not_before", Detail: "its time has not come", Until: time.UnixMicro(l.future[at].due)})
	} else if id != 0 {
		x.Ahead = max(slices.IndexFunc(l.items, func(it item) bool { return it.id == id }), 0)
	}
	b.whyLane(&x, l, now)
	b.estimate(&x, l, now)
	return x
}

// whyBot lists what holds the whole bot. The caller holds the mutex.
func (b *bot) whyBot() []Obstacle {
	var found []Obstacle
	if b.onHold {
		found = append(found, Obstacle{Name: "hold", Detail: "an operator holds the bot"})
	}
	if b.paused != nil {
		found = append(found, Obstacle{Name: "login", Detail: b.paused.Error()})
	}
	if b.hold.on {
		found = append(found, Obstacle{Name: "distrust", Detail: "the platform knows none of the bot's chats; one message a minute finds out", Until: b.hold.until})
	}
	return found
}

// whyLane lists what holds the lane. The caller holds the mutex.
func (b *bot) whyLane(x *Explanation, l *lane, now time.Time) {
	add := func(name, detail string, until time.Time) {
		x.Obstacles = append(x.Obstacles, Obstacle{Name: name, Detail: detail, Until: until})
	}
	if x.Ahead > 0 {
		add("behind", fmt.Sprintf("%d messages of the same target go first", x.Ahead), time.Time{})
	}
	if l.busy {
		add("busy", "a call to the target is being made", time.Time{})
		return
	}
	if l.doubtful {
		add("proof", "its repeat waits until the platform answers", time.Time{})
	}
	limits := b.limiter.Explain(now, limiter.Call{Channel: string(l.target.Chat), Method: sendMethod})
	if l.until.After(now) && !l.doubtful && len(limits) == 0 {
		add("retry", "it failed and is tried again", l.until)
	}
	for _, lim := range limits {
		name := "limit"
		if lim.Penalty {
			name = "penalty"
		}
		add(name, lim.Name, now.Add(lim.Wait))
	}
	if l.list != nil {
		if n := b.before(l); n > 0 {
			add("turn", fmt.Sprintf("%d other targets have their turn first", n), time.Time{})
		}
	}
}

// before counts the lanes that get a slot before l: those of higher priorities
// and the earlier ones of its own. The caller holds the mutex.
func (b *bot) before(l *lane) int {
	n := 0
	for p := outbox.Reply; p > l.priority(); p-- {
		for other := b.ready[p].first; other != nil; other = other.next {
			n++
		}
	}
	for other := b.ready[l.priority()].first; other != nil && other != l; other = other.next {
		n++
	}
	return n
}

// estimate adds up what is known of the waits: the longest obstacle, a slot for
// each target whose turn is first, and the chat's own gap for each message
// ahead. The caller holds the mutex.
func (b *bot) estimate(x *Explanation, l *lane, now time.Time) {
	at := now
	for _, o := range x.Obstacles {
		switch o.Name {
		case "hold", "login", "proof":
			return
		}
		if o.Until.After(at) {
			at = o.Until
		}
	}
	cfg := b.limiter.Config()
	slot := time.Duration(float64(time.Second) / cfg.MessagesPerSecond)
	if l.list != nil {
		at = at.Add(time.Duration(b.before(l)) * slot)
	}
	x.Estimate = at.Add(time.Duration(x.Ahead) * max(slot, cfg.PerChannelDelay))
}
