package storetest_test

import (
	"errors"
	"testing"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/inbound"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Store { return storetest.NewMemory() })
}

func TestMemory_failsWhenTold(t *testing.T) {
	m := storetest.NewMemory()
	o, err := m.Acquire(t.Context(), "support")
	if err != nil {
		t.Fatal(err)
	}
	batch := outbox.Batch{Owner: o, New: []outbox.Entry{{Target: chat.Target{Bot: "support", Chat: "1"}, State: outbox.Queued}}}
	m.Fail(outbox.ErrNoSpace)
	if _, err := m.Apply(t.Context(), batch); !errors.Is(err, outbox.ErrNoSpace) {
		t.Errorf("Apply() = %v, want ErrNoSpace", err)
	}
	if _, err := m.Accept(t.Context(), inbound.Intake{}); !errors.Is(err, outbox.ErrNoSpace) {
		t.Errorf("Accept() = %v, want ErrNoSpace", err)
	}
	m.Fail(nil)
	if heads, err := m.Heads(t.Context(), o, 0); err != nil || len(heads) != 0 {
		t.Errorf("Heads() = %v, %v, want nothing", heads, err)
	}
	if a, err := m.Apply(t.Context(), batch); err != nil || a.New[0].ID != 1 {
		t.Errorf("Apply() = %v, %v, want the id 1", a, err)
	}
}

func TestLimits(t *testing.T) {
	storetest.RunLimits(t, func(*testing.T) limiter.Store { return storetest.NewLimits() })
}
