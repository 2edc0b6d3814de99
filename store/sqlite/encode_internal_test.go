package sqlite

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

// strange draws texts that a hand-written encoder may get wrong.
func strange() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.SliceOf(rapid.SampledFrom([]string{
			`"`, `\`, "\n", "\x00", "\x1f", "\x7f", "\u2028", "\ufffd", "\xff", "\xe2\x82", "\xed\xa0\x80", "<", "é", "👩‍👧", "x",
		})), func(s []string) (all string) {
			for _, part := range s {
				all += part
			}
			return all
		}),
	)
}

// same holds our encoding to that of encoding/json: they are read as equal.
func same[T any](t *rapid.T, ours []byte, v T) {
	theirs, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var got, want T
	if err := json.Unmarshal(ours, &got); err != nil {
		t.Fatalf("%q can't be read: %v", ours, err)
	}
	if err := json.Unmarshal(theirs, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%q is read otherwise than %q (-want +got):\n%s", ours, theirs, diff)
	}
}

func TestEncoding_isReadAsThatOfJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := strange().Draw(t, "text")
		ours := appendText([]byte("before"), s)
		if string(ours[:6]) != "before" {
			t.Fatalf("what stood before is %q", ours[:6])
		}
		same(t, ours[6:], s)

		parts := []chat.Part{{Text: s, Silent: rapid.Bool().Draw(t, "silent")}}
		if rapid.Bool().Draw(t, "rich") {
			parts[0].Markup, parts[0].Fallback, parts[0].ReplyTo = "HTML", s, s
			parts = append(parts, chat.Part{Attachment: &chat.Attachment{Name: s}})
		}
		if rapid.IntRange(0, 20).Draw(t, "none") == 0 {
			parts = nil
		}
		b, err := appendParts(nil, parts)
		if err != nil {
			t.Fatal(err)
		}
		same(t, b, parts)

		a := outbox.Attempt{
			At: time.UnixMicro(rapid.Int64Range(0, 1<<50).Draw(t, "at")).UTC(), Part: rapid.Int().Draw(t, "part"), Kind: "sent",
			Code: strange().Draw(t, "code"), RetryAfter: time.Duration(rapid.Int64().Draw(t, "retry after")), Detail: s,
		}
		line, err := appendAttempt(nil, &a)
		if err != nil {
			t.Fatal(err)
		}
		same(t, line, a)
	})
}

func TestEncoding_refusesATimeThatJSONHasNotGot(t *testing.T) {
	a := outbox.Attempt{At: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), Kind: "sent"}
	if b, err := appendAttempt(nil, &a); err == nil {
		t.Errorf("appendAttempt() = %q, want an error", b)
	}
}
