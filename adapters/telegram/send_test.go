package telegram_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/adapters/adaptertest"
	"github.com/chatgateway/gateway/adapters/telegram"
	"github.com/chatgateway/gateway/chat"
)

// platform is a Bot API that records what it is sent.
func platform(t *testing.T, answer adaptertest.Answer) (base string, calls chan *http.Request) {
	t.Helper()
	calls = make(chan *http.Request, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		calls <- r
		answer.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, calls
}

var sent = adaptertest.JSON(http.StatusOK, `{"ok":true,"result":{"message_id":42}}`)

func TestSend_parameters(t *testing.T) {
	for _, c := range []struct {
		name   string
		target chat.Target
		part   chat.Part
		want   url.Values
	}{
		{
			"plain text",
			chat.Target{Chat: "5"},
			chat.Part{Text: "a & b\n+ü"},
			url.Values{"chat_id": {"5"}, "text": {"a & b\n+ü"}},
		},
		{
			"everything",
			chat.Target{Chat: "-1001234567890", Thread: "77"},
			chat.Part{Text: "<b>x</b>", Markup: "HTML", Fallback: "x", ReplyTo: "12", Silent: true, Key: "k"},
			url.Values{
				"chat_id": {"-1001234567890"}, "text": {"<b>x</b>"}, "parse_mode": {"HTML"}, "message_thread_id": {"77"},
				"reply_parameters": {`{"message_id":12}`}, "disable_notification": {"true"},
			},
		},
		{
			"a channel's public name, and the general topic",
			chat.Target{Chat: "@News_1", Thread: "1"},
			chat.Part{Text: "x", Markup: "MarkdownV2"},
			url.Values{"chat_id": {"@News_1"}, "text": {"x"}, "parse_mode": {"MarkdownV2"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			base, calls := platform(t, sent)
			a := newAdapter(t, config(base))
			defer a.Close()
			if receipt, err := a.Send(t.Context(), c.target, c.part); err != nil || receipt != "42" {
				t.Fatalf("Send() = %q, %v, want 42", receipt, err)
			}
			r := <-calls
			if diff := cmp.Diff(c.want, r.PostForm); diff != "" {
				t.Errorf("parameters (-want +got):\n%s", diff)
			}
			if want := "/bot" + token + "/sendMessage"; r.URL.Path != want || r.Method != http.MethodPost || r.URL.RawQuery != "" {
				t.Errorf("call = %s %s, want POST %s", r.Method, r.URL, want)
			}
		})
	}
}

func TestSend_refusesAWrongTargetWithoutACall(t *testing.T) {
	for _, c := range []struct {
		name   string
		target chat.Target
		part   chat.Part
		want   chat.Kind
	}{
		{"a name without @", chat.Target{Chat: "news"}, chat.Part{Text: "x"}, chat.Rejected},
		{"no chat", chat.Target{}, chat.Part{Text: "x"}, chat.Rejected},
		{"zero", chat.Target{Chat: "0"}, chat.Part{Text: "x"}, chat.Rejected},
		{"a number with a plus", chat.Target{Chat: "+5"}, chat.Part{Text: "x"}, chat.Rejected},
		{"a number that is too long", chat.Target{Chat: "99999999999999999999"}, chat.Part{Text: "x"}, chat.Rejected},
		{"a name with a blank", chat.Target{Chat: "@a b"}, chat.Part{Text: "x"}, chat.Rejected},
		{"a thread that is no number", chat.Target{Chat: "5", Thread: "x"}, chat.Part{Text: "x"}, chat.Rejected},
		{"a negative thread", chat.Target{Chat: "5", Thread: "-7"}, chat.Part{Text: "x"}, chat.Rejected},
		{"a reply target that is no number", chat.Target{Chat: "5"}, chat.Part{Text: "x", ReplyTo: `1},"x":{`}, chat.Degradable},
	} {
		t.Run(c.name, func(t *testing.T) {
			base, calls := platform(t, sent)
			a := newAdapter(t, config(base))
			defer a.Close()
			_, err := a.Send(t.Context(), c.target, c.part)
			if chat.KindOf(err) != c.want || len(calls) > 0 {
				t.Errorf("Send() = %v after %d calls, want %v after none", err, len(calls), c.want)
			}
		})
	}
}

func TestSend_takesTheWantedStateAsSuccess(t *testing.T) {
	for name, answer := range map[string]adaptertest.Answer{
		"not modified": refusal(400, "Bad Request: message is not modified: specified new message content and reply markup "+
			"are exactly the same as a current content and reply markup of the message", ""),
		"ok without an id":        adaptertest.JSON(200, `{"ok":true,"result":true}`),
		"ok with an odd field":    adaptertest.JSON(200, `{"ok":true,"result":{},"description":7}`),
		"ok with more behind it":  adaptertest.JSON(200, `{"ok":true,"result":{}}`+"\n{"),
		"ok in a status above it": adaptertest.JSON(201, `{"ok":true,"result":{}}`),
	} {
		t.Run(name, func(t *testing.T) {
			base, _ := platform(t, answer)
			a := newAdapter(t, config(base))
			defer a.Close()
			if receipt, err := a.Send(t.Context(), chat.Target{Chat: "5"}, chat.Part{Text: "x"}); err != nil || receipt != "" {
				t.Errorf("Send() = %q, %v, want success without a receipt", receipt, err)
			}
		})
	}
}

func TestNew_keepsThePathOfTheServer(t *testing.T) {
	for _, prefix := range []string{"", "/", "/tg", "/tg/", "/a%20b/tg"} {
		t.Run(prefix, func(t *testing.T) {
			base, calls := platform(t, sent)
			a := newAdapter(t, config(base+prefix))
			defer a.Close()
			if _, err := a.Send(t.Context(), chat.Target{Chat: "5"}, chat.Part{Text: "x"}); err != nil {
				t.Fatalf("Send() = %v, want nil", err)
			}
			want := strings.TrimRight(prefix, "/") + "/bot" + token + "/sendMessage"
			if got := (<-calls).RequestURI; got != want {
				t.Errorf("path = %s, want %s", got, want)
			}
		})
	}
}

func TestSend_saysThatNothingWasSentWhileItConnects(t *testing.T) {
	dialing, done := make(chan struct{}), make(chan struct{})
	slow := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		close(dialing)
		<-done
		return nil, errors.New("unreachable")
	}}
	defer close(done)
	a := newAdapter(t, config("http://bot.example"), telegram.WithTransport(slow))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-dialing
		cancel()
	}()
	_, err := a.Send(ctx, chat.Target{Chat: "5"}, chat.Part{Text: "x"})
	if _, ok := errors.AsType[*chat.SendError](err); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("Send() = %v, want the bare context's error", err)
	}
}

