package delivery_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/outbox"
)

// other is a router of another process on the same store, which never owns the
// bot but wakes its owner.
func (r *rig) other(opts delivery.Options) *delivery.DeliveryRouter {
	r.t.Helper()
	opts.OnOutside = func(bot chat.BotName) { r.router.Adopt(bot) }
	other := delivery.New(r.store, opts)
	if err := other.Add(process{Fake: r.fake}, "fake"); err != nil {
		r.t.Fatalf("Add() = %v", err)
	}
	return other
}

func TestRouter_adoptsWhatAnotherProcessStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		other := r.other(delivery.Options{})
		for _, s := range []string{"1", "2", "3"} {
			if _, err := other.Deliver(t.Context(), text("a", s)); err != nil {
				t.Fatalf("Deliver() = %v", err)
			}
		}
		pass(time.Millisecond) // it is woken, it does not look by itself
		r.wantArrived("a", "1", "2", "3")
		r.restart()
		pass(time.Minute)
		r.wantCalls(3)
		if s := r.router.Status(testBot); s.Pending != 0 {
			t.Errorf("Status() = %+v, want nothing pending", s)
		}
	})
}

func TestRouter_boundsWhatAnotherProcessStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withOptions(delivery.Options{Held: true}))
		other := r.other(delivery.Options{MaxPending: 2})
		for range 2 {
			if _, err := other.Deliver(t.Context(), text("a", "x")); err != nil {
				t.Fatalf("Deliver() = %v", err)
			}
		}
		if _, err := other.Deliver(t.Context(), text("a", "x")); !errors.Is(err, outbox.ErrFull) {
			t.Errorf("Deliver() = %v, want ErrFull", err)
		}
		if err := r.router.Release(testBot); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		if _, err := other.Deliver(t.Context(), text("a", "x")); err != nil {
			t.Errorf("Deliver() = %v after the others have left", err)
		}
	})
}

// While a broadcast runs at the ceiling, a reply waits for two slots at most.
func TestRouter_replyBesideABroadcast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := slow
		cfg.MessagesPerSecond, cfg.BurstSize = 10, 1
		r := newRig(t, withLimits(cfg))
		r.flood(2000, func(i int) delivery.Request {
			q := text("b"+string(rune('a'+i%26))+string(rune('a'+i/26%26))+string(rune('a'+i/676)), "x")
			q.Priority = outbox.Bulk
			return q
		})
		slot := 100 * time.Millisecond
		for i := range 50 {
			pass(730 * time.Millisecond)
			began := time.Now()
			q := text("r"+string(rune('A'+i)), "reply")
			q.Priority = outbox.Reply
			r.deliver(q)
			pass(2 * slot)
			if at := r.calls("r"+string(rune('A'+i)), began); len(at) != 1 || at[0] > 2*slot {
				t.Errorf("reply %d left after %v, want within %v", i, at, 2*slot)
			}
		}
	})
}
