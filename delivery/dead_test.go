package delivery_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/outbox"
)

func (r *rig) wantDead(q delivery.Request) {
	r.t.Helper()
	err := r.refuse(q)
	if _, ok := errors.AsType[*delivery.DeadTargetError](err); !ok {
		r.t.Errorf("Deliver(%s) = %v, want a DeadTargetError", q.Target, err)
	}
}

func TestRouter_buriesADeadTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailChat("a", errGone)
		release := r.fake.BlockChat("a")
		ids := r.send("a", "1", "2", "3")
		r.cfg = fast
		later := text("a/7", "later")
		later.NotBefore = time.Now().Add(time.Hour)
		ids = append(ids, r.deliver(later))
		other := r.send("b", "1")[0]
		release()
		pass(time.Second)
		for _, id := range ids {
			if e := r.wantState(id, outbox.Dead); e.Reason == "" {
				t.Errorf("entry %d is dead without a reason", id)
			}
		}
		r.wantState(other, outbox.Sent)
		r.wantCalls(2)
		r.wantDead(text("a", "4"))
		r.wantDead(text("a/7", "4"))
		r.restart()
		r.wantDead(text("a", "5"))
		r.wantCalls(2)
		if s := r.router.Status(testBot); s.Pending != 0 {
			t.Errorf("Status() = %+v, want nothing pending", s)
		}
	})
}

// A call in another thread of the chat is spared: its own answer decides.
func TestRouter_callInFlightInAnotherThreadKeepsItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		release := r.fake.BlockChat("a")
		r.fake.FailOnce(errGone)
		first := r.send("a/1", "1")[0]
		synctest.Wait()
		second := r.send("a/2", "2")[0]
		waiting := r.send("a/2", "3")[0]
		synctest.Wait()
		release()
		pass(time.Minute)
		states := map[outbox.State]int{r.entry(first).State: 1}
		states[r.entry(second).State]++
		if states[outbox.Sent] != 1 || states[outbox.Dead] != 1 {
			t.Errorf("states %v of the two calls, want what each was answered", states)
		}
		r.wantState(waiting, r.entry(waiting).State)
		if got := r.entry(second); (got.State == outbox.Sent) != (len(got.Receipts) == 1) {
			t.Errorf("entry %+v, want a receipt exactly if it was sent", got)
		}
	})
}

func TestRouter_probesADeadTargetOneAtATime(t *testing.T) {
	tests := []struct {
		name  string
		err   error // of the probe
		alive bool  // afterwards
	}{
		{name: "it still is dead", err: errGone},
		{name: "it takes the message", alive: true},
		{name: "it refuses the message", err: errRejected, alive: false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, withOptions(delivery.Options{ProbeEvery: time.Hour}))
				r.fake.FailOnce(errGone)
				r.send("a", "1")
				pass(59 * time.Minute)
				r.wantDead(text("a", "2"))
				pass(2 * time.Minute)
				r.box.fail(outbox.ErrNoSpace)
				if err := r.refuse(text("a", "2")); !errors.Is(err, outbox.ErrNoSpace) {
					t.Errorf("Deliver() = %v, want ErrNoSpace", err)
				}
				r.box.fail(nil)
				release := r.fake.Block()
				if tt.err != nil {
					r.fake.FailOnce(tt.err)
				}
				r.send("a", "3")
				synctest.Wait()
				r.wantDead(text("a", "4")) // one probe at a time
				release()
				pass(time.Second)
				switch {
				case tt.alive:
					r.send("a", "5", "6")
					pass(time.Second)
					r.wantArrived("a", "3", "5", "6")
					r.restart()
					r.send("a", "7")
				case errors.Is(tt.err, errRejected):
					r.send("a", "5") // nothing was learnt: the next may try
					pass(time.Second)
					r.wantArrived("a", "5")
				default:
					r.wantDead(text("a", "5"))
				}
			})
		})
	}
}

func TestRouter_probeOfADeadTargetSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailOnce(errGone)
		r.send("a", "1")
		pass(2 * time.Hour)
		r.fake.FailChat("a", errTemporary)
		r.send("a", "2")
		pass(time.Minute)
		r.restart()
		r.wantDead(text("a", "3"))
		r.fake.HealChat("a")
		pass(time.Minute)
		r.wantArrived("a", "2")
		r.send("a", "3")
	})
}

// What a process that only stores has put there for a dead chat costs no call.
func TestRouter_buriesWhatItLoadsForADeadTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		standby := delivery.New(r.store, delivery.Options{})
		if err := standby.Add(process{Fake: r.fake}, "fake"); err != nil {
			t.Fatalf("Add() = %v", err)
		}
		ticket, err := standby.Deliver(t.Context(), text("a", "2"))
		if err != nil {
			t.Fatalf("Deliver() = %v", err)
		}
		r.fake.FailOnce(errGone)
		r.send("a", "1")
		pass(time.Second)
		r.stop()
		r.wantState(ticket.ID, outbox.Queued)
		if _, err := standby.Deliver(t.Context(), text("a", "3")); err == nil {
			t.Errorf("Deliver() = %v to a chat that its owner knows to be dead, want a DeadTargetError", err)
		}
		r.restart()
		pass(time.Minute)
		r.wantState(ticket.ID, outbox.Dead)
		r.wantCalls(1)
		if s := r.router.Status(testBot); s.Pending != 0 {
			t.Errorf("Status() = %+v, want nothing pending", s)
		}
	})
}

func TestRouter_reviveByAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailOnce(errGone)
		r.send("a", "1")
		pass(time.Second)
		r.wantDead(text("a", "2"))
		for range 2 {
			if err := r.router.Revive(t.Context(), to("a")); err != nil {
				t.Fatalf("Revive() = %v", err)
			}
		}
		r.restart()
		r.send("a", "3")
		pass(time.Second)
		r.wantArrived("a", "3")
	})
}

func TestRouter_boundsDeadTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withOptions(delivery.Options{MaxDead: 3}))
		for i := range 5 {
			r.fake.FailOnce(errGone)
			r.send(fmt.Sprint(i), "x")
			pass(time.Second)
		}
		for range 2 {
			for i := 2; i < 5; i++ {
				r.wantDead(text(fmt.Sprint(i), "x"))
			}
			r.send("0", "x")
			r.send("1", "x")
			pass(time.Second)
			r.restart()
		}
	})
}

func TestRouter_turnsEndThoughTheirChatIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailChat("dead", errGone)
		r.send("dead", "1")
		pass(time.Second)
		tickets, err := r.router.EndTurn(t.Context(), testBot, outbox.TurnEnd{Turn: 1, Outcome: outbox.TurnDone},
			text("dead", "x"), text("a", " "), delivery.Request{Target: chat.Target{Bot: "nobody", Chat: "1"}, Message: chat.Message{Text: "x"}}, text("a", "1"), text("a", "2"))
		if err != nil || len(tickets) != 2 {
			t.Fatalf("EndTurn() = %v, %v, want two tickets", tickets, err)
		}
		pass(time.Second)
		r.wantArrived("a", "1", "2")
	})
}
