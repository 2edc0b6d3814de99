package chat_test

import (
	"errors"
	"testing"

	"github.com/chatgateway/gateway/chat"
)

func TestParseTarget(t *testing.T) {
	tests := []struct {
		name string
		text string
		want chat.Target // zero: refused
	}{
		{name: "a chat", text: "support:42", want: chat.Target{Bot: "support", Chat: "42"}},
		{name: "a thread of a group", text: "support:-1001234567890/77", want: chat.Target{Bot: "support", Chat: "-1001234567890", Thread: "77"}},
		{name: "case is kept", text: "a:C0123abC", want: chat.Target{Bot: "a", Chat: "C0123abC"}},
		{name: "leading zeros are kept", text: "a:0123", want: chat.Target{Bot: "a", Chat: "0123"}},
		{name: "split at the first colon", text: "a:b:c", want: chat.Target{Bot: "a", Chat: "b:c"}},
		{name: "split at the last slash", text: "a:b/c/d", want: chat.Target{Bot: "a", Chat: "b/c", Thread: "d"}},
		{name: "an empty thread", text: "a:b/c/", want: chat.Target{Bot: "a", Chat: "b/c"}},
		{name: "every sign of a bot's name", text: "a-0_z:1", want: chat.Target{Bot: "a-0_z", Chat: "1"}},
		{name: "a public name", text: "tg:@channel", want: chat.Target{Bot: "tg", Chat: "@channel"}},
		{name: "no bot", text: ":42"},
		{name: "no colon", text: "support"},
		{name: "nothing", text: ""},
		{name: "no chat", text: "support:"},
		{name: "no chat but a thread", text: "support:/77"},
		{name: "a bot in capitals", text: "Support:42"},
		{name: "a bot that starts with a digit", text: "1a:42"},
		{name: "a bot in other letters", text: "bött:42"},
		{name: "a blank before the chat", text: "a: 42"},
		{name: "a blank at the end", text: "a:42 "},
		{name: "a line break", text: "a:4\n2"},
		{name: "a NUL", text: "a:4\x002"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := chat.ParseTarget(tt.text)
			if got != tt.want || (err == nil) != (tt.want != chat.Target{}) {
				t.Errorf("ParseTarget(%q) = %+v, %v, want %+v", tt.text, got, err, tt.want)
			}
			if err != nil && !errors.Is(err, chat.ErrBadTarget) {
				t.Errorf("ParseTarget(%q) = %v, want ErrBadTarget", tt.text, err)
			}
		})
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, seed := range []string{"support:42", "a:b/c/d", "a:b/c/", "a:/", "a::", "a:\xff", "a:b/\u00a0x", "a: "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		target, err := chat.ParseTarget(s)
		if err != nil {
			return
		}
		again, err := chat.ParseTarget(target.String())
		if err != nil || again != target {
			t.Errorf("ParseTarget(%q) = %+v, but its text %q gives %+v, %v", s, target, target.String(), again, err)
		}
	})
}