func TestSend_showsNoCredentialOfAProxy(t *testing.T) {
	for name, proxy := range map[string]func(*http.Request) (*url.URL, error){
		"in its address": func(*http.Request) (*url.URL, error) {
			return &url.URL{Scheme: "http", Host: "127.0.0.1:1", User: url.UserPassword(token, "proxypassword")}, nil
		},
		"in its error": func(*http.Request) (*url.URL, error) {
			return nil, fmt.Errorf("invalid proxy address %q: bot %s", "http://user:proxypassword@[::1", url.QueryEscape(token))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAdapter(t, config("https://bot.example"), telegram.WithTransport(&http.Transport{Proxy: proxy}))
			_, err := a.Send(t.Context(), chat.Target{Chat: "5"}, chat.Part{Text: "x"})
			if chat.KindOf(err) != chat.Temporary {
				t.Errorf("Send() = %v, want temporary", err)
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				if shown := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(shown, tokenHalf) || strings.Contains(shown, "proxypassword") {
					t.Errorf("an error of type %T shows a credential", e)
				}
			}
		})
	}
}

func TestProbe_remembersWhoTheBotIs(t *testing.T) {
	base, calls := platform(t, adaptertest.JSON(200, `{"ok":true,"result":{"id":123,"is_bot":true,"first_name":"Sim","username":"sim_bot"}}`))
	a := newAdapter(t, config(base))
	defer a.Close()
	if err := a.Probe(t.Context()); err != nil {
		t.Fatalf("Probe() = %v, want nil", err)
	}
	if got, want := a.Self(), (telegram.Self{ID: 123, Username: "sim_bot"}); got != want {
		t.Errorf("Self() = %+v, want %+v", got, want)
	}
	if r := <-calls; !strings.HasSuffix(r.URL.Path, "/getMe") {
		t.Errorf("call = %s, want getMe", r.URL.Path)
	}
}

func TestProbe_saysThatALoginIsRefused(t *testing.T) {
	for _, answer := range []adaptertest.Answer{refusal(401, "Unauthorized", ""), refusal(404, "Not Found", ""), adaptertest.HTML(404)} {
		base, _ := platform(t, answer)
		a := newAdapter(t, config(base))
		if err := a.Probe(t.Context()); chat.KindOf(err) != chat.Unauthorized {
			t.Errorf("Probe() = %v, want unauthorized", err)
		}
		_ = a.Close()
	}
}

func TestSend_neverWaitsForEverOnItsOwn(t *testing.T) {
	silent := make(chan struct{})
	a := newAdapter(t, config("https://bot.example"), telegram.WithTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
		deadline, ok := r.Context().Deadline()
		if !ok || time.Until(deadline) > 2*time.Minute {
			t.Errorf("deadline = %v, %v, want one within two minutes", deadline, ok)
		}
		close(silent)
		return nil, errors.New("lost")
	})))
	_, err := a.Send(t.Context(), chat.Target{Chat: "5"}, chat.Part{Text: "x"})
	<-silent
	if chat.KindOf(err) != chat.Uncertain {
		t.Errorf("Send() over a transport that tells nothing = %v, want uncertain", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
