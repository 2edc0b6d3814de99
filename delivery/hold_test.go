package delivery_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

// One chat is answered as if the login were refused, while the platform says
// that it knows the bot.
func TestRouter_aRefusalOfOneChatHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailChat("bad", errLogin)
		bad := r.send("bad", "x")[0]
		for i := range 60 {
			r.send("good", fmt.Sprint(i))
			pass(time.Second)
		}
		if got := len(r.arrived("good")); got != 60 {
			t.Errorf("%d messages arrived in the good chat, want 60", got)
		}
		if s := r.router.Status(testBot); s.Paused != nil {
			t.Errorf("the bot is paused: %v", s.Paused)
		}
		e := r.wantState(bad, outbox.Waiting)
		if calls := len(r.fake.Attempts()) - 60; calls > 20 || e.Attempts != calls {
			t.Errorf("%d calls to the bad chat, %d counted, want some and all", calls, e.Attempts)
		}
		r.fake.HealChat("bad")
		pass(time.Minute)
		r.wantState(bad, outbox.Sent)
	})
}

var errNotFound = &chat.SendError{Kind: chat.TargetGone, NotFound: true, Err: errors.New("chat not found")}

// A platform that suddenly knows no chat must not cost all of them.
func TestRouter_holdsWhenNoChatIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ids := map[string]outbox.ID{}
		for i := range 20 {
			c := fmt.Sprint("c", i)
			r.fake.FailChat(chat.ChatID(c), errNotFound)
			ids[c] = r.send(c, "x")[0]
			pass(time.Second)
		}
		pass(10 * time.Minute)
		dead, calls := 0, len(r.fake.Attempts())
		for _, id := range ids {
			if r.entry(id).State == outbox.Dead {
				dead++
			}
		}
		if dead != 4 || calls < 10 || calls > 20 {
			t.Errorf("%d dead letters and %d calls, want 4, and about one call a minute", dead, calls)
		}
		for c := range ids {
			r.fake.HealChat(chat.ChatID(c))
		}
		pass(2 * time.Minute)
		if got := len(r.arrived("")); got != 16 {
			t.Errorf("%d messages arrived after the end of the hold, want 16", got)
		}
		r.send("c0", "again") // its mark was undone
		pass(time.Minute)
		r.wantArrived("c0", "again")
	})
}

func TestRouter_burysChatsThatAreNotFoundOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 10 {
			c := fmt.Sprint("c", i)
			r.fake.FailChat(chat.ChatID(c), errNotFound)
			id := r.send(c, "x")[0]
			r.send("good", c) // a success between two of them
			pass(time.Second)
			r.wantState(id, outbox.Dead)
		}
	})
}
