package inbound

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/outbox"
)

// queue adds turns to their sessions. It gives the change in the turns held in
// memory: what a session does not keep is read again when its turn comes.
func (p *Pipeline) queue(turns []Turn, in place) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := 0
	for _, t := range turns {
		s, ok := p.sessions[t.Event.Source]
		if !ok {
			s = &session{key: t.Event.Source, readTo: t.ID - 1}
			p.sessions[s.key] = s
			p.ready = append(p.ready, s)
		}
		held += s.add(t, in, p.perChat)
	}
	p.notify()
	return held
}

// queued says whether the turn waits or runs already.
func (p *Pipeline) queued(t Turn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.sessions[t.Event.Source]
	return ok && s.holds(t.ID)
}

// Recover queues the bot's turns that a former run left unfinished, in order
// and before any new event is accepted: Accept waits for it. It returns when
// all are queued; what does not fit in memory is read again in its time.
func (p *Pipeline) Recover(ctx context.Context, bot chat.BotName) error {
	leave, err := p.enter(ctx, bot, wholeGate)
	if err != nil {
		return err
	}
	defer leave()
	var last outbox.TurnID
	for {
		turns, err := p.journal.Unfinished(ctx, bot, last, page)
		if err != nil || len(turns) == 0 {
			return err
		}
		for _, t := range turns {
			last = t.ID
			if p.queued(t) {
				continue
			}
			in := p.again(ctx, t)
			where, room := onDisk, 0
			if p.room.TryAcquire(1) {
				where, room = inMemory, 1
			}
			p.room.Release(int64(room - p.queue(in, where)))
		}
	}
}

// Run runs turns until ctx ends; those under way then get up to grace to end.
// A turn that does not is run again after the next start.
func (p *Pipeline) Run(ctx context.Context, grace time.Duration) error {
	turns, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var group sync.WaitGroup
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		next := p.start(turns, &group)
		timer.Reset(next)
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-timer.C:
		}
	}
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()

	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	grant := time.NewTimer(grace)
	defer grant.Stop()
	select {
	case <-done:
	case <-grant.C:
		p.log.WarnContext(turns, "turns are cut off: they run again after the next start")
		cancel()
		<-done
	}
	return nil
}

// start gives a goroutine to each session whose turn it is, and says when to
// look again.
func (p *Pipeline) start(ctx context.Context, group *sync.WaitGroup) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.undelay(time.Now())
	for len(p.ready) > 0 && p.running < p.opts.MaxConcurrent {
		s := p.ready[0]
		p.ready[0] = nil
		p.ready = p.ready[1:]
		p.running++
		group.Go(func() { p.turn(ctx, s) })
	}
	return next
}

// undelay makes the sessions ready whose pause is over. The caller holds the
// mutex.
func (p *Pipeline) undelay(now time.Time) time.Duration {
	next := time.Hour
	waiting := p.delayed[:0]
	for _, s := range p.delayed {
		if wait := s.until.Sub(now); wait > 0 {
			next = min(next, wait)
			waiting = append(waiting, s)
			continue
		}
		p.ready = append(p.ready, s)
	}
	clear(p.delayed[len(waiting):])
	p.delayed = waiting
	return next
}

// turn runs the session's first turn and puts the session back in line.
func (p *Pipeline) turn(ctx context.Context, s *session) {
	err := p.refill(ctx, s)
	p.mu.Lock()
	if len(s.turns) == 0 {
		if err != nil {
			s.until = time.Now().Add(rereadPause)
		}
		p.lineUp(s, err == nil)
		p.mu.Unlock()
		return
	}
	t := s.turns[0]
	p.mu.Unlock()

	ended := p.run(ctx, t)

	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case ended:
		if !s.overdrawn {
			p.room.Release(1)
		}
		s.turns[0] = Turn{}
		s.turns = s.turns[1:]
	default:
		s.turns[0].Attempt++
		s.until = time.Now().Add(outbox.Backoff(s.turns[0].Attempt, rand.Float64())) //nolint:gosec // jitter is no secret
		if s.overdrawn {                                                             // it is not held over a pause
			p.room.Release(int64(s.shrink(0) - 1))
		}
	}
	s.overdrawn = false
	p.lineUp(s, ended)
}

// lineUp puts a session that ran where it belongs: away when nothing is left,
// else behind the others, at once or after its pause. The caller holds the
// mutex.
func (p *Pipeline) lineUp(s *session, now bool) {
	p.running--
	switch {
	case len(s.turns) == 0 && s.spilledTo == 0:
		delete(p.sessions, s.key)
	case now:
		p.ready = append(p.ready, s)
	default:
		p.delayed = append(p.delayed, s)
	}
	p.notify()
}

// run makes one attempt at a turn and says whether it has ended.
func (p *Pipeline) run(ctx context.Context, t Turn) bool {
	attempt, err := p.journal.Begin(ctx, t.ID)
	if err != nil {
		p.log.ErrorContext(ctx, "turn not begun: it is tried again", "bot", string(t.Event.Source.Bot), "err", err)
		return false
	}
	if attempt == 0 {
		return true // it has ended already
	}
	t.Attempt = attempt
	if attempt > p.opts.MaxAttempts {
		p.log.WarnContext(ctx, "turn given up on: every run of it was cut off", "bot", string(t.Event.Source.Bot), "attempt", attempt)
		end := outbox.TurnEnd{Turn: t.ID, Outcome: outbox.TurnDead, Reason: "every run of it was cut off"}
		return p.endTurn(ctx, t, end, nil)
	}
	messages, err := p.handle(ctx, t)
	if err != nil && ctx.Err() != nil {
		return false // the gateway stops: again after the restart
	}
	end := outbox.TurnEnd{Turn: t.ID, Outcome: outbox.TurnDone}
	if err != nil {
		p.log.WarnContext(ctx, "handler failed", "bot", string(t.Event.Source.Bot), "attempt", attempt, "err", err)
		if attempt < p.opts.MaxAttempts {
			return false
		}
		end.Outcome, end.Reason, messages = outbox.TurnDead, err.Error(), nil
	}
	replies := make([]delivery.Request, len(messages))
	for i, m := range messages {
		replies[i] = delivery.Request{Target: t.Event.Source, Message: m, Priority: outbox.Reply}
	}
	return p.endTurn(ctx, t, end, replies)
}

// handle calls the handler, bounded in time; a panic is an error.
func (p *Pipeline) handle(ctx context.Context, t Turn) (messages []chat.Message, err error) {
	p.mu.Lock()
	bot, ok := p.bots[t.Event.Source.Bot]
	p.mu.Unlock()
	if !ok {
		return nil, errors.New("no handler for this bot")
	}
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("handler panicked: %v", v)
		}
	}()
	return bot.Handler.Handle(ctx, t)
}

// endTurn stores the turn's end and its replies. While the store does not take
// them, it is asked again: the answer is not computed anew.
func (p *Pipeline) endTurn(ctx context.Context, t Turn, end outbox.TurnEnd, replies []delivery.Request) bool {
	const pause = time.Second
	for first := true; ; first = false {
		_, err := p.router.EndTurn(context.WithoutCancel(ctx), t.Event.Source.Bot, end, replies...)
		if err == nil {
			return true
		}
		if first {
			p.log.ErrorContext(ctx, "the turn's end is not stored: it is tried again until it is", "bot", string(t.Event.Source.Bot), "err", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

func (p *Pipeline) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
