package delivery_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

// slow is a limiter of one message a second in all.
var slow = limiter.Config{MessagesPerSecond: 1, BurstSize: 1}

func wantStateError(t *testing.T, err error, state outbox.State) {
	t.Helper()
	if e, ok := errors.AsType[*delivery.StateError](err); !ok || e.State != state {
		t.Errorf("error %v, want a StateError of a %v entry", err, state)
	}
}

func TestRouter_cancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withLimits(slow))
		ids := r.send("a", "1", "2", "3")
		later := r.deliver(delivery.Request{Target: to("b"), Message: chat.Message{Text: "later"}, NotBefore: time.Now().Add(time.Hour)})
		for _, id := range []outbox.ID{ids[1], later} {
			if err := r.router.Cancel(t.Context(), id); err != nil {
				t.Errorf("Cancel(%d) = %v", id, err)
			}
			r.wantState(id, outbox.Cancelled)
		}
		pass(2 * time.Hour)
		r.wantArrived("", "1", "3")
		wantStateError(t, r.router.Cancel(t.Context(), ids[0]), outbox.Sent)
		wantStateError(t, r.router.Cancel(t.Context(), ids[1]), outbox.Cancelled)
		if err := r.router.Cancel(t.Context(), 999); !errors.Is(err, delivery.ErrNotFound) {
			t.Errorf("Cancel() of an unknown entry = %v, want ErrNotFound", err)
		}
		if s := r.router.Status(testBot); s.Pending != 0 {
			t.Errorf("Status() = %+v, want nothing pending", s)
		}
	})
}

// A cancelled retry lets what waits behind it go at once.
func TestRouter_cancelFreesItsLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailOnce(limited(chat.ScopeBot, 0))
		r.fake.FailOnce(errTemporary)
		ids := r.send("a", "1", "2")
		pass(time.Millisecond)
		r.box.fail(outbox.ErrNoSpace)
		if err := r.router.Cancel(t.Context(), ids[0]); !errors.Is(err, outbox.ErrNoSpace) {
			t.Errorf("Cancel() on a full disk = %v, want ErrNoSpace", err)
		}
		r.box.fail(nil)
		if err := r.router.Cancel(t.Context(), ids[0]); err != nil {
			t.Errorf("Cancel() = %v", err)
		}
		pass(2 * time.Minute)
		r.wantArrived("a", "2")
	})
}

func TestRouter_retriesOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for range 8 {
			r.fake.FailOnce(errTemporary)
		}
		ids := r.send("a", "1", "2")
		wantStateError(t, r.router.Retry(t.Context(), ids[1]), outbox.Queued)
		for range 8 {
			synctest.Wait()
			if err := r.router.Retry(t.Context(), ids[0]); err != nil {
				t.Fatalf("Retry() = %v", err)
			}
		}
		pass(time.Second)
		r.wantArrived("a", "1", "2")
		wantStateError(t, r.router.Retry(t.Context(), ids[0]), outbox.Sent)
	})
}

func TestRouter_supersedes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withLimits(slow))
		word := func(target, s, key string) delivery.Request {
			q := text(target, s)
			q.Supersede = key
			return q
		}
		r.deliver(text("a", "first"))
		old := r.deliver(word("a", "10 %", "progress"))
		r.deliver(text("a", "middle"))
		other := r.deliver(word("a", "x", "another"))
		elsewhere := r.deliver(word("b", "y", "progress"))
		newer := r.deliver(word("a", "20 %", "progress"))
		if e := r.wantState(old, outbox.Cancelled); e.Reason != outbox.SupersededBy(newer) {
			t.Errorf("reason %q, want %q", e.Reason, outbox.SupersededBy(newer))
		}
		r.restart() // the keys are found again
		newest := r.deliver(word("a", "30 %", "progress"))
		r.wantState(newer, outbox.Cancelled)
		pass(time.Minute)
		r.wantArrived("a", "first", "middle", "x", "30 %")
		for _, id := range []outbox.ID{other, elsewhere, newest} {
			r.wantState(id, outbox.Sent)
		}
		r.deliver(word("a", "40 %", "progress"))
		r.wantState(newest, outbox.Sent)
	})
}

