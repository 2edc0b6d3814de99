package delivery

import (
	"context"
	"time"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
)

const (
	firstAsk = time.Second     // after an uncertain end, the platform is asked so much later
	lastAsk  = 5 * time.Second // and at least so often, until it answers
)

// doubt is about entries that may have arrived. Each goes out once more and
// then never again, so the one repeat is not wasted on a platform that is down:
// it waits until the platform has proved that it answers.
type doubt struct {
	prober adapters.Prober // nil: the repeat waits for its backoff only
	lanes  int             // that wait for a proof
	at     time.Time       // when the platform is asked
	asked  int             // in vain, one after the other
	asking bool
	login  error // a send was answered that the login is refused; nil if not
}

// suspect lets a lane wait until the platform has answered anything. The caller
// holds the mutex.
func (b *bot) suspect(l *lane, at time.Time) {
	if b.doubt.prober == nil {
		return
	}
	if !l.doubtful {
		l.doubtful = true
		b.doubt.lanes++
	}
	l.until = time.Now().Add(farOff) // or until it is proved
	if b.doubt.lanes == 1 && !b.doubt.asking {
		b.doubt.at = at
	}
}

// loginRefused is what follows from an answer that the login is refused. It
// pauses the bot if the platform says the same when it is asked who the bot is;
// else the answer concerned the message, which waits for its backoff. The
// caller holds the mutex.
func (b *bot) loginRefused(fail error) {
	switch {
	case b.paused != nil, b.doubt.login != nil:
	case b.doubt.prober == nil:
		b.paused = fail
	default:
		b.doubt.login, b.doubt.at = fail, time.Time{}
		b.notify()
	}
}

// tellPaused tells an operator, and whoever else wants to know, that the bot
// waits for its login.
func (b *bot) tellPaused(ctx context.Context, cause error) {
	b.log.ErrorContext(ctx, "the platform refuses the bot's login: its messages wait until it is let in", "err", cause)
	b.opts.OnPause(b.name, cause)
}

// proved lets all repeats go out: the platform answers. The caller holds the
// mutex.
func (b *bot) proved() {
	if b.doubt.lanes == 0 {
		return
	}
	b.doubt.lanes, b.doubt.asked = 0, 0
	now := time.Now()
	for _, l := range b.lanes {
		if !l.doubtful {
			continue
		}
		l.doubtful = false
		if !l.busy {
			l.until = now
			b.place(l, now)
		}
	}
}

// askAt is when the platform is to be asked, if it is. The caller holds the
// mutex.
func (b *bot) askAt() (time.Time, bool) {
	open := b.doubt.lanes > 0 || b.doubt.login != nil
	return b.doubt.at, open && !b.doubt.asking && b.owned && !b.stopping
}

// beginAsking reports whether the platform is to be asked now. The caller holds
// the mutex.
func (b *bot) beginAsking(now time.Time) bool {
	at, ok := b.askAt()
	if !ok || now.Before(at) {
		return false
	}
	b.doubt.asking = true
	b.active++
	return true
}

// ask asks the platform who the bot is, which changes nothing there.
func (b *bot) ask(calls context.Context) {
	ctx, cancel := context.WithTimeout(calls, b.opts.SendTimeout)
	defer cancel()
	if err := b.answered(b.doubt.prober.Probe(ctx)); err != nil {
		b.tellPaused(calls, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finished()
}

// answered takes in what the platform said who the bot is. The error is why the
// bot is paused now.
func (b *bot) answered(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doubt.asking = false
	if err == nil {
		b.doubt.login = nil
		b.proved()
		return nil
	}
	if b.doubt.login != nil && b.paused == nil && chat.KindOf(err) == chat.Unauthorized {
		b.doubt.login, b.paused = nil, err
		return err
	}
	b.doubt.asked++
	b.doubt.at = time.Now().Add(min(firstAsk<<min(b.doubt.asked, 3), lastAsk))
	return nil
}
