package delivery_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

func TestRouter_uncertainAttempts(t *testing.T) {
	rules := outbox.DefaultRules()
	tests := []struct {
		name     string
		on       outbox.OnUncertain
		failures int
		state    outbox.State
		calls    int
		arrived  []string
		copies   bool
	}{
		{name: "resend", on: outbox.Resend, failures: 1, state: outbox.Sent, calls: 2, arrived: []string{"x"}, copies: true},
		{name: "resend, twice uncertain", on: outbox.Resend, failures: 2, state: outbox.Dead, calls: 2, copies: true},
		{name: "label", on: outbox.Label, failures: 1, state: outbox.Sent, calls: 2, arrived: []string{"(may be a repeat) x"}, copies: true},
		{name: "hold", on: outbox.Hold, failures: 1, state: outbox.Dead, calls: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rules.OnUncertain = tt.on
				r := newRig(t, withRules(rules))
				r.fake.FailNext(tt.failures, errUncertain)
				id := r.send("a", "x")[0]
				pass(time.Minute)
				e := r.wantState(id, tt.state)
				if e.MayBeDuplicate != tt.copies {
					t.Errorf("MayBeDuplicate = %v, want %v", e.MayBeDuplicate, tt.copies)
				}
				r.wantCalls(tt.calls)
				r.wantArrived("a", tt.arrived...)
			})
		})
	}
}

// panicking is an adapter that panics at its first sends.
type panicking struct {
	process
	left *int
}

func (p panicking) Send(ctx context.Context, t chat.Target, part chat.Part) (chat.Receipt, error) {
	if *p.left > 0 {
		*p.left--
		panic("adapter")
	}
	return p.process.Send(ctx, t, part)
}

// wrapped starts the rig's router over another adapter.
func (r *rig) wrapped(wrap func(process) adapters.Adapter) {
	r.t.Helper()
	l, err := limiter.New(r.cfg)
	if err != nil {
		r.t.Fatalf("limiter.New() = %v", err)
	}
	r.router = delivery.New(r.box, r.opts)
	if err := r.router.Add(wrap(process{Fake: r.fake, limiter: l}), "fake"); err != nil {
		r.t.Fatalf("Add() = %v", err)
	}
	r.start()
}

func TestRouter_panicOfAnAdapterIsUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t)
		left := 1
		r.wrapped(func(p process) adapters.Adapter { return panicking{process: p, left: &left} })
		id := r.send("a", "x")[0]
		pass(time.Minute)
		if e := r.wantState(id, outbox.Sent); !e.MayBeDuplicate {
			t.Error("MayBeDuplicate = false, want true")
		}
	})
}

// undialled is an adapter that surely sent nothing when its time is over.
type undialled struct{ process }

func (u undialled) Send(ctx context.Context, _ chat.Target, _ chat.Part) (chat.Receipt, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func TestRouter_timeoutBeforeAnythingWasSentCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := outbox.DefaultRules()
		rules.MinAge = time.Minute
		r := build(t, withRules(rules))
		r.wrapped(func(p process) adapters.Adapter { return undialled{p} })
		id := r.send("a", "x")[0]
		pass(20 * time.Minute)
		if e := r.wantState(id, outbox.Dead); e.Attempts != 5 || e.MayBeDuplicate {
			t.Errorf("entry %+v, want five attempts and no copy", e)
		}
	})
}

func TestRouter_cutsAHungCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withOptions(delivery.Options{SendTimeout: 20 * time.Second}))
		start := time.Now()
		release := r.fake.BlockChat("hung")
		id := r.send("hung", "x")[0]
		r.send("other", "1", "2", "3")
		pass(time.Second)
		r.wantArrived("other", "1", "2", "3")
		pass(21 * time.Second)
		release()
		pass(time.Second)
		if e := r.wantState(id, outbox.Sent); !e.MayBeDuplicate {
			t.Error("MayBeDuplicate = false, want true")
		}
		within(t, "the second call", r.calls("hung", start)[1], 20*time.Second, 21*time.Second)
	})
}

// The process dies between the platform's answer and the commit, and is
// started three times more.
func TestRouter_atMostOneCopyAfterACrash(t *testing.T) {
	for _, again := range []int{0, 1} {
		t.Run(fmt.Sprintf("%d more crashes", again), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				settled := func(b outbox.Batch) bool { return len(b.Settled) > 0 && b.Settled[0].Delivered }
				r.box.dieAt(settled)
				id := r.send("a", "x")[0]
				pass(time.Second)
				r.bury()
				for i := range 4 {
					r.restart0(func() {
						if i < again {
							r.box.dieAt(settled)
						}
					})
					pass(time.Minute)
					if i < again {
						r.bury()
					}
				}
				if n := len(r.arrived("a")); n != 2 {
					t.Errorf("the message arrived %d times, want twice", n)
				}
				want := []outbox.State{outbox.Sent, outbox.Dead}[again]
				if e := r.wantState(id, want); !e.MayBeDuplicate {
					t.Error("MayBeDuplicate = false, want true")
				}
			})
		})
	}
}

