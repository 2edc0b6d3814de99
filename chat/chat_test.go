package chat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/chatgateway/gateway/chat"
)

func TestSecret_isNeverPrinted(t *testing.T) {
	const value = "12345:SeCrEt-token"
	secret := chat.NewSecret(value)
	type config struct {
		Token   chat.Secret  `json:"token" yaml:"token"`
		Pointer *chat.Secret `json:"pointer" yaml:"pointer"`
		Many    []chat.Secret
		Named   map[string]chat.Secret
	}
	all := config{Token: secret, Pointer: &secret, Many: []chat.Secret{secret}, Named: map[string]chat.Secret{"a": secret}}
	var printed []string
	for _, v := range []any{secret, &secret, all, &all, []any{secret}, struct{ v any }{secret}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%t", "%T", "%U", "%o", "%08b", "%c", "%e", "%20s", "%!"} {
			printed = append(printed, fmt.Sprintf(verb, v))
		}
		printed = append(printed, fmt.Sprint(v), fmt.Sprintln(v))
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("json.Marshal() = %v", err)
		}
		printed = append(printed, string(text))
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatalf("yaml.Marshal() = %v", err)
	}
	var buf bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&buf, nil), slog.NewJSONHandler(&buf, nil)} {
		slog.New(h).Info("x", "secret", secret, "pointer", &secret, "all", all, slog.Group("g", "s", secret))
	}
	printed = append(printed, string(text), buf.String(), fmt.Errorf("call %v: %w", secret, io.EOF).Error(), secret.String(), secret.GoString())
	hex := fmt.Sprintf("%x", value)
	for _, s := range printed {
		if strings.Contains(s, value) || strings.Contains(strings.ToLower(s), hex) || strings.Contains(s, "49 50 51 52 53") {
			t.Errorf("the secret shows in %q", s)
		}
	}
	if got := fmt.Sprintf("%s", secret); got != "[redacted]" {
		t.Errorf("%%s gives %q, want [redacted]", got)
	}
}

func TestSecret_isReadAndRevealed(t *testing.T) {
	var c struct {
		Token chat.Secret `json:"token" yaml:"token"`
	}
	if err := yaml.Unmarshal([]byte("token: abc"), &c); err != nil || c.Token.Reveal() != "abc" {
		t.Errorf("from YAML: %q, %v, want abc", c.Token.Reveal(), err)
	}
	if err := json.Unmarshal([]byte(`{"token":"def"}`), &c); err != nil || c.Token.Reveal() != "def" || c.Token.Empty() {
		t.Errorf("from JSON: %q, %v, want def", c.Token.Reveal(), err)
	}
	if got := c.Token.Redact("https://api/botdef/send?def"); got != "https://api/bot[redacted]/send?[redacted]" {
		t.Errorf("Redact() = %q", got)
	}
	if got := (chat.Secret{}).Redact("text"); got != "text" || !(chat.Secret{}).Empty() {
		t.Errorf("Redact() of an empty secret = %q, want the text", got)
	}
}

func TestKindOf(t *testing.T) {
	gone := &chat.SendError{Kind: chat.TargetGone, Code: "403", Err: io.EOF}
	tests := []struct {
		name string
		err  error
		want chat.Kind
	}{
		{name: "its own", err: gone, want: chat.TargetGone},
		{name: "wrapped", err: fmt.Errorf("send: %w", gone), want: chat.TargetGone},
		{name: "joined", err: errors.Join(io.EOF, gone), want: chat.TargetGone},
		{name: "without a kind", err: &chat.SendError{Err: io.EOF}, want: chat.Uncertain},
		{name: "of something else", err: context.DeadlineExceeded, want: chat.Uncertain},
		{name: "of nothing", err: nil, want: chat.Uncertain},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := chat.KindOf(tt.err); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("KindOf(%v) = %v, want %v", tt.err, got, tt.want)
			}
		})
	}
	if !errors.Is(gone, io.EOF) {
		t.Error("the cause is not found in a SendError")
	}
	limited := &chat.SendError{Kind: chat.RateLimited, Code: "429", RetryAfter: 3 * time.Second, Err: io.EOF}
	if got, want := limited.Error(), "rate_limited (429), retry after 3s: EOF"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	check := func(name string) {
		t.Helper()
		if name == "" || strings.Contains(name, "(") || seen[name] {
			t.Errorf("the name %q is missing or stands for two", name)
		}
		seen[name] = true
	}
	for k := chat.Uncertain; k <= chat.Unauthorized; k++ {
		check(k.String())
	}
	for k := chat.EventMessage; k <= chat.EventOther; k++ {
		if k != chat.EventMoved { // as the kind of failure is named
			check(k.String())
		}
	}
	for s := chat.ScopeChannel; s <= chat.ScopeBot; s++ {
		check(s.String())
	}
	for u := chat.CodePoints; u <= chat.Bytes; u++ {
		check(u.String())
	}
	for _, format := range []chat.Format{chat.Plain, chat.Markdown} {
		check(format.String())
		if got, err := chat.ParseFormat(format.String()); err != nil || got != format {
			t.Errorf("ParseFormat(%q) = %v, %v", format, got, err)
		}
	}
	if _, err := chat.ParseFormat("html"); err == nil {
		t.Error("ParseFormat(html) = nil, want an error")
	}
	if got := chat.Kind(99).String(); got != "Kind(99)" {
		t.Errorf("Kind(99) = %q", got)
	}
}

func TestPart_Plainer(t *testing.T) {
	tests := []struct {
		name string
		part chat.Part
		want chat.Part
		ok   bool
	}{
		{name: "plain text has none", part: chat.Part{Text: "x", Silent: true}, want: chat.Part{Text: "x", Silent: true}},
		{name: "without its markup", part: chat.Part{Text: "<b>", Markup: "HTML", Fallback: "b", Key: "k"}, want: chat.Part{Text: "b", Key: "k"}, ok: true},
		{name: "without its reply target", part: chat.Part{Text: "x", ReplyTo: "1"}, want: chat.Part{Text: "x"}, ok: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := tt.part.Plainer(); !reflect.DeepEqual(got, tt.want) || ok != tt.ok {
				t.Errorf("Plainer() = %+v, %v, want %+v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}
