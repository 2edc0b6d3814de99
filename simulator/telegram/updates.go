package telegram

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

const (
	updateLife    = 24 * time.Hour   // updates expire after a day (Bot API, getting updates; read 2026-11-30).
	maxPollTime   = 50 * time.Second // longer timeouts are clipped (telegram-bot-api source; read 2026-11-30).
	maxPollBytes  = 4 << 20          // about what one answer holds (telegram-bot-api source; read 2026-11-30).
	conflictDelay = 3 * time.Second  // between two 409 answers (telegram-bot-api source; read 2026-11-30).
)

// update waits to be fetched or to be sent to the webhook.
type update struct {
	id     int64
	kind   string // message, callback_query …
	chat   int64  // the webhook keeps order within it
	body   json.RawMessage
	at     time.Time
	copies int // further times that it is delivered
	flying bool
}

// poll is a long poll that waits.
type poll struct {
	done chan struct{}
	err  *apiError // read after done is closed
}

// pollMark remembers the last poll, to recognise busy loops.
type pollMark struct {
	offset int64
	at     time.Time
}

// wakePoll ends the waiting poll: with err, or with what there is.
func (b *bot) wakePoll(err *apiError) {
	if b.poll == nil {
		return
	}
	b.poll.err = err
	close(b.poll.done)
	b.poll = nil
}

// wants reports whether the bot asked for updates of that kind.
func (b *bot) wants(kind string) bool {
	if b.allowed != nil {
		return slices.Contains(b.allowed, kind)
	}
	return kind != "chat_member" && kind != "message_reaction" && kind != "message_reaction_count"
}

// push queues an update and returns its id; 0 means that the bot doesn't want it.
func (s *Server) push(b *bot, kind string, chat int64, content any) (int64, error) {
	if !b.wants(kind) {
		return 0, nil
	}
	if len(b.queue) >= maxPending {
		return 0, fmt.Errorf("queue update: %w", ErrFull)
	}
	id := b.nextUpdate
	data, err := json.Marshal(map[string]any{"update_id": id, kind: content})
	if err != nil {
		return 0, fmt.Errorf("encode update: %w", err)
	}
	b.nextUpdate++
	s.queueUpdate(b, &update{id: id, kind: kind, chat: chat, body: data, at: s.now()})
	return id, nil
}

func (s *Server) queueUpdate(b *bot, u *update) {
	q := faultQuery{kinds: []FaultKind{FaultDuplicate}, bot: b, chat: u.chat, act: true}
	if s.takeFault(q) != nil {
		u.copies++
	}
	b.queue = append(b.queue, u)
	b.wakePoll(nil)
	s.kickWebhooks()
	s.changedLocked()
}

func (b *bot) expire(now time.Time) {
	b.queue = slices.DeleteFunc(b.queue, func(u *update) bool { return now.Sub(u.at) >= updateLife && !u.flying })
}

// confirm applies an offset: what lies before it is forgotten.
func (b *bot) confirm(offset int64) {
	switch {
	case offset > 0:
		b.queue = slices.DeleteFunc(b.queue, func(u *update) bool { return u.id < offset })
	case offset < 0 && int64(len(b.queue)) > -offset:
		b.queue = slices.Delete(b.queue, 0, len(b.queue)+int(offset))
	}
}

// batch returns the next updates for a poll.
func (b *bot) batch(limit int) []json.RawMessage {
	list := []json.RawMessage{}
	size := 0
	for _, u := range b.queue {
		if len(list) >= limit || size+len(u.body) > maxPollBytes && len(list) > 0 {
			break
		}
		list = append(list, u.body)
		for ; u.copies > 0; u.copies-- {
			list = append(list, u.body)
		}
		size += len(u.body)
	}
	b.fetched += len(list)
	return list
}

// allowKinds reads allowed_updates, which stays in force until it is given again.
func (b *bot) allowKinds(p params) {
	var kinds []string
	if raw := p.text("allowed_updates"); raw != "" && json.Unmarshal([]byte(raw), &kinds) == nil {
		b.allowed = kinds
		if len(kinds) == 0 {
			b.allowed = nil
		}
	}
}

// longPoll answers getUpdates. It is called without the lock and waits outside it.
func (s *Server) longPoll(ctx context.Context, c *call) (any, *apiError) {
	limit := int(c.params.number("limit"))
	if limit < 1 || limit > 100 {
		limit = 100
	}
	timeout := min(max(0, time.Duration(c.params.number("timeout"))*time.Second), maxPollTime)
	s.mu.Lock()
	b := c.bot
	if b.hook.url != "" {
		s.mu.Unlock()
		return nil, conflict("can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first")
	}
	offset := c.params.number("offset")
	b.allowKinds(c.params)
	b.expire(c.now)
	b.confirm(offset)
	if s.limits.Polling && !s.limits.Off {
		timeout, limit = b.slowDown(offset, c.now, timeout, limit)
	}
	list := b.batch(limit)
	if len(list) > 0 || timeout == 0 {
		s.changedLocked()
		s.mu.Unlock()
		return list, nil
	}
	b.replacePoll(c.now)
	p := &poll{done: make(chan struct{})}
	b.poll = p
	s.changedLocked()
	s.mu.Unlock()
	return s.waitPoll(ctx, c, p, timeout, limit)
}

// slowDown holds back a client that asks for the same again and again.
func (b *bot) slowDown(offset int64, now time.Time, timeout time.Duration, limit int) (time.Duration, int) {
	since := now.Sub(b.lastPoll.at)
	if offset == b.lastPoll.offset && !b.lastPoll.at.IsZero() {
		if timeout < 3*time.Second && since < 3*time.Second {
			timeout = 3 * time.Second
		}
		if since < 500*time.Millisecond {
			limit = 1
		}
	}
	b.lastPoll = pollMark{offset: offset, at: now}
	return timeout, limit
}

// replacePoll ends a waiting poll in favour of a new one.
func (b *bot) replacePoll(now time.Time) {
	if b.poll == nil {
		return
	}
	e := conflict("terminated by other getUpdates request; make sure that only one bot instance is running")
	if !b.lastKick.IsZero() && now.Sub(b.lastKick) < conflictDelay {
		e.hold = conflictDelay
	}
	b.lastKick = now
	b.wakePoll(e)
}

func (s *Server) waitPoll(ctx context.Context, c *call, p *poll, timeout time.Duration, limit int) (any, *apiError) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	case <-ctx.Done():
	case <-s.done:
	}
	s.mu.Lock()
	b := c.bot
	if b.poll == p {
		b.poll = nil
	}
	ended := p.err
	var list []json.RawMessage
	if ended == nil && ctx.Err() == nil {
		b.expire(s.now())
		list = b.batch(limit)
	}
	c.now = s.now()
	s.changedLocked()
	s.mu.Unlock()
	if ended == nil {
		return list, nil
	}
	answer := *ended
	s.pause(ctx, answer.hold)
	answer.hold = 0
	return nil, &answer
}
