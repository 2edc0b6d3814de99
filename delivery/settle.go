package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/render"
)

// maxLog bounds an entry's time line; its end is always noted.
const maxLog = 100

// repeatMark stands before a text that may be a repeat, with on_uncertain: label.
const repeatMark = "(may be a repeat) "

// fly makes a call and settles it; with the commit that settles it the bot may
// have picked the next ones, of which this goroutine makes the first.
func (b *bot) fly(calls context.Context, f *flight) {
	for f != nil {
		batch, next := b.attempt(calls, f)
		_, err := b.commit(calls, batch)
		b.mu.Lock()
		if err == nil { // otherwise the note still tells of it
			b.leaveSeat(f)
		}
		b.finished()
		b.mu.Unlock()
		if err != nil {
			b.giveUp(next, err)
			return
		}
		f = nil
		if len(next) > 0 {
			b.spread(next[1:])
			f = next[0]
		}
	}
}

// attempt makes the call of f and gives the batch that settles it, with the
// flights that it has room for.
func (b *bot) attempt(calls context.Context, f *flight) (outbox.Batch, []*flight) {
	if err := b.prepare(calls, f); errors.Is(err, errEnded) {
		return b.skip(f)
	} else if err != nil {
		return b.putBack(calls, f)
	}
	if e := f.entry; len(e.Receipts) == 0 && !e.ExpiresAt.IsZero() && !time.Now().Before(e.ExpiresAt) {
		f.slot.Cancel(time.Now())
		return b.settle(calls, f, outbox.Settlement{ID: f.id, State: outbox.Expired, Reason: "its deliver-by passed before it could be sent"}, nil)
	}
	if !b.announces && b.note(calls, f) != nil {
		return b.putBack(calls, f)
	}
	receipt, err := b.call(calls, f)
	now := time.Now()
	if err == nil {
		return b.settle(calls, f, delivered(f.entry, receipt, now), nil)
	}
	fail := sendError(err)
	switch {
	case fail == nil && calls.Err() != nil: // nothing was sent, and the gateway stops
		return b.putBack(calls, f)
	case fail == nil: // nothing was sent within the time for it
		fail = &chat.SendError{Kind: chat.Temporary, Err: err}
	}
	return b.settle(calls, f, b.opts.Rules.After(*f.entry, fail, now, random()), fail)
}

var (
	errStopping = errors.New("no new call is made")
	errEnded    = errors.New("the entry has ended already")
)

// prepare reads the body, and takes the slot anew if the old one is stale. It
// fails if no call is to be made.
func (b *bot) prepare(ctx context.Context, f *flight) error {
	if f.entry == nil {
		entries, err := b.box.Read(ctx, f.id)
		if err != nil {
			b.log.ErrorContext(ctx, "the message could not be read: it is tried again", "entry", f.id.String(), "err", err)
			return err
		}
		if len(entries) == 0 || !entries[0].State.Pending() {
			return errEnded
		}
		f.entry = &entries[0]
	}
	if time.Since(f.at) > staleSlot && !b.isStopping() {
		f.slot.Cancel(time.Now())
		ctx, cancel := context.WithTimeout(ctx, b.opts.SendTimeout) // a longer wait is the lane's
		defer cancel()
		slot, err := b.limiter.Reserve(ctx, limiter.Call{Channel: string(f.target.Chat), Method: sendMethod})
		if err != nil {
			return err
		}
		f.slot, f.at = slot, time.Now()
	}
	if b.isStopping() {
		return errStopping
	}
	return nil
}

// note writes down that the call of f leaves now.
func (b *bot) note(ctx context.Context, f *flight) error {
	err := b.box.Note(b.name, f.seat, outbox.Call{ID: f.id, Attempt: len(f.entry.Log)})
	if err != nil {
		b.log.ErrorContext(ctx, "the call could not be noted: it is tried again", "entry", f.id.String(), "err", err)
	}
	return err
}

// call makes one attempt. A panic of the adapter is an uncertain end.
func (b *bot) call(ctx context.Context, f *flight) (receipt chat.Receipt, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.SendTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			b.log.ErrorContext(ctx, "the adapter panicked", "entry", f.id.String(), "err", fmt.Sprint(p))
			err = &chat.SendError{Kind: chat.Uncertain, Err: errors.New("the adapter panicked")}
		}
	}()
	part := b.part(f)
	if b.announces {
		part.Leaving = func() {
			if b.note(ctx, f) != nil {
				cancel() // nothing has left yet
			}
		}
	}
	b.log.DebugContext(ctx, "attempt", "entry", f.id.String(), "target", f.target.String(), "attempt", len(f.entry.Log)+1)
	return b.adapter.Send(ctx, f.target, part)
}

