package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

func applyCases() []testCase {
	return []testCase{
		{"a new entry is read back whole", readBack},
		{"ids rise in the order of the batch and of the calls", idsRise},
		{"a key that is known gives the first id", knownKey},
		{"a key under another message stores nothing of the batch", reusedKey},
		{"a key twice in one batch is one entry", keyTwice},
		{"a key is remembered after its entry's end", keyAfterEnd},
		{"two callers with one key at one instant store one entry", keyRace},
		{"an earlier owner changes nothing and is told", fenced},
		{"whoever owns nothing only enqueues", unowned},
		{"an owner changes its own bot's entries only", foreign},
		{"a cancelled caller's batch is stored all the same", cancelled},
	}
}

func readBack(s *suite) {
	e := outbox.Entry{
		Target: chat.Target{Bot: bot, Chat: "-100/7", Thread: "Ü 1"},
		State:  outbox.Queued, Priority: outbox.Reply, Key: "k'1", Fingerprint: []byte{0, 1, 255},
		Parts: []chat.Part{
			{Text: "a <b>&\u2028 \x00 👩‍👩‍👧", Markup: "HTML", Fallback: "a", ReplyTo: "5", Silent: true},
			{Text: ""},
		},
		NotBefore: start.Add(time.Minute), ExpiresAt: start.Add(time.Hour),
		Supersede: "price\x00", OnUncertain: outbox.Hold, MayBeDuplicate: true, Receipts: []chat.Receipt{"r\n1"},
		Source: &chat.Message{
			Text: "a <b>", Format: chat.Markdown, ReplyTo: "5", Silent: true,
			Attachments: []chat.Attachment{{Digest: "ab", Name: "a.txt", Type: "text/plain", Size: 5}},
		},
	}
	e.Parts[1].Attachment = &e.Source.Attachments[0]
	id := s.store(e)[0]
	e.ID, e.CreatedAt = id, start
	s.same("the entry", s.entry(id), e)

	plain := text("1", "plain")
	plain.ID, plain.CreatedAt = s.store(plain)[0], start
	s.same("the plain entry", s.entry(plain.ID), plain)
	s.same("what is read", s.read(plain.ID, id+1000, id, id), []outbox.Entry{plain, e, e})
}

func idsRise(s *suite) {
	last := outbox.ID(0)
	for range 3 {
		for _, id := range s.store(text("2", "a"), text("1", "b"), text("2", "c")) {
			if id <= last {
				s.Fatalf("id %d came after %d", id, last)
			}
			last = id
		}
	}
}

func knownKey(s *suite) {
	first := s.apply(outbox.Batch{New: []outbox.Entry{keyed("k", "body")}}).New[0]
	if first.Duplicate {
		s.Errorf("the first entry counts as a duplicate")
	}
	again := s.apply(outbox.Batch{New: []outbox.Entry{text("1", "x"), keyed("k", "body"), text("1", "y")}}).New
	s.same("the repeat", again[1], outbox.Stored{ID: first.ID, Duplicate: true})
	if again[0].Duplicate || again[2].Duplicate || again[2].ID <= again[0].ID {
		s.Errorf("the entries beside the repeat: %v", again)
	}
	s.same("pending", s.pendingIDs(s.acquire(bot)), []outbox.ID{first.ID, again[0].ID, again[2].ID})
}

