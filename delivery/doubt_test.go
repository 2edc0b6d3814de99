package delivery_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

// A platform that is down answers every call with a failure that may have been
// a success. The one repeat of a message must not be wasted on it.
func TestRouter_keepsTheRepeatForAPlatformThatAnswers(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.fake.FailProbe(errTemporary)
				var ids []outbox.ID
				for i := range 5 {
					chatID := fmt.Sprint("c", i)
					r.fake.FailChat(chat.ChatID(chatID), errUncertain)
					ids = append(ids, r.send(chatID, "x")...)
				}
				pass(2 * time.Minute)
				if restart {
					r.restart()
					pass(time.Minute)
				}
				r.wantCalls(5) // one each
				for i := range 5 {
					r.fake.HealChat(chat.ChatID(fmt.Sprint("c", i)))
				}
				r.fake.FailProbe(nil)
				pass(6 * time.Second)
				r.wantCalls(10)
				for _, id := range ids {
					if e := r.wantState(id, outbox.Sent); !e.MayBeDuplicate {
						t.Errorf("entry %v is not marked", id)
					}
				}
			})
		})
	}
}

// A success of another chat is proof enough.
func TestRouter_repeatsAfterAnotherChatsSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailProbe(errTemporary)
		r.fake.FailOnce(errUncertain)
		id := r.send("a", "x")[0]
		pass(time.Minute)
		r.wantCalls(1)
		r.send("b", "y")
		pass(time.Second)
		r.wantState(id, outbox.Sent)
		r.wantArrived("a", "x")
	})
}

func TestRouter_marksTheRepeatOfACallThatMayHaveBeenCarriedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailNext(3, &chat.SendError{Kind: chat.Temporary, MaybeSent: true, Code: "502"})
		id := r.send("a", "x")[0]
		pass(time.Minute)
		if e := r.wantState(id, outbox.Sent); !e.MayBeDuplicate || e.Attempts != 3 {
			t.Errorf("MayBeDuplicate = %v after %d failures, want true after 3", e.MayBeDuplicate, e.Attempts)
		}
	})
}
