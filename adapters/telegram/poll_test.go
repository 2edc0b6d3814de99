package telegram_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/adapters/telegram"
	"github.com/chatgateway/gateway/chat"
)

// polling runs an adapter in the current bubble.
type polling struct {
	*telegram.Adapter
	log    *bytes.Buffer
	events []chat.Event
	sink   func(events []chat.Event) error // nil takes everything
	cancel context.CancelFunc
	result chan error
}

func poll(t *testing.T, a *api, sink func([]chat.Event) error) *polling {
	t.Helper()
	p := &polling{log: &bytes.Buffer{}, sink: sink, result: make(chan error, 1)}
	log := slog.New(slog.NewTextHandler(p.log, nil))
	p.Adapter = newAdapter(t, config("https://bot.example"), telegram.WithTransport(a), telegram.WithLogger(log))
	ctx, cancel := context.WithCancel(t.Context())
	p.cancel = cancel
	go func() {
		p.result <- p.Run(ctx, func(_ context.Context, events ...chat.Event) error {
			if p.sink != nil {
				if err := p.sink(events); err != nil {
					return err
				}
			}
			p.events = append(p.events, events...)
			return nil
		})
	}()
	return p
}

// stop ends Run, which must take no time, and checks the log for credentials.
func (p *polling) stop(t *testing.T) {
	t.Helper()
	start := time.Now()
	p.cancel()
	if err := <-p.result; err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
	if took := time.Since(start); took > 0 {
		t.Errorf("Run() took %v to stop", took)
	}
	if strings.Contains(p.log.String(), tokenHalf) {
		t.Error("the log shows the token")
	}
}

func (p *polling) ids() []string {
	var ids []string
	for _, e := range p.events {
		ids = append(ids, e.ID)
	}
	return ids
}

func (p *polling) logged(level string) int { return strings.Count(p.log.String(), "level="+level) }

func TestPoll_honoursAWaitExactlyAndLogsItOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(_ string, n int, form url.Values) reply {
			if n < 2 {
				return failed(429, "Too Many Requests: retry after 10", `{"retry_after":10}`)
			}
			return quiet(form)
		}}
		p := poll(t, a, nil)
		time.Sleep(25 * time.Second)
		p.stop(t)
		if diff := cmp.Diff([]float64{10, 10}, a.gaps("getUpdates")); diff != "" {
			t.Errorf("gaps between polls (-want +got):\n%s", diff)
		}
		if n := p.logged("WARN"); n != 1 {
			t.Errorf("%d warnings, want 1:\n%s", n, p.log)
		}
	})
}

func TestPoll_asksForWhatItCanRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(_ string, _ int, form url.Values) reply { return quiet(form) }}
		p := poll(t, a, nil)
		time.Sleep(time.Minute)
		p.stop(t)
		want := url.Values{
			"limit": {"100"}, "timeout": {"50"},
			"allowed_updates": {`["message","edited_message","channel_post","edited_channel_post","callback_query","message_reaction","my_chat_member"]`},
		}
		if diff := cmp.Diff(want, a.of("getUpdates")[0].form); diff != "" {
			t.Errorf("getUpdates (-want +got):\n%s", diff)
		}
	})
}

func TestPoll_survivesAnUpdateThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := `{"update_id":10,"message":{"message_id":"x"}}`
		a := &api{answer: func(_ string, n int, form url.Values) reply {
			if n == 0 {
				return ok(`[` + bad + `,{"update_id":"no id"},"junk",` + text(5005031991) + `,` + text(4503599627370495) + `]`)
			}
			return quiet(form)
		}}
		batches := 0
		p := poll(t, a, func([]chat.Event) error { batches++; return nil })
		time.Sleep(time.Second)
		p.stop(t)
		if diff := cmp.Diff([]string{"10", "5005031991", "4503599627370495"}, p.ids()); diff != "" || batches != 1 {
			t.Errorf("events in %d batches, want 1 (-want +got):\n%s", batches, diff)
		}
		if e := p.events[0]; e.Kind != chat.EventOther || string(e.Raw) != bad {
			t.Errorf("unreadable update = %v with %s, want it kept as other", e.Kind, e.Raw)
		}
		if got := a.of("getUpdates")[1].form.Get("offset"); got != "4503599627370496" {
			t.Errorf("next offset = %s, want the one after the last update", got)
		}
	})
}