func reusedKey(s *suite) {
	o := s.acquire(bot)
	id := s.store(keyed("k", "body"))[0]
	turn := s.accept(message("e", "hi"))[0].Turn
	_, err := s.Apply(s.Context(), outbox.Batch{
		Owner: o, At: start,
		New:     []outbox.Entry{text("1", "x"), keyed("new", "n"), keyed("k", "another")},
		Sending: []outbox.ID{id}, Turns: []outbox.TurnEnd{{Turn: turn, Outcome: outbox.TurnDone}},
		Dead: []outbox.DeadTarget{{Chat: "1"}}, Moves: []outbox.Move{{From: "1", To: "2"}},
		Anchors: []limiter.Anchors{{Scope: "s"}},
	})
	if !errors.Is(err, outbox.ErrKeyReused) {
		s.Fatalf("Apply() = %v, want ErrKeyReused", err)
	}
	b := s.load(o)
	s.same("the heads", s.heads(o), []outbox.Head{{ID: id, Chat: "1", State: outbox.Queued, Priority: outbox.Proactive}})
	if len(b.Dead)+len(b.Moves)+len(b.Anchors) > 0 {
		s.Errorf("stored all the same: %+v", b)
	}
	if n := s.begin(turn); n != 1 {
		s.Errorf("the refused batch ended its turn: Begin() = %d, want 1", n)
	}
	if s.apply(outbox.Batch{New: []outbox.Entry{keyed("new", "other")}}).New[0].Duplicate {
		s.Errorf("the refused batch left a key behind")
	}
}

func keyTwice(s *suite) {
	got := s.apply(outbox.Batch{New: []outbox.Entry{keyed("k", "b"), text("1", "x"), keyed("k", "b")}}).New
	s.same("the second of the batch", got[2], outbox.Stored{ID: got[0].ID, Duplicate: true})
	s.same("pending", s.pendingIDs(s.acquire(bot)), []outbox.ID{got[0].ID, got[1].ID})

	_, err := s.Apply(s.Context(), outbox.Batch{At: start, New: []outbox.Entry{keyed("l", "b"), keyed("l", "c")}})
	if !errors.Is(err, outbox.ErrKeyReused) {
		s.Errorf("two messages under one key in one batch: Apply() = %v, want ErrKeyReused", err)
	}
	s.same("pending", s.pendingIDs(s.acquire(bot)), []outbox.ID{got[0].ID, got[1].ID})
}

func keyAfterEnd(s *suite) {
	o := s.acquire(bot)
	for _, end := range []outbox.State{outbox.Sent, outbox.Dead, outbox.Expired, outbox.Cancelled} {
		e := keyed("k "+end.String(), "body")
		id := s.store(e)[0]
		s.apply(outbox.Batch{Owner: o, Settled: []outbox.Settlement{{ID: id, State: end}}})
		got := s.apply(outbox.Batch{New: []outbox.Entry{e}}).New[0]
		s.same("the repeat after "+end.String(), got, outbox.Stored{ID: id, Duplicate: true})
	}
}

func keyRace(s *suite) {
	const callers = 16
	for round := range 5 {
		e := keyed(string(rune('a'+round)), "body")
		var group sync.WaitGroup
		got := make([]outbox.Stored, callers)
		for i := range callers {
			group.Go(func() {
				a, err := s.Apply(s.Context(), outbox.Batch{At: start, New: []outbox.Entry{e}})
				if err != nil {
					s.Errorf("Apply() failed: %v", err)
					return
				}
				got[i] = a.New[0]
			})
		}
		group.Wait()
		fresh := 0
		for _, g := range got {
			if !g.Duplicate {
				fresh++
			}
			if g.ID != got[0].ID {
				s.Errorf("two ids for one key: %d and %d", g.ID, got[0].ID)
			}
		}
		if fresh != 1 {
			s.Errorf("%d of %d callers stored the entry, want 1", fresh, callers)
		}
	}
}