// part is what goes out: plainer after the platform refused the markup, and
// marked as a possible repeat where that is asked for and fits.
func (b *bot) part(f *flight) chat.Part {
	e := f.entry
	i := len(e.Receipts)
	part := e.Parts[i]
	part.Key = e.ID.String() + "." + strconv.Itoa(i)
	if e.Degraded {
		part, _ = part.Plainer()
	}
	if a := part.Attachment; a != nil {
		part.Open = func() (io.ReadCloser, error) { return b.opts.Files.Open(a.Digest) }
	}
	if e.MayBeDuplicate && e.Uncertain > 0 && b.opts.Rules.For(*e).OnUncertain == outbox.Label && part.Attachment == nil {
		c := b.adapter.Capabilities(f.target)
		if marked := repeatMark + part.Text; render.Length(marked, c.TextUnit) <= c.MaxText {
			part.Text = marked
		}
	}
	return part
}

// delivered settles a part that was sent; the entry goes on with the next one,
// before everything else in its lane also after a restart.
func delivered(e *outbox.Entry, receipt chat.Receipt, now time.Time) outbox.Settlement {
	s := outbox.Settlement{
		ID: e.ID, State: outbox.Waiting, Due: now, Receipt: receipt, Delivered: true,
		Attempts: e.Attempts, MayBeDuplicate: e.MayBeDuplicate,
		Log: outbox.Attempt{At: now, Part: len(e.Receipts), Kind: outbox.Sent.String()},
	}
	if len(e.Receipts)+1 == len(e.Parts) {
		s.State, s.Due = outbox.Sent, time.Time{}
	}
	return s
}