func TestPoll_movesPastABatchWithoutIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(_ string, _ int, form url.Values) reply {
			switch form.Get("offset") {
			case "":
				return ok(`[` + text(10) + `]`)
			case "11":
				return ok(`[{"update_id":null}]`)
			case "12":
				return ok(`[` + text(12) + `]`)
			}
			return quiet(form)
		}}
		p := poll(t, a, nil)
		time.Sleep(time.Minute)
		p.stop(t)
		if diff := cmp.Diff([]string{"10", "12"}, p.ids()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestPoll_asksForLessAfterAnAnswerThatIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(_ string, _ int, form url.Values) reply {
			switch {
			case form.Get("offset") != "":
				return quiet(form)
			case form.Get("limit") == "100":
				return ok(`[` + strings.Repeat(" ", 11<<20) + text(1) + `]`)
			}
			return ok(`[` + text(1) + `]`)
		}}
		p := poll(t, a, nil)
		time.Sleep(10 * time.Second)
		p.stop(t)
		var limits []string
		for _, c := range a.of("getUpdates") {
			limits = append(limits, c.form.Get("limit"))
		}
		if diff := cmp.Diff([]string{"100", "50", "100"}, limits); diff != "" {
			t.Errorf("limits (-want +got):\n%s", diff)
		}
	})
}

func TestPoll_confirmsOnlyWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(_ string, _ int, form url.Values) reply {
			if form.Get("offset") == "" {
				return ok(`[` + text(1) + `,` + text(2) + `,` + text(3) + `]`)
			}
			return quiet(form)
		}}
		tries := 0
		p := poll(t, a, func([]chat.Event) error {
			if tries++; tries <= 3 {
				return errors.New("disk full")
			}
			return nil
		})
		time.Sleep(time.Minute)
		p.stop(t)
		if diff := cmp.Diff([]string{"1", "2", "3"}, p.ids()); diff != "" || tries != 4 {
			t.Errorf("events after %d tries, want 4 (-want +got):\n%s", tries, diff)
		}
		var offsets []string
		for _, c := range a.of("getUpdates") {
			offsets = append(offsets, c.form.Get("offset"))
		}
		if diff := cmp.Diff([]string{"", "", "", "", "4", "4"}, offsets); diff != "" {
			t.Errorf("offsets (-want +got):\n%s", diff)
		}
	})
}

func TestPoll_removesAWebhookInItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		a.answer = func(method string, _ int, form url.Values) reply {
			switch {
			case method == "deleteWebhook":
				return ok("true")
			case len(a.of("deleteWebhook")) == 0:
				return failed(409, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first", "")
			}
			return quiet(form)
		}
		p := poll(t, a, nil)
		time.Sleep(time.Second)
		p.stop(t)
		removed := a.of("deleteWebhook")
		if len(removed) != 1 || removed[0].form.Get("drop_pending_updates") != "false" {
			t.Errorf("deleteWebhook calls = %+v, want one that keeps updates", removed)
		}
		if n := len(a.of("getUpdates")); n != 2 {
			t.Errorf("%d polls within a second, want 2", n)
		}
	})
}

func TestPoll_isPatientWithAnotherConsumer(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"another poll", "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"},
		{"a webhook that is set again and again", "Conflict: can't use getUpdates method while webhook is active"},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &api{answer: func(method string, _ int, _ url.Values) reply {
				if method == "deleteWebhook" {
					return ok("true")
				}
				return failed(409, c.text, "")
			}}
			p := poll(t, a, nil)
			time.Sleep(10 * time.Minute)
			health := p.Health()
			p.stop(t)
			if n := len(a.of("getUpdates")); n < 15 || n > 60 {
				t.Errorf("%s: %d polls in ten minutes, want one every 3 to 30 s", c.name, n)
			}
			if health.Connected || health.Err == "" || p.logged("WARN") == 0 {
				t.Errorf("%s: health = %+v with %d warnings, want it to be seen", c.name, health, p.logged("WARN"))
			}
		})
	}
}

func TestPoll_givesUpOnARefusedLogin(t *testing.T) {
	for _, code := range []int{401, 404} {
		synctest.Test(t, func(t *testing.T) {
			p := poll(t, &api{answer: func(string, int, url.Values) reply { return failed(code, http.StatusText(code), "") }}, nil)
			defer p.cancel()
			if err := <-p.result; chat.KindOf(err) != chat.Unauthorized {
				t.Errorf("Run() after %d = %v, want unauthorized", code, err)
			}
		})
	}
}

