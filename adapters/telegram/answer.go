package telegram

import (
	"context"
	"errors"
	"sync"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
)

const (
	answerMethod = "answerCallbackQuery"
	maxAnswers   = 8                // answers to button presses that are on their way at once
	maxPressAge  = 10 * time.Second // a client stops waiting for an answer about then
)

// answerer tells Telegram that button presses arrived, so that the person's
// client stops showing a spinner. It is best effort: nothing depends on it.
type answerer struct {
	a     *Adapter
	slots chan struct{}
	group sync.WaitGroup
}

func newAnswerer(a *Adapter) *answerer {
	return &answerer{a: a, slots: make(chan struct{}, maxAnswers)}
}

// answer never blocks: presses beyond the bound go without an answer.
func (w *answerer) answer(ctx context.Context, callbacks []string) {
	for _, id := range callbacks {
		select {
		case w.slots <- struct{}{}:
		default:
			w.a.log.DebugContext(ctx, "button press not answered, too many at once")
			continue
		}
		w.group.Go(func() {
			defer func() { <-w.slots }()
			if err := w.one(ctx, id); err != nil {
				w.a.log.DebugContext(ctx, "button press not answered", "err", err)
			}
		})
	}
}

// one answers one press, with a slot of the bot's limiter like every call that
// acts. A wait for it ends when the press is too old to be answered.
func (w *answerer) one(ctx context.Context, id string) error {
	l := w.a.limiter
	if l != nil {
		ctx, cancel := context.WithTimeout(ctx, maxPressAge)
		defer cancel()
		if _, err := l.Reserve(ctx, limiter.Call{Method: answerMethod}); err != nil {
			return err
		}
	}
	_, err := w.a.call(ctx, answerMethod, tgbotapi.Params{"callback_query_id": id}, limits{within: 10 * time.Second, body: maxAnswer})
	if fail, ok := errors.AsType[*chat.SendError](err); ok && fail.Kind == chat.RateLimited && l != nil {
		return errors.Join(err, l.Penalise(ctx, limiter.Bucket{Method: answerMethod}, max(fail.RetryAfter, time.Second)))
	}
	return err
}

// wait returns when all answers have ended.
func (w *answerer) wait() { w.group.Wait() }
