package delivery_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/adapters/adaptertest"
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

// wantOrder fails unless each lane has its texts, 0 to n-1, in order.
func wantOrder(t *testing.T, r *rig, lanes, n int) {
	t.Helper()
	got := map[chat.Target][]string{}
	for _, d := range r.fake.Deliveries() {
		got[d.Target] = append(got[d.Target], d.Part.Text)
	}
	if len(got) != lanes {
		t.Errorf("messages arrived in %d lanes, want %d", len(got), lanes)
	}
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint(i))
	}
	for target, texts := range got {
		if !slices.Equal(texts, want) {
			t.Errorf("%v got %q, want 0 to %d in order", target, texts, n-1)
		}
	}
}

func lane(i int) string { return fmt.Sprintf("c%d/%d", i/2, i%2) }

func TestRouter_keepsOrderInEachLane(t *testing.T) {
	const lanes, each = 50, 20
	tests := []struct {
		name string
		err  error
	}{
		{name: "when all goes well"},
		{name: "over temporary failures", err: errTemporary},
		{name: "over waits of a chat", err: limited(chat.ScopeChannel, 200*time.Millisecond)},
		{name: "over waits of the bot", err: limited(chat.ScopeBot, 50*time.Millisecond)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				if tt.err != nil {
					for range 300 { // one call in four fails
						r.fake.FailOnce(tt.err)
						r.fake.FailNext(3, nil)
					}
				}
				var callers sync.WaitGroup
				for l := range lanes {
					callers.Go(func() {
						for i := range each {
							r.send(lane(l), fmt.Sprint(i))
						}
					})
				}
				callers.Wait()
				pass(time.Hour)
				wantOrder(t, r, lanes, each)
				if s := r.router.Status(testBot); s.Pending != 0 || s.InFlight != 0 {
					t.Errorf("Status() = %+v, want nothing left", s)
				}
			})
		})
	}
}

func TestRouter_hasOneCallInFlightInALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		release := r.fake.Block()
		for i := range 5 {
			r.send("a", fmt.Sprint(i))
			r.send("b", fmt.Sprint(i))
			r.send("b/1", fmt.Sprint(i))
		}
		pass(time.Second)
		r.wantCalls(3)
		release()
		pass(time.Second)
		wantOrder(t, r, 3, 5)
	})
}

func TestRouter_blocksOnlyTheLaneOfARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailOnce(limited(chat.ScopeChannel, 2*time.Second))
		r.send("a", "A")
		pass(100 * time.Millisecond)
		r.send("a", "B")
		r.send("c", "C")
		pass(100 * time.Millisecond)
		r.wantArrived("", "C")
		pass(3 * time.Second)
		r.wantArrived("", "C", "A", "B")
	})
}

func TestRouter_goesOnAtTheFirstUnsentPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t)
		r.fake = adaptertest.NewFake(t, adaptertest.WithCapabilities(chat.Capabilities{MaxText: 10, TextUnit: chat.CodePoints}))
		r.close()
		r.open()
		r.start()
		r.fake.FailNext(2, nil)
		r.fake.FailOnce(errTemporary)
		r.fake.FailNext(1, nil)
		r.fake.FailOnce(limited(chat.ScopeChannel, time.Hour))
		long := strings.Repeat("0123456789", 3) + "abcdefghij" + "klmnopqrst"
		id := r.send("a", long)[0]
		r.send("a", "next")
		pass(time.Minute)
		if got := strings.Join(r.arrived("a"), ""); got != long[:30] {
			t.Errorf("arrived %q before the restart, want the first three parts once", got)
		}
		r.kill()
		r.restart()
		pass(2 * time.Hour)
		if got := strings.Join(r.arrived("a"), ""); got != long+"next" {
			t.Errorf("arrived %q, want every part once and in order", got)
		}
		if e := r.wantState(id, outbox.Sent); len(e.Receipts) != 5 || e.MayBeDuplicate {
			t.Errorf("entry %+v, want five receipts and no copy", e)
		}
	})
}

// A message that has begun goes on before an older one that became due meanwhile.
func TestRouter_keepsPartsTogetherOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t, withLimits(limiter.Config{MessagesPerSecond: 1, BurstSize: 1}))
		r.fake = adaptertest.NewFake(t, adaptertest.WithCapabilities(chat.Capabilities{MaxText: 2, TextUnit: chat.CodePoints}))
		r.close()
		r.open()
		r.start()
		q := text("a", "zz")
		q.NotBefore = time.Now().Add(1500 * time.Millisecond)
		r.deliver(q)
		r.send("a", "aabbccdd")
		pass(1700 * time.Millisecond)
		r.kill()
		r.restart()
		pass(time.Minute)
		r.wantArrived("a", "aa", "bb", "cc", "dd", "zz")
	})
}

func TestRouter_keepsOrderOverKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lanes, each = 10, 12
		r := newRig(t)
		rnd := rand.New(rand.NewPCG(1, 2))
		sent := 0
		for i := range each {
			for l := range lanes {
				if rnd.IntN(4) == 0 {
					r.fake.FailOnce(errTemporary)
				}
				r.send(lane(l), fmt.Sprint(i))
				sent++
			}
			if i%4 == 3 {
				r.kill()
				r.restart()
			}
		}
		pass(time.Hour)
		wantOrder(t, r, lanes, each)
		if got := len(r.fake.Deliveries()); got != sent {
			t.Errorf("%d deliveries, want %d: nothing twice", got, sent)
		}
	})
}

func TestRouter_loadsWhatCameBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t)
		r.send("a", "1", "2")
		r.send("b", "1")
		pass(time.Minute)
		r.wantCalls(0)
		if s := r.router.Status(testBot); s.Owned || s.InFlight != 0 {
			t.Errorf("Status() before Run = %+v", s)
		}
		r.start()
		r.send("a", "3")
		pass(time.Second)
		r.wantArrived("a", "1", "2", "3")
		r.wantCalls(4)
	})
}

// A process that stands by only stores; what the owner has sent meanwhile is
// not sent again when it takes over.
func TestRouter_doesNotRepeatWhatAnotherOwnerSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := build(t)
		r.send("a", "1", "2")
		other, standby := build(t), r
		other.store = r.store
		other.fake = r.fake
		other.open()
		other.start()
		pass(time.Second)
		r.wantArrived("a", "1", "2")
		other.stop()
		standby.start()
		pass(time.Second)
		r.wantCalls(2)
		standby.send("a", "3")
		pass(time.Second)
		r.wantArrived("a", "1", "2", "3")
		if s := standby.router.Status(testBot); s.Pending != 0 {
			t.Errorf("Status() = %+v, want nothing pending", s)
		}
	})
}

// Whatever is stored while the backlog is read is sent once.
func TestRouter_sendsOnceWhatComesWhileItLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for round := range 12 {
			r := build(t)
			var callers sync.WaitGroup
			for c := range 4 {
				callers.Go(func() {
					for i := range 5 {
						r.send(fmt.Sprint(c), fmt.Sprint(i))
					}
				})
			}
			r.start()
			callers.Wait()
			pass(time.Minute)
			wantOrder(t, r, 4, 5)
			r.wantCalls(20)
			if s := r.router.Status(testBot); s.Pending != 0 {
				t.Errorf("round %d: Status() = %+v, want nothing pending", round, s)
			}
			r.stop()
		}
	})
}
