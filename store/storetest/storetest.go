// Package storetest is the suite that every control store passes, and an
// in-memory store, kept honest by the same suite, for everyone else's tests.
package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/inbound"
	"github.com/chatgateway/gateway/outbox"
)

// Store is what a database implements for the gateway.
type Store interface {
	outbox.Outbox
	outbox.Archive
	inbound.Journal
}

// Run holds a store to its contracts. open gives a new, empty store each time
// and closes it when its test ends.
func Run(t *testing.T, open func(t *testing.T) Store) {
	t.Helper()
	for _, c := range slices.Concat(applyCases(), settleCases(), loadCases(), letterCases(), archiveCases(), journalCases(), togetherCases()) {
		t.Run(c.name, func(t *testing.T) {
			c.test(&suite{T: t, Store: open(t)})
		})
	}
	t.Run("does what the model does", func(t *testing.T) {
		machine(t, open(t))
	})
}

type testCase struct {
	name string
	test func(s *suite)
}

// suite is one test with its store.
type suite struct {
	*testing.T
	Store
}

const bot = chat.BotName("support")

// start is when the tests begin. A store keeps microseconds.
var start = time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC)

func (s *suite) acquire(name chat.BotName) outbox.Owner {
	s.Helper()
	o, err := s.Acquire(s.Context(), name)
	if err != nil {
		s.Fatalf("Acquire(%s) failed: %v", name, err)
	}
	return o
}

func (s *suite) apply(b outbox.Batch) outbox.Applied {
	s.Helper()
	if b.At.IsZero() {
		b.At = start
	}
	a, err := s.Apply(s.Context(), b)
	if err != nil {
		s.Fatalf("Apply() failed: %v", err)
	}
	if len(a.New) != len(b.New) {
		s.Fatalf("Apply() gave %d answers for %d new entries", len(a.New), len(b.New))
	}
	return a
}

// store stores queued entries and gives their ids.
func (s *suite) store(entries ...outbox.Entry) []outbox.ID {
	s.Helper()
	var ids []outbox.ID
	for _, n := range s.apply(outbox.Batch{New: entries}).New {
		ids = append(ids, n.ID)
	}
	return ids
}

func (s *suite) read(ids ...outbox.ID) []outbox.Entry {
	s.Helper()
	entries, err := s.Read(s.Context(), ids...)
	if err != nil {
		s.Fatalf("Read(%v) failed: %v", ids, err)
	}
	return entries
}

func (s *suite) entry(id outbox.ID) outbox.Entry {
	s.Helper()
	entries := s.read(id)
	if len(entries) != 1 {
		s.Fatalf("Read(%d) gave %d entries, want 1", id, len(entries))
	}
	return entries[0]
}

func (s *suite) load(o outbox.Owner) outbox.Backlog {
	s.Helper()
	b, err := s.Load(s.Context(), o)
	if err != nil {
		s.Fatalf("Load() failed: %v", err)
	}
	return b
}

// heads adopts what was stored without an owner, and gives all that is pending.
func (s *suite) heads(o outbox.Owner) []outbox.Head {
	s.Helper()
	for more := true; more; {
		more = len(s.apply(outbox.Batch{Owner: o, Adopt: true}).Adopted) > 0
	}
	return s.known(o)
}

// known gives the pending entries that the owner knows of.
func (s *suite) known(o outbox.Owner) []outbox.Head {
	s.Helper()
	all, err := allHeads(s.Context(), s, o)
	if err != nil {
		s.Fatalf("Heads() failed: %v", err)
	}
	return all
}

// allHeads reads page after page.
func allHeads(ctx context.Context, box outbox.Outbox, o outbox.Owner) ([]outbox.Head, error) {
	var all []outbox.Head
	for after := outbox.ID(0); ; after = all[len(all)-1].ID {
		page, err := box.Heads(ctx, o, after)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
	}
}

// pendingIDs gives the ids of the bot's pending entries.
func (s *suite) pendingIDs(o outbox.Owner) []outbox.ID {
	s.Helper()
	var ids []outbox.ID
	for _, h := range s.heads(o) {
		ids = append(ids, h.ID)
	}
	return ids
}

func (s *suite) accept(intakes ...inbound.Intake) []inbound.Accepted {
	s.Helper()
	a, err := s.Accept(s.Context(), intakes...)
	if err != nil {
		s.Fatalf("Accept() failed: %v", err)
	}
	if len(a) != len(intakes) {
		s.Fatalf("Accept() gave %d answers for %d events", len(a), len(intakes))
	}
	return a
}

func (s *suite) begin(id outbox.TurnID) int {
	s.Helper()
	n, err := s.Begin(s.Context(), id)
	if err != nil {
		s.Fatalf("Begin(%d) failed: %v", id, err)
	}
	return n
}

func (s *suite) unfinished(after outbox.TurnID, limit int) []inbound.Turn {
	s.Helper()
	turns, err := s.Unfinished(s.Context(), bot, after, limit)
	if err != nil {
		s.Fatalf("Unfinished() failed: %v", err)
	}
	return turns
}

func (s *suite) same(what string, got, want any) {
	s.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("%s differs (-want +got):\n%s", what, diff)
	}
}

// text is a queued entry for a chat.
func text(id chat.ChatID, body string) outbox.Entry {
	return outbox.Entry{
		Target: chat.Target{Bot: bot, Chat: id},
		State:  outbox.Queued, Priority: outbox.Proactive,
		Parts: []chat.Part{{Text: body}},
	}
}

// keyed is an entry with an idempotency key; its body is its fingerprint.
func keyed(key, body string) outbox.Entry {
	e := text("1", body)
	e.Key, e.Fingerprint = key, []byte(body)
	return e
}

func message(id, body string) inbound.Intake {
	return inbound.Intake{Event: chat.Event{
		ID: id, Kind: chat.EventMessage, Source: chat.Target{Bot: bot, Chat: "1"}, Sender: "telegram:7", Text: body, At: start,
	}}
}

// sent settles an entry of one part.
func sent(id outbox.ID, receipt chat.Receipt) outbox.Settlement {
	return outbox.Settlement{
		ID: id, State: outbox.Sent, Delivered: true, Receipt: receipt,
		Log: outbox.Attempt{At: start, Kind: "sent"},
	}
}
