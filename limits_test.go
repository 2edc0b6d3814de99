package gateway_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/chatgateway/gateway/internal/api"
	"github.com/chatgateway/gateway/simulator"
	"github.com/chatgateway/gateway/simulator/simulatortest"
	"github.com/chatgateway/gateway/simulator/telegram"
)

// TestLimits_areKept sends 300 messages to 60 chats at once, under the default
// profile, to a platform with its real limits: none is refused, and the last
// one leaves within 10 % of the time that the bucket allows at best.
func TestLimits_areKept(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 11 s of real time")
	}
	const chats, each = 60, 5
	sim := simulatortest.Start(t, simulator.Options{})
	r := start(t, configText(t.TempDir(), sim.URL, ""))
	for i := range each {
		for c := range chats {
			if _, status := r.post(api.NewMessage{Target: "support:" + strconv.Itoa(100+c), Text: strconv.Itoa(i)}); status != http.StatusAccepted {
				t.Fatalf("POST = %d, want 202", status)
			}
		}
	}
	if _, err := sim.WaitMessages(within(t), 0, chats*each); err != nil {
		t.Fatal(err)
	}
	stats := sim.Stats()
	if stats.TooMany != 0 {
		t.Errorf("%d calls were refused with 429, want none", stats.TooMany)
	}
	best := time.Duration((chats*each - 30) * int(time.Second) / 25) // 25/s after a burst of 30
	took := stats.LastSendAt.Sub(stats.FirstSendAt)
	t.Logf("%d messages to %d chats in %v, the bucket's best is %v (%.1f %% more)", chats*each, chats, took, best, 100*(took.Seconds()/best.Seconds()-1))
	if took > best+best/10 {
		t.Errorf("the last message left after %v, want at most 10 %% above %v", took, best)
	}
	for c := range chats {
		for i, m := range sim.Messages(int64(100 + c)) {
			if m.Text != strconv.Itoa(i) {
				t.Errorf("chat %d: message %d is %q", 100+c, i, m.Text)
			}
		}
	}
}

// TestLimits_waitExactlyThere answers one chat with "wait 3 seconds": it waits
// so long, also over a restart, and the others go on.
func TestLimits_waitExactlyThere(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 3 s of real time")
	}
	for _, restart := range []bool{false, true} {
		t.Run("restart "+strconv.FormatBool(restart), func(t *testing.T) {
			sim := simulatortest.Start(t, simulator.Options{})
			text := configText(t.TempDir(), sim.URL, "")
			r := start(t, text)
			if _, err := sim.Fault(telegram.Fault{Kind: telegram.FaultStatus, ChatID: 7, Method: "sendMessage", Status: 429, RetryAfter: 3, Cooldown: "chat"}); err != nil {
				t.Fatal(err)
			}
			r.post(api.NewMessage{Target: "support:7", Text: "late"})
			if err := sim.Wait(within(t), func() bool { return sim.Stats().TooMany == 1 }); err != nil {
				t.Fatal(err)
			}
			if restart {
				r.end()
				r = start(t, text)
			}
			r.post(api.NewMessage{Target: "support:8", Text: "at once"})
			other, err := sim.WaitMessages(within(t), 8, 1)
			if err != nil {
				t.Fatal(err)
			}
			late, err := sim.WaitMessages(within(t), 7, 1)
			if err != nil {
				t.Fatal(err)
			}
			var refused time.Time
			for _, c := range sim.Calls() {
				if c.Status == http.StatusTooManyRequests {
					refused = c.At
				}
			}
			if wait := late[0].At.Sub(refused); wait < 3*time.Second || wait > 3250*time.Millisecond {
				t.Errorf("the chat waited %v, want 3.00 s to 3.25 s", wait)
			}
			if wait := other[0].At.Sub(refused); wait > time.Second {
				t.Errorf("another chat waited %v", wait)
			}
			if early := sim.Stats().EarlyCalls; early != 0 || sim.Stats().TooMany != 1 {
				t.Errorf("%d calls inside the wait, %d refused, want none and the one", early, sim.Stats().TooMany)
			}
		})
	}
}
