package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
)

const (
	batchSize  = 100                // most that getUpdates gives (Bot API; read 2026-11-30)
	slack      = 15 * time.Second   // for the answer to a long poll to arrive
	idsRestart = 6 * 24 * time.Hour // after a quiet week the next update id is random (Bot API, Update; read 2026-11-30)
	calm       = time.Second        // between polls that bring nothing although they come back at once
	patience   = 3                  // such polls in a row before calm is kept
)

// allowedUpdates is sent with every poll, since Telegram keeps the last list
// it was told.
const allowedUpdates = `["message","edited_message","channel_post","edited_channel_post",` +
	`"callback_query","message_reaction","my_chat_member"]`

// backoff grows from low to high, with jitter.
type backoff struct {
	low, high time.Duration
	n         int
}

func (b *backoff) next() time.Duration {
	d := min(b.low<<min(b.n, 16), b.high)
	b.n++
	return d/2 + rand.N(d/2+1) //nolint:gosec // jitter is no secret
}

func (b *backoff) reset() { b.n = 0 }

// pause waits, and reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// poller is one run of the polling loop.
type poller struct {
	a       *Adapter
	sink    adapters.Sink
	answers *answerer

	offset   int64 // the next poll confirms all updates below it
	limit    int
	lastNews time.Time
	hasty    int // polls in a row that brought nothing and came back early

	unread  int  // answers since the last readable one that hold updates, but none that can be read
	singles int  // polls left that ask for one update, to find the one that can't be read
	skipped bool // an update was skipped since the last readable answer

	network, conflict, refused, repeated backoff
	failing                              string // the kind of the running series of failures, so that each is logged once
	removed                              bool   // a webhook was removed since the last success
}

// poll gives updates to sink until ctx ends. On a stop nothing is confirmed
// any more: the next start gets the last batch again, and the journal knows it.
func (a *Adapter) poll(ctx context.Context, sink adapters.Sink) error {
	p := &poller{
		a: a, sink: sink, answers: newAnswerer(a), limit: batchSize, lastNews: time.Now(),
		network:  backoff{low: 500 * time.Millisecond, high: 30 * time.Second},
		conflict: backoff{low: 3 * time.Second, high: 30 * time.Second},
		refused:  backoff{low: 500 * time.Millisecond, high: 30 * time.Second},
		repeated: backoff{low: 2 * calm, high: 30 * time.Second}, // with jitter never below calm
	}
	defer p.answers.wait()
	for ctx.Err() == nil {
		hold, err := p.round(ctx)
		if err != nil {
			return err
		}
		if !pause(ctx, hold) {
			break
		}
	}
	return nil
}

// round is one poll. It gives the time to wait before the next one.
func (p *poller) round(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	b, err := p.fetch(ctx)
	if ctx.Err() != nil {
		return 0, nil //nolint:nilerr // a stop is no failure
	}
	if err != nil {
		return p.failed(ctx, err)
	}
	p.recovered(ctx)
	if len(b.events) == 0 {
		return p.pace(start), nil
	}
	p.a.heard(time.Now())
	if err := p.sink(ctx, b.events...); err != nil {
		if ctx.Err() != nil {
			return 0, nil //nolint:nilerr // a stop is no failure
		}
		hold := p.refused.next()
		p.a.log.WarnContext(ctx, "updates not stored, fetching them again", "err", p.a.redact.err(err), "wait", hold)
		return hold, nil
	}
	p.refused.reset()
	if b.next <= p.offset {
		return p.again(ctx), nil
	}
	p.repeated.reset()
	p.offset, p.lastNews, p.hasty = b.next, time.Now(), 0
	p.note(ctx, b)
	p.answers.answer(ctx, b.callbacks)
	return 0, nil
}

// fetch makes one call. The batch is empty only if no update waits.
func (p *poller) fetch(ctx context.Context) (batch, error) {
	timeout := p.a.cfg.PollTimeout
	if p.offset > 0 && time.Since(p.lastNews) > idsRestart {
		p.offset = 0
	}
	params := tgbotapi.Params{
		"limit":           strconv.Itoa(p.limit),
		"timeout":         strconv.Itoa(int(timeout.Seconds())),
		"allowed_updates": allowedUpdates,
	}
	if p.offset > 0 {
		params["offset"] = strconv.FormatInt(p.offset, 10)
	}
	result, got, err := p.a.ask(ctx, "getUpdates", params, limits{within: timeout + slack, body: maxUpdates})
	if err != nil {
		p.shrink(ctx, got)
		return batch{}, err
	}
	var raws []json.RawMessage
	if err := json.Unmarshal(result, &raws); err != nil || raws == nil {
		return batch{}, unreadableUpdates()
	}
	if len(raws) == 0 {
		p.singles = 0
		return batch{}, nil
	}
	b := p.read(raws)
	if len(b.events) == 0 {
		p.stuck(ctx, 0)
		return batch{}, unreadableUpdates()
	}
	return b, nil
}

func unreadableUpdates() error {
	return &chat.SendError{Kind: chat.Uncertain, Err: fmt.Errorf("getUpdates: %w", errUnreadable)}
}

