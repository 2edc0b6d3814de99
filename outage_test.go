package gateway_test

import (
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/chatgateway/gateway"
	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/internal/api"
	"github.com/chatgateway/gateway/internal/config"
	"github.com/chatgateway/gateway/simulator/simulatortest"
	"github.com/chatgateway/gateway/simulator/telegram"
)

// TestOutage lets the platform fail for some seconds in each way that it has.
// Every message arrives within seconds of the recovery.
func TestOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes real seconds")
	}
	const lasts = 4 * time.Second
	tests := []struct {
		name  string
		fault telegram.Fault
	}{
		{name: "a page of 502 for every call", fault: telegram.Fault{Kind: telegram.FaultDown, For: lasts}},
		{name: "502 for sends alone", fault: telegram.Fault{Kind: telegram.FaultStatus, Method: "sendMessage", Status: 502, HTML: true, Count: telegram.Forever, For: lasts}},
		{name: "500 for every call", fault: telegram.Fault{Kind: telegram.FaultStatus, Method: "*", Status: 500, Description: "Internal Server Error", Count: telegram.Forever, For: lasts}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sim := simulatortest.Start(t, simulatortest.Quiet())
			r := start(t, configText(t.TempDir(), sim.URL, ""))
			if err := sim.Wait(within(t), func() bool { return sim.Stats().WaitingPolls > 0 }); err != nil {
				t.Fatal(err)
			}
			if _, err := sim.Fault(tt.fault); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			var ids []string
			for i := range 5 {
				a, status := r.post(api.NewMessage{Target: "support:" + strconv.Itoa(100+i), Text: "x"})
				if status != http.StatusAccepted {
					t.Fatalf("POST = %d, want 202", status)
				}
				ids = append(ids, a.ID)
			}
			if _, err := sim.WaitMessages(within(t), 0, 5); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > lasts+7*time.Second {
				t.Errorf("the last message arrived %v after the outage began, want at most 7 s after its end", took)
			}
			for _, id := range ids {
				r.waitState(id, "sent")
			}
			if got := len(sim.Messages(0)); got != 5 {
				t.Errorf("%d messages arrived, want 5", got)
			}
		})
	}
}

func TestNew_needsABot(t *testing.T) {
	cfg, err := gateway.ParseConfig([]byte("gateway: {data_dir: "+t.TempDir()+"}\n"), gateway.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Bots) > 0 {
		t.Skip("TELEGRAM_BOT_TOKEN is set")
	}
	if _, err := gateway.New(t.Context(), cfg); !errors.Is(err, config.ErrNoBots) {
		t.Errorf("New() = %v, want ErrNoBots", err)
	}
}

func TestEnqueue_refusesWhatAServerWould(t *testing.T) {
	sim := simulatortest.Start(t, simulatortest.Quiet())
	dir := t.TempDir()
	text := configText(dir, sim.URL, "") + "delivery: {max_pending: 1}\n"
	r := start(t, text)
	if _, err := sim.Fault(telegram.Fault{Kind: telegram.FaultBlocked, ChatID: 9}); err != nil {
		t.Fatal(err)
	}
	a, _ := r.post(api.NewMessage{Target: "support:9", Text: "x"})
	r.waitState(a.ID, "dead")
	r.end()
	cfg, err := gateway.ParseConfig([]byte(text), gateway.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	enqueue := func(target string) error {
		_, err := gateway.Enqueue(t.Context(), cfg, api.NewMessage{Target: target, Text: "x"})
		return err
	}
	if _, ok := errors.AsType[*delivery.DeadTargetError](enqueue("support:9")); !ok {
		t.Error("a dead target is taken")
	}
	if err := enqueue("support:abc"); !errors.Is(err, chat.ErrBadTarget) {
		t.Errorf("Enqueue() to a chat that can't exist = %v, want ErrBadTarget", err)
	}
	if err := enqueue("support:10"); err != nil {
		t.Errorf("Enqueue() = %v, want nil", err)
	}
	if err := enqueue("support:11"); err == nil {
		t.Error("one more than max_pending is taken")
	}
}
