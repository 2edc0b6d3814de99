package outbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

var (
	now      = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	errCause = errors.New("the cause")
)

// fresh is an entry of two parts, of which the first was sent.
func fresh() outbox.Entry {
	return outbox.Entry{
		ID: 7, State: outbox.Sending, CreatedAt: now.Add(-time.Hour),
		Parts:    []chat.Part{{Text: "one"}, {Text: "<b>two</b>", Markup: "HTML", Fallback: "two"}},
		Receipts: []chat.Receipt{"1"},
	}
}

func TestRules_After(t *testing.T) {
	type change func(e *outbox.Entry, f *chat.SendError)
	const half = 0.5 // of the jitter
	for _, c := range []struct {
		name string
		kind chat.Kind
		rule outbox.OnUncertain
		set  change
		want outbox.Settlement // what differs from: waiting, due now, nothing counted
	}{
		{
			"a temporary failure counts and backs off", chat.Temporary, outbox.Resend, nil,
			outbox.Settlement{Attempts: 1, Due: now.Add(time.Second / 2)},
		},
		{
			"the third temporary failure waits longer", chat.Temporary, outbox.Resend,
			func(e *outbox.Entry, _ *chat.SendError) { e.Attempts = 2 },
			outbox.Settlement{Attempts: 3, Due: now.Add(2 * time.Second)},
		},
		{
			"a young entry goes on however often it failed", chat.Temporary, outbox.Resend,
			func(e *outbox.Entry, _ *chat.SendError) {
				e.Attempts, e.CreatedAt = 400, now.Add(-6*time.Hour+time.Second)
			},
			outbox.Settlement{Attempts: 401, Due: now.Add(30 * time.Second)},
		},
		{
			"an old entry that failed rarely goes on", chat.Temporary, outbox.Resend,
			func(e *outbox.Entry, _ *chat.SendError) { e.Attempts, e.CreatedAt = 3, now.Add(-1000*time.Hour) },
			outbox.Settlement{Attempts: 4, Due: now.Add(4 * time.Second)},
		},
		{
			"an old entry that failed often is given up on", chat.Temporary, outbox.Resend,
			func(e *outbox.Entry, _ *chat.SendError) { e.Attempts, e.CreatedAt = 4, now.Add(-6*time.Hour) },
			outbox.Settlement{State: outbox.Dead, Attempts: 5, Due: now.Add(8 * time.Second)},
		},
		{
			"a limit is waited out and never counts", chat.RateLimited, outbox.Resend,
			func(e *outbox.Entry, f *chat.SendError) {
				e.Attempts, e.CreatedAt, f.RetryAfter = 4, now.Add(-1000*time.Hour), 900*time.Millisecond
			},
			outbox.Settlement{Attempts: 4, Due: now.Add(900 * time.Millisecond)},
		},
		{
			"an uncertain end is tried once more, marked", chat.Uncertain, outbox.Resend, nil,
			outbox.Settlement{Uncertain: 1, MayBeDuplicate: true, Due: now.Add(time.Second / 2)},
		},
		{
			"an uncertain end is labelled", chat.Uncertain, outbox.Label, nil,
			outbox.Settlement{Uncertain: 1, MayBeDuplicate: true, Due: now.Add(time.Second / 2)},
		},
		{
			"an uncertain end is held for a person", chat.Uncertain, outbox.Hold, nil,
			outbox.Settlement{State: outbox.Dead, Uncertain: 1},
		},
		{
			"a second uncertain end is the last", chat.Uncertain, outbox.Resend,
			func(e *outbox.Entry, _ *chat.SendError) { e.Uncertain, e.MayBeDuplicate = 1, true },
			outbox.Settlement{State: outbox.Dead, Uncertain: 2, MayBeDuplicate: true},
		},
		{
			"a second uncertain end is the last, labelled too", chat.Uncertain, outbox.Label,
			func(e *outbox.Entry, _ *chat.SendError) { e.Uncertain, e.MayBeDuplicate = 1, true },
			outbox.Settlement{State: outbox.Dead, Uncertain: 2, MayBeDuplicate: true},
		},
		{
			"a failure in between does not forget the uncertain one", chat.Temporary, outbox.Resend,
			func(e *outbox.Entry, _ *chat.SendError) { e.Uncertain, e.MayBeDuplicate = 1, true },
			outbox.Settlement{Attempts: 1, Uncertain: 1, MayBeDuplicate: true, Due: now.Add(time.Second / 2)},
		},
		{"a moved chat is tried again at once", chat.Moved, outbox.Resend, nil, outbox.Settlement{}},
		{"a refused login that the platform takes elsewhere is counted", chat.Unauthorized, outbox.Resend, nil, outbox.Settlement{Attempts: 1, Due: now.Add(time.Second / 2)}},
		{"refused markup is tried without", chat.Degradable, outbox.Resend, nil, outbox.Settlement{Degraded: true}},
		{
			"refused again without markup is given up on", chat.Degradable, outbox.Resend,
			func(e *outbox.Entry, _ *chat.SendError) { e.Degraded = true },
			outbox.Settlement{State: outbox.Dead, Degraded: true},
		},
		{
			"refused markup of a plain part is given up on", chat.Degradable, outbox.Resend,
			func(e *outbox.Entry, _ *chat.SendError) { e.Parts[1] = chat.Part{Text: "two"} },
			outbox.Settlement{State: outbox.Dead, Degraded: true},
		},
		{"refused content is given up on", chat.Rejected, outbox.Resend, nil, outbox.Settlement{State: outbox.Dead}},
		{"a chat that is gone ends the entry", chat.TargetGone, outbox.Resend, nil, outbox.Settlement{State: outbox.Dead}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules := outbox.DefaultRules()
			rules.OnUncertain = c.rule
			e, fail := fresh(), &chat.SendError{Kind: c.kind, Code: "42", Err: errCause}
			if c.set != nil {
				c.set(&e, fail)
			}
			want := c.want
			want.ID, want.Reason = e.ID, fail.Error()
			if want.State == 0 {
				want.State = outbox.Waiting
			}
			if want.Due.IsZero() {
				want.Due = now
			}
			want.Log = outbox.Attempt{At: now, Part: 1, Kind: c.kind.String(), Code: "42", RetryAfter: fail.RetryAfter, Detail: "the cause"}
			if diff := cmp.Diff(want, rules.After(e, fail, now, half)); diff != "" {
				t.Errorf("After() differs (-want +got):\n%s", diff)
			}
		})
	}
}

