package delivery

import (
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

const (
	// lowerShare is the share of the slots that lower priorities keep while a
	// higher one waits: one in ten.
	lowerShare = 10

	// farOff is when the loop looks again though nothing is due.
	farOff = time.Hour
)

// lane gives the target's lane, a new one if there is none. The caller holds
// the mutex.
func (b *bot) lane(t chat.Target) *lane {
	l, ok := b.lanes[t]
	if !ok {
		l = &lane{target: t}
		b.keepLane(l)
	}
	return l
}

// keepLane makes a lane known under its target. The caller holds the mutex.
func (b *bot) keepLane(l *lane) {
	b.lanes[l.target] = l
	if l.target.Thread != "" {
		b.threads[l.target.Chat] = append(b.threads[l.target.Chat], l)
	}
}

// dropLane forgets a lane. The caller holds the mutex.
func (b *bot) dropLane(l *lane) {
	delete(b.lanes, l.target)
	if l.target.Thread == "" {
		return
	}
	left := slices.DeleteFunc(b.threads[l.target.Chat], func(other *lane) bool { return other == l })
	if len(left) == 0 {
		delete(b.threads, l.target.Chat)
		return
	}
	b.threads[l.target.Chat] = left
}

// lanesOf gives all lanes of a chat. The caller holds the mutex.
func (b *bot) lanesOf(id chat.ChatID) []*lane {
	lanes := slices.Clone(b.threads[id])
	if l, ok := b.lanes[chat.Target{Bot: b.name, Chat: id}]; ok {
		lanes = append(lanes, l)
	}
	return lanes
}

// place puts a lane where it belongs after a change: among those ready for a
// slot, among those that wait for a time, or away if it is empty. The caller
// holds the mutex.
func (b *bot) place(l *lane, now time.Time) {
	if l.busy {
		b.unlist(l)
		return
	}
	l.join(now)
	switch {
	case len(l.items) > 0 && !l.until.After(now):
		b.makeReady(l)
	case len(l.items) > 0:
		b.park(l, l.until)
	case len(l.future) > 0:
		b.park(l, time.UnixMicro(l.future[0].due))
	default:
		b.unlist(l)
		if l.arriving == 0 && b.lanes[l.target] == l {
			b.dropLane(l)
		}
	}
}

// current gives the lane that stands for l's target now. It is another one
// after l's chat has moved to one that has a lane already.
func (b *bot) current(l *lane) *lane {
	if newer, ok := b.lanes[l.target]; ok {
		return newer
	}
	b.keepLane(l)
	return l
}

func (b *bot) makeReady(l *lane) {
	list := &b.ready[l.priority()]
	if l.list == list {
		return
	}
	b.unlist(l)
	list.append(l)
	b.notify()
}

func (b *bot) park(l *lane, until time.Time) {
	b.unlist(l)
	l.wakeAt = until
	heap.Push(&b.parked, l)
	b.notify()
}

func (b *bot) unlist(l *lane) {
	if l.list != nil {
		l.list.remove(l)
	}
	if l.parked > 0 {
		heap.Remove(&b.parked, l.parked-1)
	}
}

// pick takes slots for as many lanes as may send now, the most urgent first,
// and marks them busy. A lane whose chat has to wait is set aside until then;
// one that waits costs nothing. The caller holds the mutex and commits the
// flights as sending.
func (b *bot) pick(now time.Time) []*flight {
	if !b.sends() {
		return nil
	}
	b.promote(now)
	var picked []*flight
	for len(b.seats) > 0 && !b.held(now) {
		l := b.nextLane()
		if l == nil {
			break
		}
		slot, next, ok := b.limiter.TryReserve(now, limiter.Call{Channel: string(l.target.Chat), Method: sendMethod})
		if !ok && slot.Blocked() == (limiter.Bucket{}) {
			b.opens = next
			b.waits(l, next.Sub(now))
			break
		}
		if !ok {
			b.waits(l, next.Sub(now))
			l.until = next
			b.park(l, next)
			continue
		}
		b.countSlot(l)
		b.unlist(l)
		l.busy = true
		b.active++
		it := l.items[0]
		picked = append(picked, b.board(&flight{lane: l, target: l.target, id: it.id, entry: it.body, slot: slot, at: now}))
	}
	return picked
}

// sends reports whether the bot makes calls at all. The caller holds the mutex.
func (b *bot) sends() bool {
	return b.owned && b.adopted && !b.stopping && !b.onHold && b.paused == nil
}

// refusal is a wait that the limiter imposed on a lane.
type refusal struct {
	target chat.Target
	wait   time.Duration
}

// waits remembers for the debug log that the limiter refused a lane. The caller
// holds the mutex; the loop writes it down without.
func (b *bot) waits(l *lane, wait time.Duration) {
	const most = 100 // between two looks of the loop
	if b.verbose && len(b.refused) < most {
		b.refused = append(b.refused, refusal{l.target, wait})
	}
}

// logWaits writes down what waits remembered.
func (b *bot) logWaits(ctx context.Context) {
	b.mu.Lock()
	refused := b.refused
	b.refused = nil
	b.mu.Unlock()
	for _, r := range refused {
		b.log.DebugContext(ctx, "rate limit: waiting", "channel", string(r.target.Chat), "wait", r.wait)
	}
}

// promote makes the lanes ready whose time has come.
func (b *bot) promote(now time.Time) {
	for len(b.parked) > 0 && !b.parked[0].wakeAt.After(now) {
		l := b.parked[0]
		b.unlist(l)
		b.place(l, now)
	}
	b.probeOutage(now)
}

// nextLane is the lane that has waited longest among the most urgent; every
// tenth slot goes to a lower priority instead, to each in its turn. It is nil
// if no lane is ready.
func (b *bot) nextLane() *lane {
	top := outbox.Reply
	for top > outbox.Bulk && b.ready[top].first == nil {
		top--
	}
	if b.passed >= lowerShare-1 {
		for _, p := range []outbox.Priority{b.lower - 1, outbox.Proactive, outbox.Bulk} {
			if p >= outbox.Bulk && p < top && b.ready[p].first != nil {
				return b.ready[p].first
			}
		}
	}
	return b.ready[top].first
}

// countSlot counts how long a lower priority than that of l, which got a slot,
// has waited.
func (b *bot) countSlot(l *lane) {
	if b.passed >= lowerShare-1 {
		b.passed, b.lower = 0, l.priority()
		return
	}
	for lower := outbox.Bulk; lower < l.priority(); lower++ {
		if b.ready[lower].first != nil {
			b.passed++
			return
		}
	}
	b.passed = 0
}

// nextLook is how long the loop may sleep if nothing else happens. The caller
// holds the mutex.
func (b *bot) nextLook(now time.Time) time.Duration {
	next := now.Add(farOff)
	if !b.sends() {
		return farOff
	}
	if len(b.parked) > 0 && b.parked[0].wakeAt.Before(next) {
		next = b.parked[0].wakeAt
	}
	switch {
	case !b.anyReady(), len(b.seats) == 0, b.hold.on && b.inFlight > 0:
	case b.hold.on && b.hold.until.After(b.opens):
		next = earlier(next, b.hold.until)
	default:
		next = earlier(next, b.opens)
	}
	if at, ok := b.nextProbe(); ok && at.Before(next) {
		next = at
	}
	if at, ok := b.askAt(); ok && at.Before(next) {
		next = at
	}
	return max(next.Sub(now), 0)
}

func earlier(a, c time.Time) time.Time {
	if c.Before(a) {
		return c
	}
	return a
}

func (b *bot) anyReady() bool {
	for p := range b.ready {
		if b.ready[p].first != nil {
			return true
		}
	}
	return false
}

// send commits flights that were picked as sending and makes their calls.
func (b *bot) send(calls context.Context, picked []*flight) {
	b.mu.Lock()
	batch := outbox.Batch{Owner: b.owner, At: time.Now(), Sending: ids(picked)}
	b.mu.Unlock()
	if _, err := b.commit(calls, batch); err != nil {
		b.giveUp(picked, err)
		return
	}
	b.spread(picked[1:])
	b.fly(calls, picked[0])
}

// spread hands committed flights to the loop.
func (b *bot) spread(flights []*flight) {
	if len(flights) == 0 {
		return
	}
	b.mu.Lock()
	b.launch = append(b.launch, flights...)
	b.mu.Unlock()
	b.notify()
}

// giveUp leaves flights whose commit failed for good: the bot is lost or the
// gateway stops. What is on disk decides after the next start.
func (b *bot) giveUp(flights []*flight, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range flights {
		b.cancel(f)
		b.finished()
	}
	b.lost(err)
}

func ids(flights []*flight) []outbox.ID {
	list := make([]outbox.ID, len(flights))
	for i, f := range flights {
		list[i] = f.id
	}
	return list
}
