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
	"github.com/chatgateway/gateway/outbox"
)

func TestRouter_sendsNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		start := time.Now()
		later := text("a", "later")
		later.NotBefore = start.Add(time.Hour)
		soon := text("a", "soon")
		soon.NotBefore = start.Add(30 * time.Minute)
		r.deliver(later)
		r.deliver(soon)
		r.send("a", "now")
		pass(time.Second)
		r.wantArrived("a", "now")
		r.restart()
		pass(29 * time.Minute)
		r.wantArrived("a", "now")
		pass(2 * time.Hour)
		r.wantArrived("a", "now", "soon", "later")
		within(t, "later", r.calls("a", start)[2], time.Hour, time.Hour+250*time.Millisecond)
	})
}

func TestRouter_expires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailOnce(limited(chat.ScopeChannel, time.Minute))
		q := text("a", "1")
		q.ExpiresAt = time.Now().Add(30 * time.Second)
		first := r.deliver(q)
		second := r.deliver(q)
		r.send("a", "2")
		pass(2 * time.Minute)
		r.wantState(first, outbox.Expired)
		r.wantState(second, outbox.Expired)
		r.wantArrived("a", "2")
		r.wantCalls(2)
	})
}

func TestRouter_knowsIdempotencyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		q := text("a", "x")
		q.Key = "k"
		var mu sync.Mutex
		fresh, ids := 0, map[outbox.ID]bool{}
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				ticket, err := r.router.Deliver(t.Context(), q)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("Deliver() = %v", err)
				}
				if !ticket.Duplicate {
					fresh++
				}
				ids[ticket.ID] = true
			})
		}
		callers.Wait()
		pass(time.Second)
		if ticket, err := r.router.Deliver(t.Context(), q); err != nil || !ticket.Duplicate || !ids[ticket.ID] {
			t.Errorf("Deliver() again = %v, %v, want the same id", ticket, err)
		}
		if fresh != 1 || len(ids) != 1 {
			t.Errorf("%d fresh answers and ids %v, want one", fresh, ids)
		}
		q.Message.Text = "y"
		if err := r.refuse(q); !errors.Is(err, outbox.ErrKeyReused) {
			t.Errorf("Deliver() of another body = %v, want ErrKeyReused", err)
		}
		pass(time.Second)
		r.wantArrived("a", "x")
		if s := r.router.Status(testBot); s.Pending != 0 || s.InFlight != 0 {
			t.Errorf("Status() = %+v, want nothing pending", s)
		}
	})
}

func TestRouter_refuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withOptions(delivery.Options{MaxPending: 2}))
		if err := r.refuse(text("a", " \n ")); !errors.Is(err, delivery.ErrEmpty) {
			t.Errorf("Deliver() of blanks = %v, want ErrEmpty", err)
		}
		q := text("a", "x")
		q.Priority = 9
		r.refuse(q)
		q = text("a", "x")
		q.Target.Bot = "nobody"
		if err := r.refuse(q); !errors.Is(err, delivery.ErrUnknownBot) {
			t.Errorf("Deliver() to an unknown bot = %v, want ErrUnknownBot", err)
		}
		if err := r.router.Add(process{Fake: r.fake}, "fake"); err == nil {
			t.Error("Add() of the same bot = nil, want an error")
		}
		release := r.fake.Block()
		r.send("a", "1", "2")
		if err := r.refuse(text("b", "3")); !errors.Is(err, outbox.ErrFull) {
			t.Errorf("Deliver() = %v, want ErrFull", err)
		}
		release()
		pass(time.Second)
		r.send("b", "3")
	})
}

func TestRouter_deliversOnManyGoroutines(t *testing.T) {
	r := build(t)
	r.start0()
	defer r.stop()
	ctx := t.Context()
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 30 {
				id := fmt.Sprint("c", (g+i)%5)
				_, _ = r.router.Deliver(ctx, text(id, "x"))
				switch i % 6 {
				case 0:
					_ = r.router.Move(ctx, to(id), chat.ChatID(fmt.Sprint("c", i%7)))
				case 1:
					_ = r.router.Revive(ctx, to(id))
				case 2:
					r.fake.FailOnce(errGone)
				case 3:
					r.router.Resume(testBot)
				case 4:
					_ = r.router.Status(testBot)
				}
			}
		})
	}
	group.Wait()
}
