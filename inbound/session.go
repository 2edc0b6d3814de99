package inbound

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/outbox"
)

// session is a chat's turns: one runs at a time, in the order of their events.
type session struct {
	key   chat.Target
	turns []Turn    // by their ids; the first may be running
	until time.Time // when a turn that failed is tried again
}

// queue adds turns to their sessions.
func (p *Pipeline) queue(turns []Turn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range turns {
		s, ok := p.sessions[t.Event.Source]
		if !ok {
			s = &session{key: t.Event.Source}
			p.sessions[s.key] = s
			p.ready = append(p.ready, s)
		}
		i := len(s.turns)
		for i > 1 && s.turns[i-1].ID > t.ID {
			i--
		}
		s.turns = slices.Insert(s.turns, i, t)
	}
	p.notify()
}

// queued says whether the turn waits or runs already.
func (p *Pipeline) queued(t Turn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.sessions[t.Event.Source]
	return ok && slices.ContainsFunc(s.turns, func(other Turn) bool { return other.ID == t.ID })
}

// Recover queues the bot's turns that a former run left unfinished, in order
// and before any new event is accepted: Accept waits for it. It returns when
// all are queued; more than MaxWaiting of them need a pipeline that runs.
func (p *Pipeline) Recover(ctx context.Context, bot chat.BotName) error {
	const page = 100
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
			if err := p.room.Acquire(ctx, 1); err != nil {
				return fmt.Errorf("wait for room: %w", err)
			}
			in := []Turn{t}
			if !t.Admitted {
				in = p.sift(ctx, in)
			}
			p.room.Release(int64(1 - len(in)))
			p.queue(in)
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
		t := s.turns[0]
		group.Go(func() { p.turn(ctx, s, t) })
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
func (p *Pipeline) turn(ctx context.Context, s *session, t Turn) {
	ended := p.run(ctx, t)
	if ended {
		p.room.Release(1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	if ended {
		s.turns[0] = Turn{}
		s.turns = s.turns[1:]
	} else {
		s.turns[0].Attempt++
		s.until = time.Now().Add(outbox.Backoff(s.turns[0].Attempt, rand.Float64())) //nolint:gosec // jitter is no secret
	}
	switch {
	case len(s.turns) == 0:
		delete(p.sessions, s.key)
	case ended:
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