// A repeated request with both keys must not cancel the message that it repeats.
func TestRouter_supersedesNotWhatIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withLimits(slow))
		r.deliver(text("a", "first"))
		q := text("a", "10 %")
		q.Supersede, q.Key = "progress", "k"
		id := r.deliver(q)
		ticket, err := r.router.Deliver(t.Context(), q)
		if err != nil || ticket != (delivery.Ticket{ID: id, Duplicate: true}) {
			t.Errorf("Deliver() = %+v, %v, want the same id as a duplicate", ticket, err)
		}
		pass(time.Minute)
		r.wantArrived("a", "first", "10 %")
	})
}

func TestRouter_holdsUntilItIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withOptions(delivery.Options{Held: true}))
		id := r.send("a", "1")[0]
		pass(time.Hour)
		r.wantCalls(0)
		_, x, err := r.router.Why(t.Context(), id)
		if err != nil || len(x.Obstacles) != 1 || x.Obstacles[0].Name != "hold" {
			t.Errorf("Why() = %+v, %v, want the hold", x, err)
		}
		if err := r.router.Release(testBot); err != nil {
			t.Fatalf("Release() = %v", err)
		}
		pass(time.Second)
		r.wantArrived("a", "1")
	})
}

func TestRouter_explainsItsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailOnce(limited(chat.ScopeChannel, time.Hour))
		ids := r.send("a", "1", "2")
		later := r.deliver(delivery.Request{Target: to("b"), Message: chat.Message{Text: "x"}, NotBefore: time.Now().Add(time.Minute)})
		synctest.Wait()
		now := time.Now()
		for _, c := range []struct {
			name  string
			id    outbox.ID
			ahead int
			want  []string
			until time.Time
		}{
			{"the first waits for the penalty", ids[0], 0, []string{"penalty"}, now.Add(time.Hour)},
			{"the second waits behind it, too", ids[1], 1, []string{"behind", "penalty"}, now.Add(time.Hour)},
			{"one waits for its time", later, 0, []string{"not_before"}, now.Add(time.Minute)},
		} {
			_, x, err := r.router.Why(t.Context(), c.id)
			var names []string
			var until time.Time
			for _, o := range x.Obstacles {
				names = append(names, o.Name)
				if o.Until.After(until) {
					until = o.Until
				}
			}
			if diff := cmp.Diff(c.want, names); err != nil || diff != "" || x.Ahead != c.ahead {
				t.Errorf("%s: %d ahead, %v, obstacles differ (-want +got):\n%s", c.name, x.Ahead, err, diff)
			}
			if d := until.Sub(c.until); d < -time.Second || d > time.Second || x.Estimate.Before(until) {
				t.Errorf("%s: until %v, estimate %v, want %v", c.name, until, x.Estimate, c.until)
			}
		}
		if x, err := r.router.WhyTarget(to("a")); err != nil || x.Pending != 2 {
			t.Errorf("WhyTarget() = %+v, %v, want two pending", x, err)
		}
		l, err := r.router.Limits(testBot)
		if err != nil || l.RefusingTotal != 1 {
			t.Errorf("Limits() = %+v, %v, want one channel that refuses", l, err)
		}
	})
}

func TestRouter_replaysADeadLetterOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailOnce(errRejected)
		id := r.send("a", "1")[0]
		pass(time.Second)
		r.wantState(id, outbox.Dead)
		var group sync.WaitGroup
		tickets, errs := make([]delivery.Ticket, 2), make([]error, 2)
		for i := range 2 {
			group.Go(func() { tickets[i], errs[i] = r.router.Replay(t.Context(), id) })
		}
		group.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), outbox.ErrReplayed) {
			t.Fatalf("two replays at once = %v, want one ErrReplayed", errs)
		}
		pass(time.Second)
		r.wantArrived("a", "1")
		again := max(tickets[0].ID, tickets[1].ID)
		if e := r.wantState(again, outbox.Sent); e.ReplayOf != id {
			t.Errorf("the replay is of %d, want %d", e.ReplayOf, id)
		}
		if e := r.wantState(id, outbox.Dead); e.ReplayedBy != again {
			t.Errorf("the letter was replayed by %d, want %d", e.ReplayedBy, again)
		}
		for name, err := range map[string]error{
			"edit": r.router.Edit(t.Context(), id, delivery.Change{}), "drop": r.router.Drop(t.Context(), id),
		} {
			if !errors.Is(err, outbox.ErrReplayed) {
				t.Errorf("%s of a replayed letter = %v, want ErrReplayed", name, err)
			}
		}
		_, err := r.router.Replay(t.Context(), again)
		wantStateError(t, err, outbox.Sent)
	})
}

