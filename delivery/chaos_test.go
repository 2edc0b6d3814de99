package delivery_test

import (
	"errors"
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

// chaos lets everything go wrong that can, and keeps what was accepted.
type chaos struct {
	*rig
	accepted []outbox.ID
	hung     []func()
	moves    int
}

var answers = []error{
	errTemporary, errTemporary, errUncertain, errRejected, errGone, limited(chat.ScopeChannel, 2*time.Second),
	limited(chat.ScopeBot, time.Second), limited(chat.ScopeMethod, 0), movedTo("moved"), nil, nil, nil,
}

func (c *chaos) step(op, arg int) {
	id := fmt.Sprint("c", arg%4)
	switch op {
	case 0:
		c.restart()
	case 1:
		c.kill()
		c.restart()
	case 2: // dies after an answer, before it is stored
		c.box.dieAt(func(b outbox.Batch) bool { return len(b.Settled) > 0 })
		c.try(id)
		pass(time.Second)
		c.kill()
		c.restart()
	case 3:
		c.box.fail(outbox.ErrNoSpace)
		pass(time.Duration(arg) * 300 * time.Millisecond)
		c.box.fail(nil)
	case 4:
		c.hung = append(c.hung, c.fake.BlockChat(chat.ChatID(id)))
	case 5:
		c.heal()
	case 6:
		c.moves++
		_ = c.router.Move(c.t.Context(), to(id), chat.ChatID(fmt.Sprint("c", (arg+c.moves)%6)))
	case 7:
		_ = c.router.Revive(c.t.Context(), to(id))
	case 8:
		pass(time.Duration(arg) * 700 * time.Millisecond)
	case 9, 10:
		c.fake.FailOnce(answers[arg%len(answers)])
	default:
		for i := range arg {
			c.try(fmt.Sprintf("c%d/%d", (arg+i)%4, i%2))
		}
	}
}

func (c *chaos) heal() {
	for _, release := range c.hung {
		release()
	}
	c.hung = nil
}

// try delivers unless the chat is dead, or the process dies meanwhile.
func (c *chaos) try(target string) {
	ticket, err := c.router.Deliver(c.t.Context(), text(target, fmt.Sprint(len(c.accepted))))
	if _, dead := errors.AsType[*delivery.DeadTargetError](err); dead || errors.Is(err, errDied) {
		return
	}
	if err != nil {
		c.t.Errorf("Deliver(%s) = %v", target, err)
		return
	}
	c.accepted = append(c.accepted, ticket.ID)
}

// check tells what was lost, or sent twice in silence.
func (c *chaos) check() error {
	arrived := map[string]int{}
	for _, d := range c.fake.Deliveries() {
		arrived[d.Part.Text]++
	}
	for i, id := range c.accepted {
		e, n := c.entry(id), arrived[fmt.Sprint(i)]
		switch {
		case e.State.Pending():
			return fmt.Errorf("entry %d is %v for ever: %s", id, e.State, e.Reason)
		case n > 1 && !e.MayBeDuplicate:
			return fmt.Errorf("entry %d arrived %d times without a mark", id, n)
		case n > 2:
			return fmt.Errorf("entry %d arrived %d times", id, n)
		case e.State == outbox.Sent && n == 0:
			return fmt.Errorf("entry %d is sent and never arrived", id)
		case e.State == outbox.Dead && n > 0 && !e.MayBeDuplicate && e.Uncertain == 0:
			return fmt.Errorf("entry %d is dead (%s) and arrived", id, e.Reason)
		}
	}
	if s := c.router.Status(testBot); s.Pending != 0 || s.InFlight != 0 {
		return fmt.Errorf("Status() = %+v, want nothing left", s)
	}
	return nil
}

func TestRouter_losesNothingWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ops := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) [2]int {
			return [2]int{rapid.IntRange(0, 13).Draw(t, "op"), rapid.IntRange(1, 12).Draw(t, "arg")}
		}), 1, 20).Draw(rt, "steps")
		var failure error
		synctest.Test(t, func(t *testing.T) {
			cfg := limiter.Config{MessagesPerSecond: 20, BurstSize: 5, PerChannelDelay: 50 * time.Millisecond}
			c := &chaos{rig: newRig(t, withLimits(cfg), withRules(outbox.Rules{MaxAttempts: 3, MinAge: time.Hour, OnUncertain: outbox.Resend}))}
			for _, op := range ops {
				c.step(op[0], op[1])
			}
			c.heal()
			pass(3 * time.Hour)
			failure = c.check()
		})
		if failure != nil {
			rt.Fatal(failure)
		}
	})
}
