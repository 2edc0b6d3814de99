package delivery_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

func TestRouter_waitsAsThePlatformSays(t *testing.T) {
	tests := []struct {
		name  string
		scope chat.Scope
		other time.Duration // the latest that another chat's message may leave
	}{
		{name: "in one chat", scope: chat.ScopeChannel, other: 100 * time.Millisecond},
		{name: "for the method", scope: chat.ScopeMethod, other: 3250 * time.Millisecond},
		{name: "for the bot", scope: chat.ScopeBot, other: 3250 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, withLimits(limiter.Config{MessagesPerSecond: 20, BurstSize: 5}))
				start := time.Now()
				r.fake.FailOnce(limited(tt.scope, 3*time.Second))
				id := r.send("a", "1")[0]
				synctest.Wait()
				r.send("a", "2")
				r.send("b", "1")
				pass(10 * time.Second)
				within(t, "the chat's next call", r.calls("a", start)[1], 3*time.Second, 3250*time.Millisecond)
				least := time.Duration(0)
				if tt.scope != chat.ScopeChannel {
					least = 3 * time.Second
				}
				within(t, "another chat's call", r.calls("b", start)[0], least, tt.other)
				r.wantArrived("a", "1", "2")
				if e := r.wantState(id, outbox.Sent); e.Attempts != 0 {
					t.Errorf("Attempts = %d, want 0: a limit doesn't count", e.Attempts)
				}
			})
		})
	}
}

func TestRouter_combinesOverlappingWaitsByMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		start := time.Now()
		release := r.fake.Block()
		r.fake.FailOnce(limited(chat.ScopeBot, 10*time.Second))
		r.fake.FailOnce(limited(chat.ScopeBot, 2*time.Second))
		r.send("a", "1")
		r.send("b", "1")
		r.send("c", "1") // answered well while the bot is told to wait
		synctest.Wait()
		release()
		synctest.Wait()
		r.send("d", "1")
		pass(time.Minute)
		again := r.fake.Attempts()[3:]
		if len(again) != 3 {
			t.Fatalf("%d calls after the waits, want the two repeats and d", len(again))
		}
		for _, a := range again {
			within(t, "the next call to "+string(a.Target.Chat), a.At.Sub(start), 10*time.Second, 10500*time.Millisecond)
		}
	})
}

func TestRouter_remembersAWaitOverARestart(t *testing.T) {
	for _, clean := range []bool{true, false} {
		for _, scope := range []chat.Scope{chat.ScopeChannel, chat.ScopeMethod, chat.ScopeBot} {
			t.Run(fmt.Sprintf("%v, clean %v", scope, clean), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t)
					start := time.Now()
					r.fake.FailOnce(limited(scope, 30*time.Second))
					r.send("a", "1", "2")
					pass(5 * time.Second)
					if !clean {
						r.kill()
					}
					r.restart()
					r.send("a", "3")
					pass(time.Minute)
					within(t, "the next call", r.calls("a", start)[1], 30*time.Second, 31500*time.Millisecond)
					r.wantArrived("a", "1", "2", "3")
				})
			})
		}
	}
}

func TestRouter_waitsLongerEachTimeWithoutAHint(t *testing.T) {
	for _, scope := range []chat.Scope{chat.ScopeChannel, chat.ScopeBot} {
		t.Run(scope.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				start := time.Now()
				r.fake.FailNext(12, limited(scope, 0))
				for i := range 4 {
					r.send("a", fmt.Sprint(i))
				}
				id := r.deliver(text("a", "last"))
				pass(time.Hour)
				at := r.calls("a", start)
				if len(at) != 17 {
					t.Fatalf("%d calls, want 17", len(at))
				}
				for i := 1; i <= 12; i++ {
					within(t, fmt.Sprint("call ", i), at[i]-at[i-1], time.Second, 61*time.Second)
				}
				if early, late := at[4], at[12]-at[8]; late < early {
					t.Errorf("four waits took %v at first and %v later, want them to grow", early, late)
				}
				r.wantState(id, outbox.Sent)
			})
		})
	}
}