func TestPoll_neverSpins(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer reply
		most   int // polls in ten minutes
	}{
		{"empty answers at once", ok("[]"), 610},
		{"the same update again and again", ok(`[` + text(9) + `]`), 610},
		{"only unreadable updates", ok(`[{}]`), 60},
		{"no list", ok(`{}`), 60},
		{"a null", ok(`null`), 60},
		{"a page of HTML", reply{502, "<html>", 0}, 60},
		{"a failing server", failed(500, "Internal Server Error", ""), 60},
		{"a cut connection", reply{}, 60},
		{"a limit without a hint", failed(429, "Too Many Requests", ""), 60},
		{"a bad request", failed(400, "Bad Request: what", ""), 60},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &api{answer: func(string, int, url.Values) reply { return c.answer }}
			p := poll(t, a, nil)
			time.Sleep(10 * time.Minute)
			p.stop(t)
			if n := len(a.of("getUpdates")); n > c.most || n < 20 {
				t.Errorf("%s: %d polls in ten minutes, want 20 to %d", c.name, n, c.most)
			}
			if n := p.logged("WARN") + p.logged("ERROR"); n > 1 {
				t.Errorf("%s: %d warnings, want at most 1:\n%.2000s", c.name, n, p.log)
			}
		})
	}
}

func TestPoll_recoversAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(_ string, n int, form url.Values) reply {
			switch {
			case n < 3:
				return reply{502, "<html>", 0}
			case n == 3:
				return ok(`[` + text(1) + `]`)
			}
			return quiet(form)
		}}
		p := poll(t, a, nil)
		time.Sleep(time.Minute)
		health := p.Health()
		p.stop(t)
		if !health.Connected || health.Err != "" || health.LastEvent.IsZero() || health.LastAnswer.IsZero() {
			t.Errorf("Health() = %+v, want connected", health)
		}
		if p.logged("WARN") != 1 || p.logged("INFO") != 1 {
			t.Errorf("want one warning and one note that it is over:\n%s", p.log)
		}
	})
}

func TestPoll_forgetsTheOffsetAfterAQuietWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		a := &api{answer: func(_ string, n int, form url.Values) reply {
			switch {
			case n == 0:
				return ok(`[` + text(1000) + `]`)
			case time.Since(start) > 7*24*time.Hour && form.Get("offset") == "":
				return ok(`[` + text(5) + `]`)
			}
			return quiet(form)
		}}
		p := poll(t, a, nil)
		time.Sleep(8 * 24 * time.Hour)
		p.stop(t)
		if diff := cmp.Diff([]string{"1000", "5"}, p.ids()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestPoll_answersButtonPressesOnceStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		press := `{"update_id":%d,"callback_query":{"id":"press%d","from":{"id":5},"inline_message_id":"i","data":"yes"}}`
		a := &api{answer: func(method string, n int, form url.Values) reply {
			switch {
			case method == "answerCallbackQuery":
				return reply{200, `{"ok":true,"result":true}`, time.Hour} // best effort: it must not hold anything up
			case n < 2:
				var all []string
				for i := 1; i <= 20; i++ {
					all = append(all, fmt.Sprintf(press, i, i))
				}
				return ok(`[` + strings.Join(all, ",") + `]`)
			}
			return quiet(form)
		}}
		tries := 0
		p := poll(t, a, func([]chat.Event) error {
			if tries++; tries == 1 {
				return errors.New("disk full")
			}
			return nil
		})
		time.Sleep(5 * time.Second)
		p.stop(t)
		seen := map[string]int{}
		for _, c := range a.of("answerCallbackQuery") {
			seen[c.form.Get("callback_query_id")]++
		}
		if len(seen) == 0 || len(seen) > 8 {
			t.Errorf("%d presses are being answered at once, want 1 to 8", len(seen))
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s was answered %d times, want once", id, n)
			}
		}
		if len(p.events) != 20 {
			t.Errorf("%d events, want 20", len(p.events))
		}
	})
}

func TestRun_setsTheWebhookUntilItHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(_ string, n int, _ url.Values) reply {
			switch n {
			case 0:
				return reply{502, "<html>", 0}
			case 1:
				return failed(429, "Too Many Requests: retry after 60", `{"retry_after":60}`)
			}
			return ok("true")
		}}
		cfg := config("https://bot.example")
		cfg.Mode, cfg.WebhookURL = telegram.Webhook, "https://gateway.example/hooks/support"
		adapter := newAdapter(t, cfg, telegram.WithTransport(a))
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- adapter.Run(ctx, nil) }()
		time.Sleep(time.Hour)
		health := adapter.Health()
		cancel()
		if err := <-result; err != nil || !health.Connected {
			t.Errorf("Run() = %v, connected: %v, want nil and connected", err, health.Connected)
		}
		calls := a.of("setWebhook")
		if len(calls) != 3 || len(a.of("deleteWebhook")) != 0 || a.gaps("setWebhook")[1] < 60 {
			t.Fatalf("%d calls with gaps %v, want 3, the last after the wait", len(calls), a.gaps("setWebhook"))
		}
		form := calls[2].form
		if form.Get("url") != cfg.WebhookURL || form.Get("secret_token") != hookSecret || form.Get("allowed_updates") == "" {
			t.Errorf("setWebhook = %v, want address, secret and kinds of updates", form)
		}
	})
}