func TestRouter_editsAndRetargetsADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailOnce(errRejected)
		id := r.send("a", "wrng")[0]
		pass(time.Second)
		fixed, target := "right", to("b")
		if err := r.router.Edit(t.Context(), id, delivery.Change{Text: &fixed, Target: &target}); err != nil {
			t.Fatalf("Edit() = %v", err)
		}
		empty := " "
		if err := r.router.Edit(t.Context(), id, delivery.Change{Text: &empty}); !errors.Is(err, delivery.ErrEmpty) {
			t.Errorf("Edit() to nothing = %v, want ErrEmpty", err)
		}
		r.restart()
		if e := r.wantState(id, outbox.Dead); e.Message().Text != fixed || e.Target != target || len(e.Log) == 0 {
			t.Errorf("the letter is %+v", e)
		}
		if _, err := r.router.Replay(t.Context(), id); err != nil {
			t.Fatalf("Replay() = %v", err)
		}
		pass(time.Second)
		r.wantArrived("", "right")
	})
}

// What was sent of a long message is not sent again by its replay, and an
// uncertain end leaves its mark on it.
func TestRouter_replaysWhatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := outbox.DefaultRules()
		rules.OnUncertain = outbox.Hold
		r := newRig(t, withRules(rules), withLimits(slow))
		most := r.fake.Capabilities(to("a")).MaxText
		parts := []string{strings.Repeat("a", most), strings.Repeat("b", most), "c"}
		id := r.send("a", strings.Join(parts, ""))[0]
		synctest.Wait()
		r.wantArrived("a", parts[0])
		r.fake.FailOnce(errUncertain)
		pass(time.Minute)
		r.wantState(id, outbox.Dead)
		ticket, err := r.router.Replay(t.Context(), id)
		if err != nil {
			t.Fatalf("Replay() = %v", err)
		}
		pass(time.Minute)
		r.wantArrived("a", parts...)
		if e := r.wantState(ticket.ID, outbox.Sent); !e.MayBeDuplicate {
			t.Error("the replay of an uncertain end is not marked")
		}
	})
}

func TestRouter_dropsADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailOnce(errRejected)
		id := r.send("a", "1")[0]
		pass(time.Second)
		if err := r.router.Drop(t.Context(), id); err != nil {
			t.Fatalf("Drop() = %v", err)
		}
		r.wantState(id, outbox.Cancelled)
		wantStateError(t, r.router.Drop(t.Context(), id), outbox.Cancelled)
		_, err := r.router.Replay(t.Context(), id)
		wantStateError(t, err, outbox.Cancelled)
	})
}

func TestRouter_marksAChatDeadOnAnOperatorsWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := make(chan struct{}, 10)
		r := newRig(t, withLimits(slow), withOptions(delivery.Options{OnDead: func() { dead <- struct{}{} }}))
		r.send("a", "1")
		ids := r.send("a", "2", "3")
		pass(time.Millisecond)
		if err := r.router.MarkDead(t.Context(), to("a"), "left the company"); err != nil {
			t.Fatalf("MarkDead() = %v", err)
		}
		r.wantDead(text("a", "4"))
		for _, id := range ids {
			r.wantState(id, outbox.Dead)
		}
		if len(dead) == 0 {
			t.Error("nobody was told of the dead letters")
		}
		pass(time.Minute)
		r.wantArrived("a", "1")
	})
}

// A repeat is decided by the message itself if it says so.
func TestRouter_holdsAnUncertainMessageThatAsksForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailOnce(errUncertain)
		q := text("a", "pay 100")
		q.OnUncertain = outbox.Hold
		id := r.deliver(q)
		pass(time.Minute)
		r.wantState(id, outbox.Dead)
		r.wantCalls(1)
		late := text("a", "too late")
		late.ExpiresAt = time.Now()
		if err := r.refuse(late); !errors.Is(err, delivery.ErrTooLate) {
			t.Errorf("Deliver() = %v, want ErrTooLate", err)
		}
	})
}