// batch is one answer, converted.
type batch struct {
	events    []chat.Event
	callbacks []string
	next      int64 // the offset that confirms it

	nameless int    // updates without a readable id, which next passes over
	odd      int    // updates that are kept as they came
	firstOdd string // the id of the first of them
}

func (p *poller) read(raws []json.RawMessage) batch {
	now := time.Now()
	b := batch{}
	for _, raw := range raws {
		id, ok := updateID(raw)
		if !ok {
			b.nameless++
			continue
		}
		in := convert(p.a.bot, strconv.FormatInt(id, 10), raw, now)
		if in.unread {
			if b.odd == 0 {
				b.firstOdd = in.event.ID
			}
			b.odd++
		}
		b.events = append(b.events, in.event)
		if in.callback != "" {
			b.callbacks = append(b.callbacks, in.callback)
		}
		b.next = max(b.next, id+1)
	}
	return b
}

// note logs, in one line for the batch, what could not be read of it.
func (p *poller) note(ctx context.Context, b batch) {
	if b.odd+b.nameless == 0 {
		return
	}
	p.a.log.WarnContext(ctx, "updates can't be read: they are kept as they came, and not answered; those without an id are skipped",
		"count", b.odd, "first", b.firstOdd, "without_id", b.nameless)
}

// again paces a server that repeats what is confirmed. The updates were given
// to the sink all the same, which knows what it has.
func (p *poller) again(ctx context.Context) time.Duration {
	level := slog.LevelDebug
	if p.repeated.n == 0 {
		level = slog.LevelWarn
	}
	hold := p.repeated.next()
	p.a.log.Log(ctx, level, "the server repeats updates that are confirmed", "offset", p.offset, "wait", hold)
	return hold
}

// pace keeps a server that answers at once, with nothing, from being asked
// without a pause.
func (p *poller) pace(start time.Time) time.Duration {
	took := time.Since(start)
	if took >= calm {
		p.hasty = 0
		p.repeated.reset()
		return 0
	}
	p.hasty++
	if p.hasty < patience {
		return 0
	}
	return calm - took
}

func (p *poller) recovered(ctx context.Context) {
	p.a.connected(time.Now())
	p.network.reset()
	p.conflict.reset()
	p.limit, p.removed, p.unread, p.skipped = batchSize, false, 0, false
	if p.singles > 0 {
		p.limit = 1
		p.singles--
	}
	if p.failing != "" {
		p.failing = ""
		p.a.log.InfoContext(ctx, "receiving again")
	}
}

// failed decides what a failed poll means: the time to wait, or an error that
// an operator must see.
func (p *poller) failed(ctx context.Context, err error) (time.Duration, error) {
	p.a.disconnected(err)
	failure, ok := errors.AsType[*chat.SendError](err)
	if !ok {
		failure = &chat.SendError{Kind: chat.Uncertain, Err: err}
	}
	if conflict, ok := errors.AsType[*tgbotapi.Error](err); ok && conflict.Code == http.StatusConflict {
		return p.conflicted(ctx, conflict.Message, err), nil
	}
	switch failure.Kind {
	case chat.Unauthorized:
		return 0, err
	case chat.RateLimited:
		hold := failure.RetryAfter
		if hold == 0 {
			hold = max(p.network.next(), time.Second)
		}
		p.report(ctx, "rate limited", err, hold)
		return hold, nil
	case chat.Temporary, chat.Uncertain, chat.Moved, chat.Degradable, chat.Rejected, chat.TargetGone:
	}
	hold := max(p.network.next(), failure.RetryAfter)
	p.report(ctx, "no updates", err, hold)
	return hold, nil
}

// conflicted removes a webhook that stands in the way; updates that wait for
// it are kept. Another process that polls is waited out.
func (p *poller) conflicted(ctx context.Context, text string, err error) time.Duration {
	hold := p.conflict.next()
	if !strings.Contains(strings.ToLower(text), "webhook is active") {
		p.report(ctx, "another process polls with this token", err, hold)
		return hold
	}
	if p.removed {
		p.report(ctx, "a webhook is set again and again", err, hold)
	} else {
		p.a.log.WarnContext(ctx, "removing the webhook, since this bot polls")
	}
	_, failed := p.a.call(ctx, "deleteWebhook", tgbotapi.Params{"drop_pending_updates": "false"}, plainCall)
	if failed != nil {
		if limited, ok := errors.AsType[*chat.SendError](failed); ok {
			hold = max(hold, limited.RetryAfter)
		}
		p.report(ctx, "webhook not removed", failed, hold)
		return hold
	}
	if p.removed {
		return hold
	}
	p.removed = true
	return 0
}

// report logs the first failure of a series as a warning.
func (p *poller) report(ctx context.Context, what string, err error, hold time.Duration) {
	if p.failing == what {
		p.a.log.DebugContext(ctx, "still not receiving", "kind", what, "err", err, "wait", hold)
		return
	}
	p.failing = what
	p.a.log.WarnContext(ctx, "not receiving, trying again", "kind", what, "err", err, "wait", hold)
}