func fenced(s *suite) {
	old := s.acquire(bot)
	id := s.store(text("1", "x"))[0]
	o := s.acquire(bot)
	if o.Epoch <= old.Epoch {
		s.Fatalf("epoch %d came after %d", o.Epoch, old.Epoch)
	}
	for name, b := range map[string]outbox.Batch{
		"sending":   {Sending: []outbox.ID{id}},
		"settled":   {Settled: []outbox.Settlement{sent(id, "1")}},
		"new":       {New: []outbox.Entry{text("1", "y")}},
		"dead":      {Dead: []outbox.DeadTarget{{Chat: "1"}}},
		"ended":     {Ended: []outbox.Ending{{IDs: []outbox.ID{id}, State: outbox.Dead}}},
		"moved":     {Moves: []outbox.Move{{From: "1", To: "2"}}},
		"anchors":   {Anchors: []limiter.Anchors{{Scope: "s"}}},
		"nothing":   {},
		"never was": {Owner: outbox.Owner{Bot: "other"}},
		"future":    {Owner: outbox.Owner{Bot: bot, Epoch: o.Epoch + 1}},
	} {
		b.At = start
		if b.Owner == (outbox.Owner{}) {
			b.Owner = old
		}
		if _, err := s.Apply(s.Context(), b); !errors.Is(err, outbox.ErrNotOwner) {
			s.Errorf("%s: Apply() = %v, want ErrNotOwner", name, err)
		}
	}
	b := s.load(o)
	s.same("the heads", s.heads(o), []outbox.Head{{ID: id, Chat: "1", State: outbox.Queued, Priority: outbox.Proactive}})
	if len(b.Dead)+len(b.Moves)+len(b.Anchors) > 0 {
		s.Errorf("stored all the same: %+v", b)
	}
	s.apply(outbox.Batch{Owner: o, Sending: []outbox.ID{id}})
}

func unowned(s *suite) {
	id := s.store(text("1", "x"))[0]
	ids := []outbox.ID{id}
	for name, b := range map[string]outbox.Batch{
		"sending": {Sending: ids},
		"settled": {Settled: []outbox.Settlement{sent(id, "1")}},
		"dead":    {Dead: []outbox.DeadTarget{{Chat: "1"}}},
		"revived": {Revived: []chat.ChatID{"1"}},
		"ended":   {Ended: []outbox.Ending{{IDs: ids, State: outbox.Dead}}},
		"moved":   {Moves: []outbox.Move{{From: "1", To: "2", IDs: ids}}},
		"anchors": {Anchors: []limiter.Anchors{{Scope: "s"}}},
		"edited":  {Edits: []outbox.Edit{{ID: id}}},
		"dropped": {Dropped: ids},
		"told":    {Told: ids},
		"adopted": {Adopt: true},
	} {
		b.At, b.New = start, []outbox.Entry{text("1", "y")}
		if _, err := s.Apply(s.Context(), b); !errors.Is(err, outbox.ErrNotOwner) {
			s.Errorf("%s without an owner: Apply() = %v, want ErrNotOwner", name, err)
		}
	}
	s.same("pending", s.pendingIDs(s.acquire(bot)), ids)
	if got := s.entry(id).State; got != outbox.Queued {
		s.Errorf("the entry is %v, want queued", got)
	}
}

func foreign(s *suite) {
	mine := s.acquire(bot)
	other := s.acquire("other")
	e := text("1", "x")
	e.Target.Bot = "other"
	id := s.store(e)[0]
	s.apply(outbox.Batch{
		Owner: mine, Sending: []outbox.ID{id}, Settled: []outbox.Settlement{sent(id, "1")},
		Ended: []outbox.Ending{{IDs: []outbox.ID{id}, State: outbox.Dead}}, Moves: []outbox.Move{{From: "1", To: "2", IDs: []outbox.ID{id}}},
	})
	s.same("the other bot's heads", s.heads(other),
		[]outbox.Head{{ID: id, Chat: "1", State: outbox.Queued, Priority: outbox.Proactive}})
}

func cancelled(s *suite) {
	o := s.acquire(bot)
	id := s.store(text("1", "x"))[0]
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if _, err := s.Apply(ctx, outbox.Batch{Owner: o, At: start, Settled: []outbox.Settlement{sent(id, "1")}}); err != nil {
		s.Fatalf("Apply() with a cancelled context = %v, want nil", err)
	}
	if got := s.entry(id).State; got != outbox.Sent {
		s.Errorf("the entry is %v, want sent", got)
	}
}