func TestRouter_temporaryFailures(t *testing.T) {
	tests := []struct {
		name   string
		minAge time.Duration
		least  int // calls
	}{
		{name: "dead after the attempts", minAge: 0, least: 5},
		{name: "not before the age", minAge: 30 * time.Minute, least: 30},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rules := outbox.DefaultRules()
				rules.MinAge = tt.minAge
				r := newRig(t, withRules(rules))
				start := time.Now()
				r.fake.FailChat("a", errTemporary)
				id := r.send("a", "x")[0]
				next := r.send("a", "y")[0]
				pass(2 * time.Hour)
				e := r.wantState(id, outbox.Dead)
				r.wantState(next, outbox.Dead)
				if age := e.EndedAt.Sub(start); age < tt.minAge || age > tt.minAge+5*time.Minute {
					t.Errorf("dead after %v, want soon after %v", age, tt.minAge)
				}
				if e.Attempts < tt.least {
					t.Errorf("%d attempts, want at least %d", e.Attempts, tt.least)
				}
			})
		})
	}
}

func TestRouter_probesAnOutage(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, withLimits(limiter.Config{MessagesPerSecond: 25, BurstSize: 30, PerChannelDelay: 50 * time.Millisecond}))
				start := time.Now()
				for i := range 5 {
					id := fmt.Sprint("c", i)
					r.fake.FailChat(chat.ChatID(id), errTemporary)
					r.send(id, "x")
				}
				pass(2 * time.Minute)
				last := start
				for _, a := range r.fake.Attempts() {
					if gap := a.At.Sub(last); gap > 5*time.Second {
						t.Errorf("no call for %v of the outage, want one every 5 s", gap)
					}
					last = a.At
				}
				if restart {
					r.kill()
					r.restart()
				}
				for i := range 5 {
					r.fake.HealChat(chat.ChatID(fmt.Sprint("c", i)))
				}
				pass(6 * time.Second)
				if got := r.arrived(""); len(got) != 5 {
					t.Errorf("%d messages arrived within 6 s of the recovery, want all 5", len(got))
				}
			})
		})
	}
}

// Thousands of calls that hang leave room for the others.
func TestRouter_hungChatsDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 25
		r := newRig(t, withLimits(limiter.Config{MessagesPerSecond: rate, BurstSize: 30}))
		start := time.Now()
		for i := range 30 * rate { // as many as can leave within the time that one may hang
			id := fmt.Sprint("hung", i)
			defer r.fake.BlockChat(chat.ChatID(id))()
			r.send(id, "x")
		}
		pass(29 * time.Second)
		q := text("well", "x")
		q.Priority = outbox.Reply
		asked := time.Since(start)
		r.deliver(q)
		pass(time.Second)
		at := r.calls("well", start)
		if len(at) != 1 {
			t.Fatalf("%d calls to the chat that is well, want 1", len(at))
		}
		within(t, "its call", at[0]-asked, 0, 2*time.Second/rate)
	})
}

func TestRouter_oneFailingChatIsNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailChat("bad", errTemporary)
		r.send("bad", "x", "y", "z")
		for i := range 600 {
			pass(time.Second)
			r.send(fmt.Sprint("good", i%10), "x")
		}
		if n := len(r.calls("bad", time.Now())); n > 60 {
			t.Errorf("%d calls to the failing chat in 10 minutes, want few", n)
		}
		if n := len(r.arrived("")); n < 599 {
			t.Errorf("%d messages arrived in other chats, want all", n)
		}
	})
}

func TestRouter_failuresOfAMessageLeaveItsChatAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailOnce(errRejected)
		rejected := r.send("a", "1")[0]
		pass(time.Second)
		r.fake.FailOnce(&chat.SendError{Kind: chat.Degradable, Err: errWire})
		q := text("a", "2")
		q.Message.ReplyTo = "r0"
		plainer := r.deliver(q)
		pass(time.Second)
		r.fake.FailNext(2, &chat.SendError{Kind: chat.Degradable, Err: errWire})
		twice := r.deliver(q)
		pass(time.Second)
		r.wantState(rejected, outbox.Dead)
		r.wantState(plainer, outbox.Sent)
		r.wantState(twice, outbox.Dead)
		r.wantArrived("a", "2")
		if d := r.fake.Deliveries()[0]; d.Part.ReplyTo != "" {
			t.Errorf("the part that passed answers %q, want its plain form", d.Part.ReplyTo)
		}
		r.wantCalls(5)
		r.send("a", "3")
		pass(time.Second)
		r.wantArrived("a", "2", "3")
	})
}

func TestRouter_pausesWhileTheLoginIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pauses := 0
		var r *rig
		r = newRig(t, withOptions(delivery.Options{OnPause: func(chat.BotName, error) {
			pauses++
			_ = r.router.Status(testBot)
		}}))
		release := r.fake.Block()
		r.fake.FailNext(2, errLogin)
		r.fake.FailProbe(errLogin)
		ids := r.send("a", "1", "2")
		ids = append(ids, r.send("b", "1")...)
		synctest.Wait()
		release()
		pass(time.Hour)
		ids = append(ids, r.send("c", "1")...)
		pass(time.Hour)
		r.wantCalls(2)
		if s := r.router.Status(testBot); s.Paused == nil || pauses != 1 || s.Pending != 4 {
			t.Errorf("Status() = %+v and %d pauses, want paused, once, with 4 pending", s, pauses)
		}
		r.fake.FailProbe(nil)
		r.router.Resume(testBot)
		pass(time.Second)
		for _, id := range ids {
			r.wantState(id, outbox.Sent)
		}
		r.wantArrived("a", "1", "2")
	})
}

func TestRouter_keepsSecretsAndTextOutOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailOnce(errTemporary)
		r.send("a", "text")
		pass(time.Minute)
		all := r.fake.Attempts()
		if len(all) != 2 || all[0].Part.Key != all[1].Part.Key || all[0].Part.Key == "" || strings.Contains(all[0].Part.Key, "text") {
			t.Errorf("keys of %+v, want one key for both attempts", all)
		}
	})
}