// In no interval leave more calls than rate × (interval + 0.1 s) + burst.
func TestRouter_keepsTheCeiling(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := limiter.Config{
			MessagesPerSecond: rapid.Float64Range(0.5, 50).Draw(rt, "rate"),
			BurstSize:         rapid.IntRange(1, 20).Draw(rt, "burst"),
			PerChannelDelay:   time.Duration(rapid.IntRange(0, 2).Draw(rt, "gap")) * 200 * time.Millisecond,
		}
		chats := rapid.IntRange(1, 8).Draw(rt, "chats")
		steps := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 10).Draw(rt, "steps")
		var attempts []time.Time
		gaps := map[string][]time.Time{}
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, withLimits(cfg))
			for i, s := range steps {
				switch s {
				case 0:
					r.restart()
				case 1:
					r.kill()
					r.restart()
				case 2:
					r.fake.FailOnce(limited(chat.Scope(i%3), 700*time.Millisecond))
				case 3:
					r.fake.FailOnce(errTemporary)
				case 4, 5:
					pass(time.Duration(i+1) * 100 * time.Millisecond)
				default:
					for j := range s {
						r.send(fmt.Sprint((i+j)%chats), "x")
					}
				}
			}
			pass(time.Hour)
			for _, a := range r.fake.Attempts() {
				attempts = append(attempts, a.At)
				gaps[string(a.Target.Chat)] = append(gaps[string(a.Target.Chat)], a.At)
			}
		})
		for i := range attempts {
			for j := i; j < len(attempts); j++ {
				d := attempts[j].Sub(attempts[i])
				if n := j - i + 1; float64(n) > cfg.MessagesPerSecond*(d.Seconds()+0.1)+float64(cfg.BurstSize)+1e-6 {
					rt.Fatalf("%d calls within %v at %v/s and a burst of %d", n, d, cfg.MessagesPerSecond, cfg.BurstSize)
				}
			}
		}
		for id, at := range gaps {
			for i := 1; i < len(at); i++ {
				if d := at[i].Sub(at[i-1]); d < cfg.PerChannelDelay {
					rt.Fatalf("two calls to chat %s within %v, want at least %v", id, d, cfg.PerChannelDelay)
				}
			}
		}
	})
}

func TestRouter_repliesOvertakeABroadcast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slot = 50 * time.Millisecond
		r := newRig(t, withLimits(limiter.Config{MessagesPerSecond: 20, BurstSize: 5, PerChannelDelay: slot}))
		start := time.Now()
		r.flood(1000, func(i int) delivery.Request {
			q := text(fmt.Sprint("bulk", i), "x")
			q.Priority = outbox.Bulk
			return q
		})
		for i := range 30 {
			pass(730 * time.Millisecond)
			q := text(fmt.Sprint("person", i), "answer")
			q.Priority = outbox.Reply
			asked := time.Since(start)
			r.deliver(q)
			pass(5 * slot)
			at := r.calls(string(q.Target.Chat), start)
			if len(at) != 1 {
				t.Fatalf("reply %d had %d calls within %v, want 1", i, len(at), 5*slot)
			}
			within(t, "a reply", at[0]-asked, 0, 2*slot)
		}
		pass(time.Minute)
		within(t, "the last call", r.fake.Attempts()[1029].At.Sub(start), 50*time.Second, 52*time.Second)
	})
}

func TestRouter_lowerPrioritiesKeepATenth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withLimits(limiter.Config{MessagesPerSecond: 10, BurstSize: 1}))
		r.flood(900, func(i int) delivery.Request {
			q := text(fmt.Sprint(i), "")
			q.Priority = outbox.Bulk + outbox.Priority(i%3)
			q.Message.Text = q.Priority.String()
			return q
		})
		pass(20 * time.Second)
		n := map[string]int{}
		for _, s := range r.arrived("") {
			n[s]++
		}
		if n["bulk"]+n["proactive"] < 20 || n["bulk"] < 8 || n["proactive"] < 8 || n["reply"] < 170 {
			t.Errorf("of 200 slots %v, want nine in ten for replies and the rest shared", n)
		}
	})
}

func TestRouter_laneTakesThePriorityOfItsMostUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withLimits(limiter.Config{MessagesPerSecond: 10, BurstSize: 1}))
		for i := range 100 {
			q := text(fmt.Sprint("c", i), "x")
			q.Priority = outbox.Bulk
			r.deliver(q)
		}
		q := text("c90", "answer")
		q.Priority = outbox.Reply
		r.deliver(q)
		pass(500 * time.Millisecond)
		r.wantArrived("c90", "x", "answer")
	})
}

func TestRouter_drainsABacklogAtTheCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, withLimits(limiter.Config{MessagesPerSecond: 25, BurstSize: 30, PerChannelDelay: 50 * time.Millisecond}))
		for i := range 1000 {
			r.send(fmt.Sprint(i%50), fmt.Sprint(i/50))
		}
		start := time.Now()
		r.start()
		pass(time.Minute)
		wantOrder(t, r, 50, 20)
		all := r.fake.Attempts()
		within(t, "the last of 1,000", all[len(all)-1].At.Sub(start), 38*time.Second, 41*time.Second)
	})
}
