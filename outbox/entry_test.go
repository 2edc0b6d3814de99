package outbox_test

import (
	"bytes"
	"testing"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

func FuzzParseID(f *testing.F) {
	for _, s := range []string{"1", "0", "-1", "+1", "007", "9223372036854775807", "9223372036854775808", "", " 1", "1_0", "0x1", "١"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := outbox.ParseID(s)
		if err != nil {
			if id != 0 {
				t.Errorf("ParseID(%q) = %d beside an error, want 0", s, id)
			}
			return
		}
		if id <= 0 || id.String() != s {
			t.Errorf("ParseID(%q) = %d, which is written %q", s, id, id)
		}
	})
}

func TestState(t *testing.T) {
	for s, want := range map[outbox.State]struct {
		word    string
		pending bool
	}{
		outbox.Queued: {"queued", true}, outbox.Sending: {"sending", true}, outbox.Waiting: {"waiting", true},
		outbox.Sent: {"sent", false}, outbox.Dead: {"dead", false}, outbox.Expired: {"expired", false},
		outbox.Cancelled: {"cancelled", false}, 0: {"State(0)", false}, 8: {"State(8)", false},
	} {
		if s.String() != want.word || s.Pending() != want.pending {
			t.Errorf("state %d is %q, pending %v; want %q, %v", int(s), s, s.Pending(), want.word, want.pending)
		}
	}
}

func TestWords_areReadBack(t *testing.T) {
	for _, p := range []outbox.Priority{outbox.Bulk, outbox.Proactive, outbox.Reply} {
		if got, err := outbox.ParsePriority(p.String()); err != nil || got != p {
			t.Errorf("ParsePriority(%q) = %v, %v", p, got, err)
		}
	}
	if got, err := outbox.ParsePriority(""); err != nil || got != outbox.Proactive {
		t.Errorf("ParsePriority(\"\") = %v, %v, want proactive", got, err)
	}
	for _, o := range []outbox.OnUncertain{outbox.Resend, outbox.Label, outbox.Hold} {
		if got, err := outbox.ParseOnUncertain(o.String()); err != nil || got != o {
			t.Errorf("ParseOnUncertain(%q) = %v, %v", o, got, err)
		}
	}
	for _, bad := range []string{"Reply", " reply", "urgent", "Priority(0)"} {
		if got, err := outbox.ParsePriority(bad); err == nil {
			t.Errorf("ParsePriority(%q) = %v, want an error", bad, got)
		}
		if got, err := outbox.ParseOnUncertain(bad); err == nil {
			t.Errorf("ParseOnUncertain(%q) = %v, want an error", bad, got)
		}
	}
	for o, want := range map[outbox.Outcome]string{outbox.TurnDone: "done", outbox.TurnDenied: "denied", outbox.TurnDead: "dead", 0: "unknown"} {
		if o.String() != want {
			t.Errorf("outcome %d is %q, want %q", int(o), o, want)
		}
	}
}

func TestFingerprint_tellsMessagesApart(t *testing.T) {
	target := chat.Target{Bot: "support", Chat: "1", Thread: "2"}
	m := chat.Message{Text: "x", Format: chat.Markdown, ReplyTo: "3", Silent: true}
	same := outbox.Fingerprint(target, m, outbox.Reply)
	if !bytes.Equal(same, outbox.Fingerprint(target, m, outbox.Reply)) || len(same) != 16 {
		t.Errorf("the same message has the fingerprints %x and another", same)
	}
	for name, other := range map[string][]byte{
		"target":   outbox.Fingerprint(chat.Target{Bot: "support", Chat: "1"}, m, outbox.Reply),
		"shift":    outbox.Fingerprint(chat.Target{Bot: "support", Chat: "12"}, m, outbox.Reply),
		"priority": outbox.Fingerprint(target, m, outbox.Bulk),
		"text":     outbox.Fingerprint(target, chat.Message{Text: "y", Format: chat.Markdown, ReplyTo: "3", Silent: true}, outbox.Reply),
		"format":   outbox.Fingerprint(target, chat.Message{Text: "x", ReplyTo: "3", Silent: true}, outbox.Reply),
		"reply":    outbox.Fingerprint(target, chat.Message{Text: "x", Format: chat.Markdown, Silent: true}, outbox.Reply),
		"silent":   outbox.Fingerprint(target, chat.Message{Text: "x", Format: chat.Markdown, ReplyTo: "3"}, outbox.Reply),
	} {
		if bytes.Equal(same, other) {
			t.Errorf("another %s has the same fingerprint", name)
		}
	}
}