// sendError gives the failure its one kind; nil means that surely nothing was
// sent because the context ended.
func sendError(err error) *chat.SendError {
	if fail, ok := errors.AsType[*chat.SendError](err); ok && fail.Kind != 0 {
		return fail
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return &chat.SendError{Kind: chat.Uncertain, Err: err}
}

// putBack settles a flight whose call was not made.
func (b *bot) putBack(ctx context.Context, f *flight) (outbox.Batch, []*flight) {
	f.slot.Cancel(time.Now())
	set := outbox.Settlement{ID: f.id, State: outbox.Queued, Due: time.Now().Add(diskPause)}
	if e := f.entry; e != nil {
		set.Attempts, set.Uncertain, set.Degraded, set.MayBeDuplicate = e.Attempts, e.Uncertain, e.Degraded, e.MayBeDuplicate
		return b.settle(ctx, f, set, nil)
	}
	// Nothing of the entry is known, so nothing of it may be overwritten: it
	// stays as sending on disk, and is looked at again.
	b.mu.Lock()
	defer b.mu.Unlock()
	batch := outbox.Batch{Owner: b.owner, At: time.Now()}
	next := b.next(f, set, &batch)
	return batch, next
}

// skip lets go of a flight whose entry has ended on disk by another hand.
func (b *bot) skip(f *flight) (outbox.Batch, []*flight) {
	f.slot.Cancel(time.Now())
	b.mu.Lock()
	defer b.mu.Unlock()
	batch := outbox.Batch{Owner: b.owner, At: time.Now()}
	next := b.next(f, outbox.Settlement{ID: f.id, State: outbox.Cancelled}, &batch)
	return batch, next
}

// settle applies the end of an attempt in memory, picks what can go next, and
// gives the batch that makes both durable. It is one step under the mutex, so
// that nothing is picked between an answer and what follows from it.
func (b *bot) settle(ctx context.Context, f *flight, set outbox.Settlement, fail *chat.SendError) (outbox.Batch, []*flight) {
	now := time.Now()
	if len(f.entry.Log) >= maxLog && set.State.Pending() {
		set.Log = outbox.Attempt{}
	}
	b.mu.Lock()
	batch := outbox.Batch{Owner: b.owner, At: now}
	wasPaused, wasHeld := b.paused != nil, b.hold.on
	b.consequence(f, &set, fail, &batch, now)
	nowPaused, nowHeld := b.paused != nil && !wasPaused, b.hold.on && !wasHeld
	batch.Settled = []outbox.Settlement{set}
	remember(f.entry, set)
	next := b.next(f, set, &batch)
	b.mu.Unlock()

	b.logEnd(ctx, f, set, fail)
	if nowPaused {
		b.tellPaused(ctx, fail)
	}
	if nowHeld {
		b.logHold(ctx)
	}
	return batch, next
}

// next frees the lane of a flight that has ended, and adds to the batch what
// can go now. The caller holds the mutex.
func (b *bot) next(f *flight, set outbox.Settlement, batch *outbox.Batch) []*flight {
	b.landed(f, set, batch.At)
	picked := b.pick(batch.At)
	batch.Sending = ids(picked)
	return picked
}

// remember keeps the entry in memory in step with its row.
func remember(e *outbox.Entry, set outbox.Settlement) {
	e.State, e.Due, e.Reason = set.State, set.Due, set.Reason
	e.Attempts, e.Uncertain, e.Degraded, e.MayBeDuplicate = set.Attempts, set.Uncertain, set.Degraded, set.MayBeDuplicate
	if set.Delivered {
		e.Receipts = append(e.Receipts, set.Receipt)
	}
	if set.Log.Kind != "" {
		e.Log = append(e.Log, set.Log)
	}
}

// landed frees the lane of a flight that is settled in memory. The caller
// holds the mutex.
func (b *bot) landed(f *flight, set outbox.Settlement, now time.Time) {
	l := f.lane
	l.busy = false
	b.inFlight--
	if set.State.Pending() {
		if l.items[0].body == nil && f.entry != nil {
			l.items[0].body = b.keep(f.entry)
		}
		l.items[0].begun = l.items[0].begun || set.Delivered
		if set.Due.After(l.until) {
			l.until = set.Due
		}
	} else {
		b.forgetKey(l.target, f.entry)
		b.uncount(l.items[:1])
		l.pop()
		b.probeEnded(l.target.Chat)
	}
	if newer := b.current(l); newer != l { // the chat moved while both were busy
		newer.absorb(l)
		l = newer
	}
	b.place(l, now)
}

// consequence does what an answer means beyond its entry. Every kind of
// failure has its one case here. The caller holds the mutex.
func (b *bot) consequence(f *flight, set *outbox.Settlement, fail *chat.SendError, batch *outbox.Batch, now time.Time) {
	if fail == nil {
		if set.Delivered {
			b.succeeded(f, batch)
		}
		return
	}
	if fail.Kind != chat.RateLimited {
		f.lane.limited = 0
	}
	f.lane.retrying = fail.Kind == chat.Temporary && fail.RetryAfter == 0 // the platform's own wait is not cut short
	switch fail.Kind {
	case chat.RateLimited:
		b.penalise(f, set, fail, now)
	case chat.Temporary:
		b.failed(now)
	case chat.Uncertain:
		if set.State.Pending() {
			b.suspect(f.lane, now.Add(firstAsk))
		}
	case chat.Moved:
		b.moveWith(f, fail.MovedTo, set, batch)
	case chat.TargetGone:
		if f.target.Chat != f.lane.target.Chat { // only the old id is gone: the chat moved meanwhile
			set.State = outbox.Waiting
			return
		}
		if fail.NotFound && b.distrust(f.target.Chat, batch, now) {
			set.State, set.Due = outbox.Waiting, now.Add(holdProbe)
			b.hold.until = now.Add(holdProbe)
			return
		}
		b.bury(f.lane.target.Chat, fail.Error(), fail.Code, batch, now)
	case chat.Unauthorized:
		b.loginRefused(fail)
	case chat.Degradable, chat.Rejected:
		// concerns the entry alone
	}
}

// penalise turns a platform's wait into a penalty. The limiter holds the scope,
// also for callers that wait already, so the lane itself needs no clock.
func (b *bot) penalise(f *flight, set *outbox.Settlement, fail *chat.SendError, now time.Time) {
	wait := fail.RetryAfter
	blind := &f.lane.limited
	if fail.Scope != chat.ScopeChannel {
		blind = &b.limited
	}
	if wait > 0 {
		*blind = 0
	} else {
		*blind++
		wait = outbox.BlindWait(*blind, random())
	}
	set.Due = now.Add(wait)
	var bucket limiter.Bucket // the bot's own
	switch fail.Scope {
	case chat.ScopeChannel:
		bucket.Channel = string(f.target.Chat)
	case chat.ScopeMethod:
		bucket.Method = sendMethod
	case chat.ScopeBot:
	}
	b.limiter.PenaliseAt(now, bucket, wait)
}

// succeeded clears what only failures keep up. The caller holds the mutex.
func (b *bot) succeeded(f *flight, batch *outbox.Batch) {
	f.lane.limited, f.lane.retrying, b.limited = 0, false, 0
	b.recovered()
	b.proved()
	b.trust()
	if _, ok := b.dead[f.lane.target.Chat]; ok {
		delete(b.dead, f.lane.target.Chat)
		batch.Revived = append(batch.Revived, f.lane.target.Chat)
	}
}

func (b *bot) logEnd(ctx context.Context, f *flight, set outbox.Settlement, fail *chat.SendError) {
	if fail == nil {
		return
	}
	args := []any{"entry", f.id.String(), "target", f.target.String(), "kind", fail.Kind.String(), "err", fail}
	switch {
	case set.State == outbox.Dead:
		b.log.WarnContext(ctx, "message given up on: it is a dead letter", args...)
	case fail.Kind == chat.RateLimited:
		b.log.WarnContext(ctx, "the platform asks to wait", append(args, "retry_after", fail.RetryAfter.String())...)
	default:
		b.log.InfoContext(ctx, "attempt failed", args...)
	}
}
