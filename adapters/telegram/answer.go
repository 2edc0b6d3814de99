package telegram

import (
	"context"
	"sync"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"
)

const maxAnswers = 8 // answers to button presses that are on their way at once

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
			params := tgbotapi.Params{"callback_query_id": id}
			_, err := w.a.call(ctx, "answerCallbackQuery", params, limits{within: 10 * time.Second, body: maxAnswer})
			if err != nil {
				w.a.log.DebugContext(ctx, "button press not answered", "err", err)
			}
		})
	}
}

// wait returns when all answers have ended.
func (w *answerer) wait() { w.group.Wait() }
