package inbound_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/inbound"
)

func TestPipeline_answersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inbound.Options{}, nil)
		e := r.event("a", "hi")
		r.emit(e, e)
		r.emit(e)
		pass(time.Second)
		r.restart()
		r.emit(e)
		pass(time.Second)
		r.wantRuns("hi#1")
		r.wantArrived("a", "re: hi")
		r.wantUnfinished(0)
	})
}

func TestPipeline_storesBeforeThePlatformIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inbound.Options{}, nil)
		e := r.event("a", "hi")
		r.disk.fail(errDisk)
		if err := r.fake.Emit(t.Context(), e); !errors.Is(err, errDisk) {
			t.Errorf("the sink said %v, want the journal's error", err)
		}
		pass(time.Minute)
		r.wantRuns()
		r.disk.fail(nil)
		r.emit(e) // the platform repeats it
		pass(time.Second)
		r.wantArrived("a", "re: hi")
	})
}

func TestPipeline_ignoresWhatIsNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inbound.Options{}, nil)
		for _, kind := range []chat.EventKind{chat.EventReaction, chat.EventMembership, chat.EventOther} {
			e := r.event("a", kind.String())
			e.Kind = kind
			r.emit(e)
		}
		e := r.event("a", "from a bot")
		e.FromBot = true
		r.emit(e)
		pass(time.Second)
		r.wantRuns()
		r.wantUnfinished(0)
	})
}

func TestPipeline_oneTurnAtATimeInAChat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, most := map[chat.ChatID]int{}, 0
		var r *rig
		r = newRig(t, inbound.Options{MaxConcurrent: 3}, func(_ context.Context, t inbound.Turn) ([]chat.Message, error) {
			r.mu.Lock()
			id := t.Event.Source.Chat
			running[id]++
			if running[id] > 1 {
				r.t.Errorf("%d turns run in %s", running[id], id)
			}
			all := 0
			for _, n := range running {
				all += n
			}
			most = max(most, all)
			r.mu.Unlock()
			time.Sleep(time.Second)
			r.mu.Lock()
			running[id]--
			r.mu.Unlock()
			return []chat.Message{{Text: t.Event.Text}}, nil
		})
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			r.say(id, "1", "2", "3")
		}
		pass(6 * time.Second)
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			r.wantArrived(id, "1", "2", "3")
		}
		if most != 3 {
			t.Errorf("at most %d turns ran at once, want 3", most)
		}
	})
}

func TestPipeline_isFairBetweenChats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inbound.Options{MaxConcurrent: 1}, func(context.Context, inbound.Turn) ([]chat.Message, error) {
			time.Sleep(time.Second)
			return nil, nil
		})
		r.say("loud", "l1", "l2", "l3", "l4", "l5")
		r.say("quiet", "q1")
		pass(10 * time.Second)
		r.wantRuns("l1#1", "q1#1", "l2#1", "l3#1", "l4#1", "l5#1")
	})
}

func TestPipeline_retriesInOrderAndGivesUp(t *testing.T) {
	tests := []struct {
		name string
		fail func(ctx context.Context) error
	}{
		{name: "an error", fail: func(context.Context) error { return errors.New("no model") }},
		{name: "a panic", fail: func(context.Context) error { panic("handler") }},
		{name: "a timeout", fail: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, inbound.Options{MaxAttempts: 3, Timeout: time.Minute}, func(ctx context.Context, t inbound.Turn) ([]chat.Message, error) {
					if t.Event.Text == "bad" || t.Event.Text == "flaky" && t.Attempt < 2 {
						return nil, tt.fail(ctx)
					}
					return []chat.Message{{Text: "re: " + t.Event.Text}}, nil
				})
				r.say("a", "bad", "flaky", "good")
				r.say("b", "other")
				synctest.Wait()
				r.wantArrived("b", "re: other")
				pass(time.Hour)
				r.wantArrived("a", "re: flaky", "re: good")
				r.forget("other") // runs beside the first one, in no order
				r.wantRuns("bad#1", "bad#2", "bad#3", "flaky#1", "flaky#2", "good#1")
				r.wantUnfinished(0)
			})
		})
	}
}

func TestPipeline_waitsForTheStoreAtATurnsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		r = newRig(t, inbound.Options{}, func(context.Context, inbound.Turn) ([]chat.Message, error) {
			r.disk.fail(errDisk)
			return []chat.Message{{Text: "1"}, {Text: "2"}}, nil
		})
		r.say("a", "hi")
		pass(time.Minute)
		r.wantArrived("a")
		r.wantRuns("hi#1")
		r.disk.fail(nil)
		pass(2 * time.Second)
		r.wantArrived("a", "1", "2")
		r.wantRuns("hi#1")
		r.wantUnfinished(0)
	})
}

func TestPipeline_stop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inbound.Options{MaxConcurrent: 2}, func(ctx context.Context, t inbound.Turn) ([]chat.Message, error) {
			if t.Event.Text == "hangs" && t.Attempt == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			time.Sleep(2 * time.Second)
			return []chat.Message{{Text: "re: " + t.Event.Text}}, nil
		})
		r.say("a", "short", "next")
		synctest.Wait()
		r.say("b", "hangs")
		synctest.Wait()
		r.say("c", "waits")
		pass(time.Second)
		began := time.Now()
		r.stop()
		if took := time.Since(began); took != r.grace {
			t.Errorf("the stop took %v, want the grace of %v", took, r.grace)
		}
		r.wantRuns("short#1", "hangs#1")
		if err := r.pipeline.Accept(t.Context(), r.event("a", "late")); !errors.Is(err, inbound.ErrStopping) {
			t.Errorf("Accept() after the stop = %v, want ErrStopping", err)
		}
		r.start()
		pass(time.Minute)
		slices.SortFunc(r.runs, func(a, b run) int { return cmp.Or(strings.Compare(a.text, b.text), a.attempt-b.attempt) })
		r.wantRuns("hangs#1", "hangs#2", "next#1", "short#1", "waits#1")
		r.wantArrived("a", "re: short", "re: next")
		r.wantArrived("b", "re: hangs")
		r.wantUnfinished(0)
	})
}

