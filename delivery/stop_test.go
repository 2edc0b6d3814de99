package delivery_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

func TestRouter_fullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		release := r.fake.Block()
		var ids []outbox.ID
		for i := range 10 {
			ids = append(ids, r.send(fmt.Sprint(i%5), fmt.Sprint(i/5))...)
		}
		synctest.Wait()
		r.box.fail(outbox.ErrNoSpace)
		release()
		before := r.box.applies()
		pass(time.Minute)
		if err := r.refuse(text("a", "x")); !errors.Is(err, outbox.ErrNoSpace) {
			t.Errorf("Deliver() = %v, want ErrNoSpace", err)
		}
		r.wantCalls(5) // what can't be stored as sending isn't sent
		if n := r.box.applies() - before; n > 20*60 {
			t.Errorf("%d commits were tried in a minute on a full disk, want about one a second for each call", n)
		}
		r.box.fail(nil)
		pass(time.Minute)
		for _, id := range ids {
			r.wantState(id, outbox.Sent)
		}
		r.wantCalls(10)
		wantOrder(t, r, 5, 2)
		if s := r.router.Status(testBot); s.Pending != 0 || s.InFlight != 0 {
			t.Errorf("Status() = %+v, want nothing left", s)
		}
	})
}

func TestRouter_slowDiskTakesAFreshSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := limiter.Config{MessagesPerSecond: 2, BurstSize: 4}
		r := newRig(t, withLimits(cfg))
		gate := make(chan struct{})
		r.box.hold(gate)
		var callers sync.WaitGroup
		for i := range 4 {
			callers.Go(func() { r.send(fmt.Sprint(i), "x") })
		}
		pass(10 * time.Second)
		r.box.hold(nil)
		close(gate)
		callers.Wait()
		for i := range 8 {
			r.send(fmt.Sprint("more", i), "x")
		}
		pass(time.Minute)
		all := r.fake.Attempts()
		for i := range all {
			for j := i; j < len(all); j++ {
				if n, d := j-i+1, all[j].At.Sub(all[i].At); float64(n) > 2*(d.Seconds()+0.1)+4 {
					t.Fatalf("%d calls within %v, want the ceiling kept", n, d)
				}
			}
		}
		r.wantCalls(12)
	})
}

// A chat may be told to wait while a commit is slow; its message then gives
// its place in flight back.
func TestRouter_slowDiskAndALongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withOptions(delivery.Options{SendTimeout: 10 * time.Second}))
		release := r.fake.Block()
		r.fake.FailOnce(limited(chat.ScopeBot, time.Hour))
		r.send("a", "1")
		synctest.Wait()
		gate := make(chan struct{})
		r.box.hold(gate)
		done := make(chan error, 1)
		go func() {
			_, err := r.router.Deliver(t.Context(), text("b", "1"))
			done <- err
		}()
		synctest.Wait()
		release()
		pass(time.Second)
		r.box.hold(nil)
		close(gate)
		if err := <-done; err != nil {
			t.Fatalf("Deliver() = %v", err)
		}
		pass(time.Minute)
		if s := r.router.Status(testBot); s.InFlight != 0 || s.Pending != 2 {
			t.Errorf("Status() = %+v, want both waiting and nothing in flight", s)
		}
		pass(time.Hour)
		if got := len(r.fake.Deliveries()); got != 2 {
			t.Errorf("%d deliveries after the wait, want 2", got)
		}
		r.wantCalls(3)
	})
}

func TestRouter_endsWhenAnotherTakesTheBot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		if _, err := r.store.Acquire(t.Context(), testBot); err != nil {
			t.Fatalf("Acquire() = %v", err)
		}
		id := r.send("a", "x")[0] // stored for the new owner
		synctest.Wait()
		if err := <-r.done; !errors.Is(err, outbox.ErrNotOwner) {
			t.Errorf("Run() = %v, want ErrNotOwner", err)
		}
		r.cancel()
		r.cancel = nil
		r.wantState(id, outbox.Queued)
		r.wantCalls(0)
		r.start()
		pass(time.Second)
		r.wantState(id, outbox.Sent)
		r.wantCalls(1)
	})
}

func TestRouter_stop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		start := time.Now()
		release := r.fake.Block()
		flying := r.send("a", "1")[0]
		queued := r.send("a", "2")[0]
		hung := r.send("hung", "1")[0]
		again := r.fake.BlockChat("hung")
		defer again()
		synctest.Wait()
		go func() {
			time.Sleep(2 * time.Second)
			release()
		}()
		r.cancel()
		synctest.Wait()
		during := r.send("b", "1")[0]
		if err := <-r.done; err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
		r.cancel = nil
		within(t, "the end", time.Since(start), r.grace, r.grace+time.Second)
		after := r.send("b", "2")[0]
		pass(time.Minute)
		r.wantState(flying, outbox.Sent)
		r.wantState(queued, outbox.Queued)
		r.wantState(during, outbox.Queued)
		r.wantState(after, outbox.Queued)
		if e := r.wantState(hung, outbox.Waiting); !e.MayBeDuplicate {
			t.Error("the hung call left no mark of a possible copy")
		}
		r.wantCalls(2)
		again()
		r.start() // the same router once more
		pass(time.Minute)
		r.wantArrived("a", "1", "2")
		r.wantArrived("b", "1", "2")
		r.wantArrived("hung", "1")
		if s := r.router.Status(testBot); s.Pending != 0 {
			t.Errorf("Status() = %+v, want nothing pending", s)
		}
	})
}

func TestRouter_stopMakesNoNewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withLimits(limiter.Config{MessagesPerSecond: 10, BurstSize: 5}))
		for i := range 100 {
			r.send(fmt.Sprint(i), "x")
		}
		gate := make(chan struct{})
		pass(time.Second)
		r.box.hold(gate) // picked, and not yet stored as sending
		pass(time.Second)
		before := len(r.fake.Attempts())
		r.cancel()
		synctest.Wait()
		r.box.hold(nil)
		close(gate)
		if err := <-r.done; err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
		r.cancel = nil
		r.wantCalls(before)
		r.restart()
		pass(time.Minute)
		if got := len(r.fake.Deliveries()); got != 100 {
			t.Errorf("%d deliveries, want each message once", got)
		}
		r.wantCalls(100)
	})
}

// An idle router with thousands of lanes that wait wakes hardly ever.
func TestRouter_doesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lanes = 1000
		r := newRig(t, withOptions(delivery.Options{SendTimeout: time.Minute}))
		r.flood(lanes, func(i int) delivery.Request {
			q := text(fmt.Sprint(i), "x")
			q.NotBefore = time.Now().Add(48 * time.Hour)
			return q
		})
		r.fake.FailNext(lanes, limited(chat.ScopeChannel, 24*time.Hour))
		r.flood(lanes, func(i int) delivery.Request { return text(fmt.Sprint("p", i), "x") })
		pass(time.Second)
		before := r.box.applies()
		began := time.Now()
		pass(23 * time.Hour)
		if n := r.box.applies() - before; n > 0 {
			t.Errorf("%d commits in %v of waiting, want none", n, time.Since(began))
		}
		r.wantCalls(lanes)
		pass(48 * time.Hour)
		if n := len(r.fake.Deliveries()); n != 2*lanes {
			t.Errorf("%d deliveries, want %d", n, 2*lanes)
		}
	})
}