// A process that dies between the platform's answer and the commit leaves the
// entry as sending. However often that happens, one copy goes out at most.
func TestRules_Interrupted(t *testing.T) {
	for _, c := range []struct {
		rule  outbox.OnUncertain
		sends int // in all
	}{{outbox.Resend, 2}, {outbox.Label, 2}, {outbox.Hold, 1}} {
		t.Run(c.rule.String(), func(t *testing.T) {
			rules := outbox.DefaultRules()
			rules.OnUncertain = c.rule
			e := fresh()
			sends := 1
			for range 5 { // crashes
				s := rules.Interrupted(e, now)
				if s.Delivered {
					t.Fatal("an interrupted call counts as delivered")
				}
				e.State, e.Uncertain, e.MayBeDuplicate = s.State, s.Uncertain, s.MayBeDuplicate
				if s.State == outbox.Dead {
					break
				}
				if !s.MayBeDuplicate {
					t.Error("the copy is not marked")
				}
				e.State = outbox.Sending
				sends++
			}
			if e.State != outbox.Dead || sends != c.sends {
				t.Errorf("%d sends, and the entry is %v; want %d, then dead", sends, e.State, c.sends)
			}
		})
	}
}

func TestRules_boundWhatAnErrorSays(t *testing.T) {
	long := &chat.SendError{Kind: chat.Rejected, Err: errors.New("x" + strings.Repeat("ü", 1_000_000))}
	s := outbox.DefaultRules().After(fresh(), long, now, 0)
	for name, text := range map[string]string{"Reason": s.Reason, "Detail": s.Log.Detail} {
		if len(text) > 400 || !utf8.ValidString(text) {
			t.Errorf("%s has %d bytes, valid: %v; want 400 at most, and valid", name, len(text), utf8.ValidString(text))
		}
	}
	s = outbox.DefaultRules().After(fresh(), &chat.SendError{Kind: chat.Rejected, Err: errors.New("a\xffb")}, now, 0)
	if s.Reason != "rejected: ab" || s.Log.Detail != "ab" {
		t.Errorf("Reason = %q, Detail = %q, want valid text", s.Reason, s.Log.Detail)
	}
	if s = outbox.DefaultRules().After(fresh(), &chat.SendError{Kind: chat.Rejected}, now, 0); s.Log.Detail != "" {
		t.Errorf("Detail = %q for an error without a cause, want none", s.Log.Detail)
	}
}

func TestBackoff(t *testing.T) {
	for _, c := range []struct {
		n       int
		ceiling time.Duration
	}{
		{-5, time.Second},
		{0, time.Second},
		{1, time.Second},
		{2, 2 * time.Second},
		{3, 4 * time.Second},
		{6, 32 * time.Second},
		{7, time.Minute},
		{8, time.Minute},
		{1 << 40, time.Minute},
	} {
		if got := outbox.Backoff(c.n, 0); got != 0 {
			t.Errorf("Backoff(%d, 0) = %v, want 0", c.n, got)
		}
		if got := outbox.Backoff(c.n, 0.5); got != c.ceiling/2 {
			t.Errorf("Backoff(%d, 0.5) = %v, want %v", c.n, got, c.ceiling/2)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n, r := rapid.Int().Draw(t, "n"), rapid.Float64Range(0, 0.999999).Draw(t, "r")
		if got := outbox.Backoff(n, r); got < 0 || got >= time.Minute {
			t.Errorf("Backoff(%d, %v) = %v, want less than a minute", n, r, got)
		}
		if got := outbox.BlindWait(n, r); got < time.Second || got >= time.Minute {
			t.Errorf("BlindWait(%d, %v) = %v, want a second to a minute", n, r, got)
		}
	})
}
