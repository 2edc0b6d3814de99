package delivery_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

func TestRouter_movesTheQueueInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		release := r.fake.BlockChat("old")
		r.fake.FailChat("old", movedTo("new"))
		ids := r.send("old", "1", "2", "3")
		release()
		pass(time.Second)
		r.wantArrived("new", "1", "2", "3")
		r.wantCalls(4)
		for _, id := range ids {
			if e := r.wantState(id, outbox.Sent); e.Target != to("new") {
				t.Errorf("entry %d stands under %v, want the new chat", id, e.Target)
			}
		}
		r.send("old", "4")
		r.restart()
		r.send("old", "5")
		pass(time.Second)
		r.wantArrived("new", "1", "2", "3", "4", "5")
		r.wantCalls(6)
	})
}

func TestRouter_followsTwoMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailChat("a", movedTo("b"))
		r.fake.FailChat("b", movedTo("c"))
		r.send("a", "1", "2")
		pass(time.Second)
		r.wantArrived("c", "1", "2")
		r.wantCalls(4)
		r.restart()
		r.send("a", "3")
		r.send("b", "4")
		pass(time.Second)
		r.wantArrived("c", "1", "2", "3", "4")
		r.wantCalls(6)
	})
}

func TestRouter_endsARingOfMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.FailChat("a", movedTo("b"))
		r.fake.FailChat("b", movedTo("a"))
		id := r.send("a", "1")[0]
		self := r.send("self", "1")
		pass(time.Second)
		r.fake.FailChat("self", movedTo("self"))
		lost := r.send("self", "2")[0]
		pass(time.Minute)
		r.wantState(id, outbox.Dead)
		r.wantState(self[0], outbox.Sent)
		r.wantState(lost, outbox.Dead)
		if n := len(r.fake.Attempts()); n > 20 {
			t.Errorf("%d calls were made in a ring of moves, want a few", n)
		}
	})
}

func TestRouter_moveByEventDuringACall(t *testing.T) {
	tests := []struct {
		name string
		err  error
	}{
		{name: "the platform then says moved", err: movedTo("new")},
		{name: "the platform then says gone", err: errGone},
		{name: "the platform then takes it", err: nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				release := r.fake.BlockChat("old")
				if tt.err != nil {
					r.fake.FailChat("old", tt.err)
				}
				ids := r.send("old", "1", "2", "3")
				synctest.Wait()
				if err := r.router.Move(t.Context(), to("old"), "new"); err != nil {
					t.Fatalf("Move() = %v", err)
				}
				release()
				pass(time.Second)
				for _, id := range ids {
					r.wantState(id, outbox.Sent)
				}
				r.wantArrived("", "1", "2", "3")
				r.send("new", "4")
				pass(time.Second)
				r.wantArrived("", "1", "2", "3", "4")
			})
		})
	}
}

func TestRouter_oldNewsOfAMoveChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for _, m := range [][2]string{{"a", "b"}, {"b", "c"}, {"a", "b"}} {
			if err := r.router.Move(t.Context(), to(m[0]), chat.ChatID(m[1])); err != nil {
				t.Fatalf("Move(%v) = %v", m, err)
			}
		}
		r.send("a", "1")
		r.send("b", "2")
		pass(time.Second)
		r.wantArrived("c", "1", "2")
	})
}

func TestRouter_mergesWithALaneThatExists(t *testing.T) {
	for _, blocked := range [][]string{{"old"}, {"new"}, {"old", "new"}} {
		t.Run(fmt.Sprint("calls in flight in ", blocked), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var releases []func()
				for _, id := range blocked {
					releases = append(releases, r.fake.BlockChat(chat.ChatID(id)))
				}
				all := r.fake.Block()
				var ids []outbox.ID
				for i := range 6 {
					target := []string{"old", "new"}[i%2]
					ids = append(ids, r.send(target, fmt.Sprint(i))...)
				}
				synctest.Wait()
				if err := r.router.Move(t.Context(), to("old"), "new"); err != nil {
					t.Fatalf("Move() = %v", err)
				}
				ids = append(ids, r.send("old", "6")...)
				ids = append(ids, r.send("new", "7")...)
				all()
				for _, release := range releases {
					pass(time.Second)
					release()
				}
				pass(time.Second)
				for _, id := range ids {
					r.wantState(id, outbox.Sent)
				}
				if got := r.arrived(""); len(got) != 8 {
					t.Errorf("%q arrived, want each of the eight once", got)
				}
				got := r.arrived("new")
				for i := 2; i < len(got); i++ {
					if got[i-1] > got[i] {
						t.Errorf("%q arrived in the new chat, want them in order", got)
					}
				}
				r.wantCalls(8)
				if s := r.router.Status(testBot); s.Pending != 0 || s.InFlight != 0 {
					t.Errorf("Status() = %+v, want nothing pending", s)
				}
			})
		})
	}
}

func TestRouter_moveReachesWhatIsBeingStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		hold := make(chan struct{})
		r.box.hold(hold)
		r.fake.FailChat("old", movedTo("new"))
		stored := make(chan error, 2)
		for _, s := range []string{"1", "2"} {
			go func() {
				_, err := r.router.Deliver(t.Context(), text("old", s))
				stored <- err
			}()
			synctest.Wait()
		}
		go func() { stored <- r.router.Move(t.Context(), to("old"), "new") }()
		synctest.Wait()
		close(hold)
		for range 3 {
			if err := <-stored; err != nil {
				t.Errorf("Deliver or Move = %v", err)
			}
		}
		pass(time.Second)
		r.send("new", "3")
		pass(time.Second)
		r.wantArrived("new", "1", "2", "3")
	})
}
