package inbound_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/inbound"
	"github.com/chatgateway/gateway/policy"
)

// numbers gives the texts from 0 to n-1.
func numbers(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprint(i)
	}
	return texts
}

// echoAfter is a handler that takes its time and repeats the text.
func echoAfter(d time.Duration) inbound.HandlerFunc {
	return func(ctx context.Context, t inbound.Turn) ([]chat.Message, error) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			return []chat.Message{{Text: t.Event.Text}}, nil
		}
	}
}

// wantOnce wants each text answered once, in any order.
func (r *rig) wantOnce(id string, want []string) {
	r.t.Helper()
	got := map[string]int{}
	for _, d := range r.fake.Deliveries() {
		if string(d.Target.Chat) == id {
			got[d.Part.Text]++
		}
	}
	for _, s := range want {
		if got[s] != 1 {
			r.t.Errorf("%q of %s was answered %d times, want once", s, id, got[s])
		}
	}
	if len(got) != len(want) {
		r.t.Errorf("%s got %d answers, want %d", id, len(got), len(want))
	}
}

func TestSpill_oneChatHoldsUpNobody(t *testing.T) {
	tests := []struct {
		name  string
		batch int
		fail  error
	}{
		{name: "in one batch to a slow handler", batch: 3000},
		{name: "in many batches to a slow handler", batch: 100},
		{name: "to a failing handler", batch: 100, fail: errors.New("no model")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, inbound.Options{MaxAttempts: 1000}, func(ctx context.Context, t inbound.Turn) ([]chat.Message, error) {
					if t.Event.Source.Chat == "flood" {
						if _, err := echoAfter(time.Minute)(ctx, t); err != nil || tt.fail != nil {
							return nil, errors.Join(err, tt.fail)
						}
					}
					return []chat.Message{{Text: t.Event.Text}}, nil
				})
				began := time.Now()
				for part := range slices.Chunk(numbers(3000), tt.batch) {
					r.say("flood", part...)
				}
				r.say("b", "hi")
				if took := time.Since(began); took > time.Second {
					t.Errorf("the intake took %v, want no wait", took)
				}
				pass(time.Second)
				r.wantArrived("b", "hi")
			})
		})
	}
}

func TestSpill_keepsOrderAndRunsOnce(t *testing.T) {
	for _, waiting := range []int{1, 20, 1000} {
		t.Run(fmt.Sprint("room for ", waiting), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				texts := numbers(200)
				r := newRig(t, inbound.Options{MaxWaiting: waiting, MaxConcurrent: 3}, func(ctx context.Context, t inbound.Turn) ([]chat.Message, error) {
					if len(t.Event.Text)%3 == 2 && t.Attempt == 1 {
						return nil, errors.New("flaky")
					}
					return echoAfter(10*time.Millisecond)(ctx, t)
				})
				var group sync.WaitGroup
				chats := []string{"a", "b", "c"}
				for n, id := range chats {
					group.Go(func() {
						for part := range slices.Chunk(texts, 7*n+1) {
							events := make([]chat.Event, len(part))
							for i, s := range part {
								events[i] = r.event(id, s)
							}
							if err := r.pipeline.Accept(t.Context(), events...); err != nil {
								t.Errorf("Accept() = %v", err)
							}
						}
					})
				}
				for _, s := range texts[:60] { // these don't wait for each other: no order, but each once
					e := r.event("crowd", s)
					group.Go(func() {
						if err := r.pipeline.Accept(t.Context(), e); err != nil {
							t.Errorf("Accept() = %v", err)
						}
					})
				}
				group.Wait()
				pass(3 * time.Hour)
				for _, id := range chats {
					r.wantArrived(id, texts...)
				}
				r.wantOnce("crowd", texts[:60])
				r.wantUnfinished(0)
			})
		})
	}
}

func TestSpill_recoversALongBacklogBesideOthers(t *testing.T) {
	for _, waiting := range []int{4, 1000} {
		t.Run(fmt.Sprint("room for ", waiting), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, inbound.Options{MaxWaiting: waiting, Policy: &lenient{}}, func(ctx context.Context, t inbound.Turn) ([]chat.Message, error) {
					if t.Event.Source.Chat == "flood" {
						return echoAfter(time.Minute)(ctx, t)
					}
					return []chat.Message{{Text: t.Event.Text}}, nil
				})
				texts := numbers(500)
				for _, s := range texts {
					if _, err := r.disk.Accept(t.Context(), inbound.Intake{Event: r.event("flood", s)}); err != nil {
						t.Fatalf("Accept() = %v", err)
					}
				}
				for i := range 50 {
					if _, err := r.disk.Accept(t.Context(), inbound.Intake{Event: r.event(fmt.Sprint("c", i), "hi")}); err != nil {
						t.Fatalf("Accept() = %v", err)
					}
				}
				began := time.Now()
				r.restart()
				pass(30 * time.Second)
				if took := time.Since(began); took > time.Minute {
					t.Errorf("the start took %v, want no wait for the chat", took)
				}
				for i := range 50 {
					r.wantArrived(fmt.Sprint("c", i), "hi")
				}
				r.say("flood", "new")
				pass(10 * time.Hour)
				r.wantArrived("flood", append(texts, "new")...)
				r.wantUnfinished(0)
			})
		})
	}
}

func TestSpill_survivesStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inbound.Options{MaxWaiting: 40}, echoAfter(time.Second))
		r.grace = 300 * time.Millisecond
		texts := numbers(120)
		r.say("a", texts[:60]...)
		pass(10*time.Second + 100*time.Millisecond)
		r.restart()
		r.say("a", texts[60:]...)
		r.say("b", "hi")
		for range 4 {
			pass(10*time.Second + 100*time.Millisecond)
			r.restart()
		}
		pass(time.Hour)
		r.wantArrived("a", texts...)
		r.wantArrived("b", "hi")
		r.wantUnfinished(0)
	})
}

func TestSpill_waitsForTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inbound.Options{}, echoAfter(time.Second))
		texts := numbers(100)
		r.say("a", texts...)
		r.disk.failReads(errDisk)
		pass(time.Hour)
		r.wantArrived("a", texts[:16]...)
		r.say("a", "new")
		r.say("b", "hi")
		pass(2 * time.Second)
		r.wantArrived("b", "hi")
		r.wantArrived("a", texts[:16]...)
		r.disk.failReads(nil)
		pass(time.Hour)
		r.wantArrived("a", append(texts, "new")...)
		r.wantUnfinished(0)
	})
}

func TestPipeline_ignoresWhatNamesNoChat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inbound.Options{}, nil)
		r.say("", "from nowhere")
		for _, id := range []string{"", "a"} {
			e := r.event(id, "")
			e.Kind = chat.EventMoved
			if id == "" {
				e.MovedTo = "b"
			}
			r.emit(e)
		}
		r.say("a", "hi")
		pass(time.Second)
		r.wantRuns("hi#1")
		r.wantArrived("a", "re: hi")
		r.wantUnfinished(0)
	})
}

// lenient is a policy that lets everybody in.
type lenient struct{}

func (*lenient) Check(context.Context, policy.Query) (policy.Decision, error) {
	return policy.Decision{Allowed: true}, nil
}
