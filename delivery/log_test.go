package delivery_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/delivery"
	"github.com/chatgateway/gateway/limiter"
)

func TestRouter_logsWhatTheLimiterHoldsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer // read when the router has stopped
		log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
		slow := limiter.Config{MessagesPerSecond: 100, BurstSize: 100, PerChannelDelay: time.Minute}
		r := newRig(t, withLimits(slow), withOptions(delivery.Options{Log: log}))
		r.send("7", "one", "two")
		r.fake.NextDelivery(t)
		r.fake.NextDelivery(t)
		r.stop()
		if want := `msg="rate limit: waiting" bot=fake channel=7 wait=1m0s`; !strings.Contains(text.String(), want) {
			t.Errorf("log lacks %q:\n%s", want, &text)
		}
	})
}