// An event that ends the process each time is given up on in the end.
func TestPipeline_givesUpOnWhatIsAlwaysCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inbound.Options{MaxAttempts: 2}, func(ctx context.Context, _ inbound.Turn) ([]chat.Message, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		r.say("a", "poison")
		for range 4 {
			pass(time.Second)
			r.restart()
		}
		r.wantRuns("poison#1", "poison#2")
		r.wantUnfinished(0)
	})
}

func TestPipeline_recoversBeforeNewEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const old = 250
		r := newRig(t, inbound.Options{MaxConcurrent: 1, MaxWaiting: 20}, func(ctx context.Context, t inbound.Turn) ([]chat.Message, error) {
			time.Sleep(time.Second)
			return []chat.Message{{Text: t.Event.Text}}, ctx.Err()
		})
		r.stop()
		r.open()
		var want []string
		for i := range old {
			if _, err := r.disk.Accept(t.Context(), inbound.Intake{Event: r.event("a", fmt.Sprint(i))}); err != nil {
				t.Fatalf("Accept() = %v", err)
			}
			want = append(want, fmt.Sprint(i))
		}
		r.launch(func(ctx context.Context) error { return r.router.Run(ctx, testBot, r.grace) })
		r.launch(func(ctx context.Context) error { return r.pipeline.Run(ctx, r.grace) })
		pushed := make(chan error, 3)
		go func() { pushed <- r.pipeline.Accept(t.Context(), r.event("a", "early")) }() // pushed before the recovery
		want = append(want, "early")
		synctest.Wait()
		go func() { pushed <- r.pipeline.Recover(t.Context(), testBot) }()
		synctest.Wait()
		go func() { pushed <- r.pipeline.Accept(t.Context(), r.event("a", "new")) }()
		want = append(want, "new")
		for range 3 {
			if err := <-pushed; err != nil {
				t.Errorf("Accept or Recover = %v", err)
			}
		}
		pass(time.Hour)
		r.wantUnfinished(0)
		got := map[string]int{}
		for _, d := range r.fake.Deliveries() {
			got[d.Part.Text]++
		}
		for _, s := range want {
			if got[s] != 1 {
				t.Errorf("%q was answered %d times, want once", s, got[s])
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		last := r.runs[len(r.runs)-1]
		if last.text != "new" || len(r.runs) != old+2 {
			t.Errorf("%d runs, the last of %q, want %d and the new event last", len(r.runs), last.text, old+2)
		}
	})
}

func TestPipeline_leavesEventsWithThePlatformWhenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		r := newRig(t, inbound.Options{MaxWaiting: 3, MaxConcurrent: 1}, func(context.Context, inbound.Turn) ([]chat.Message, error) {
			<-hold
			return nil, nil
		})
		for _, id := range []string{"x", "y", "z"} {
			r.say(id, "1")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		late := r.event("b", "4")
		began := time.Now()
		if err := r.pipeline.Accept(ctx, late); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("Accept() = %v after %v, want it to give up with its context", err, time.Since(began))
		}
		r.wantUnfinished(3)
		done := make(chan error, 1)
		go func() { done <- r.pipeline.Accept(t.Context(), late) }()
		synctest.Wait()
		close(hold)
		if err := <-done; err != nil {
			t.Errorf("Accept() = %v, want nil once there is room", err)
		}
		r.say("c", "1", "2", "3", "4", "5", "6", "7") // more than fit at once
		pass(time.Second)
		r.wantUnfinished(0)
	})
}

func TestPipeline_followsWhatEventsSayOfTheirChat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inbound.Options{}, nil)
		q := delivery.Request{Target: chat.Target{Bot: testBot, Chat: "a"}, Message: chat.Message{Text: "x"}}
		r.fake.FailOnce(&chat.SendError{Kind: chat.TargetGone, Err: errors.New("blocked")})
		if _, err := r.router.Deliver(t.Context(), q); err != nil {
			t.Fatalf("Deliver() = %v", err)
		}
		pass(time.Second)
		if _, err := r.router.Deliver(t.Context(), q); err == nil {
			t.Fatal("Deliver() to a dead chat = nil, want an error")
		}
		r.say("a", "hi")
		pass(time.Second)
		r.wantArrived("a", "re: hi")

		e := r.event("a", "")
		e.Kind, e.MovedTo = chat.EventMoved, "b"
		r.emit(e)
		if _, err := r.router.Deliver(t.Context(), q); err != nil {
			t.Fatalf("Deliver() = %v", err)
		}
		pass(time.Second)
		r.wantArrived("b", "x")
	})
}

func TestPipeline_deadTurnKeepsNoReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inbound.Options{MaxAttempts: 1}, func(context.Context, inbound.Turn) ([]chat.Message, error) {
			return []chat.Message{{Text: "half"}}, errors.New("broken")
		})
		r.say("a", "hi")
		pass(time.Second)
		r.wantArrived("a")
		r.wantUnfinished(0)
	})
}
