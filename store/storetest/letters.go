package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

func letterCases() []testCase {
	return []testCase{
		{"what is stored without an owner waits until it is adopted, and is given once", adoption},
		{"a large number is adopted step by step", largeAdoption},
		{"a newer entry ends the one that it supersedes", superseding},
		{"a dead letter is replayed once", replay},
		{"two replays at one instant store one entry", replayRace},
		{"a dead letter is edited, and nothing else", edits},
		{"a dead letter is dropped, and nothing else", drops},
		{"an operator's change of another bot's letter misses", foreignLetters},
	}
}

// letters stores entries that end as dead letters.
func (s *suite) letters(o outbox.Owner, entries ...outbox.Entry) []outbox.ID {
	s.Helper()
	ids := s.store(entries...)
	s.apply(outbox.Batch{Owner: o, Ended: []outbox.Ending{{IDs: ids, State: outbox.Dead, Reason: "refused"}}})
	return ids
}

func adoption(s *suite) {
	o := s.acquire(bot)
	own := s.apply(outbox.Batch{Owner: o, New: []outbox.Entry{text("1", "own")}}).New[0].ID
	e, other := text("2", "outside"), text("1", "other bot")
	e.Target.Thread, e.Supersede, e.NotBefore, e.Priority = "t", "k", start.Add(time.Hour), outbox.Reply
	other.Target.Bot = "other"
	ids := s.store(e, other, text("1", "outside, too"), text("1", "ended"))
	s.apply(outbox.Batch{Owner: o, Ended: []outbox.Ending{{IDs: ids[3:], State: outbox.Cancelled}}})
	mine := outbox.Head{ID: own, Chat: "1", State: outbox.Queued, Priority: outbox.Proactive}
	s.same("the heads before", s.known(o), []outbox.Head{mine})

	want := []outbox.Head{
		{ID: ids[0], Chat: "2", Thread: "t", State: outbox.Queued, Priority: outbox.Reply, Supersede: "k", NotBefore: e.NotBefore},
		{ID: ids[2], Chat: "1", State: outbox.Queued, Priority: outbox.Proactive},
	}
	s.same("what is adopted", s.apply(outbox.Batch{Owner: o, Adopt: true}).Adopted, want)
	s.same("the heads after", s.known(o), append([]outbox.Head{mine}, want...))
	if again := s.apply(outbox.Batch{Owner: o, Adopt: true}).Adopted; len(again) > 0 {
		s.Errorf("adopted again: %v", again)
	}
	if got := s.known(s.acquire("other")); len(got) > 0 {
		s.Errorf("the other bot's entry is adopted: %v", got)
	}
}

func largeAdoption(s *suite) {
	const n = 12_000
	o := s.acquire(bot)
	ids := s.store(slices.Repeat([]outbox.Entry{text("1", "x")}, n)...)
	var got []outbox.ID
	for {
		adopted := s.apply(outbox.Batch{Owner: o, Adopt: true}).Adopted
		if len(adopted) == 0 {
			break
		}
		for _, h := range adopted {
			got = append(got, h.ID)
		}
	}
	s.same("what is adopted", got, ids)
}

func superseding(s *suite) {
	o := s.acquire(bot)
	other := text("1", "of another bot")
	other.Target.Bot = "other"
	ids := s.store(text("1", "older"), text("1", "sent"), other)
	s.apply(outbox.Batch{Owner: o, Settled: []outbox.Settlement{sent(ids[1], "1")}})
	var batch outbox.Batch
	batch.Owner, batch.At = o, start.Add(time.Minute)
	for _, id := range append(ids, 1<<40) {
		e := text("1", "newer")
		e.Supersede, e.Supersedes = "k", id
		batch.New = append(batch.New, e)
	}
	stored := s.apply(batch).New
	e := s.entry(ids[0])
	if e.State != outbox.Cancelled || e.Reason != outbox.SupersededBy(stored[0].ID) || !e.EndedAt.Equal(batch.At) {
		s.Errorf("the older entry is %v (%q, ended %v), want it superseded by %d", e.State, e.Reason, e.EndedAt, stored[0].ID)
	}
	if e := s.entry(ids[1]); e.State != outbox.Sent {
		s.Errorf("what was sent is %v", e.State)
	}
	if e := s.entry(ids[2]); e.State != outbox.Queued {
		s.Errorf("the other bot's entry is %v", e.State)
	}
	if e := s.entry(stored[0].ID); e.Supersedes != 0 || e.Supersede != "k" {
		s.Errorf("the newer entry is read with %q, %d, want the key alone", e.Supersede, e.Supersedes)
	}
	repeat := keyed("known", "x")
	first := s.store(repeat)[0]
	repeat.Supersedes = first
	s.apply(outbox.Batch{Owner: o, New: []outbox.Entry{repeat}})
	if e := s.entry(first); e.State != outbox.Queued {
		s.Errorf("a repeat under its key superseded its own entry: %v", e.State)
	}
}

// replaying is a new entry in place of a dead letter.
func replaying(id outbox.ID) outbox.Entry {
	e := text("1", "again")
	e.ReplayOf = id
	return e
}

func replay(s *suite) {
	o := s.acquire(bot)
	ids := s.letters(o, text("1", "a"), text("1", "b"))
	pending := s.store(text("1", "pending"))[0]
	for name, b := range map[string]outbox.Batch{
		"of a pending entry": {New: []outbox.Entry{text("1", "x"), replaying(pending)}},
		"of nothing":         {New: []outbox.Entry{replaying(1 << 40)}},
		"twice in one batch": {New: []outbox.Entry{replaying(ids[0]), replaying(ids[0])}},
		"of another's":       {New: []outbox.Entry{foreignReplay(ids[0])}},
	} {
		b.Owner, b.At = o, start
		if _, err := s.Apply(s.Context(), b); !errors.Is(err, outbox.ErrReplayed) {
			s.Errorf("a replay %s: Apply() = %v, want ErrReplayed", name, err)
		}
	}
	s.same("pending after the refusals", s.pendingIDs(o), []outbox.ID{pending})

	again := s.apply(outbox.Batch{Owner: o, New: []outbox.Entry{replaying(ids[0])}}).New[0].ID
	if e := s.entry(ids[0]); e.ReplayedBy != again || e.State != outbox.Dead {
		s.Errorf("the letter is %v, replayed by %d, want dead, by %d", e.State, e.ReplayedBy, again)
	}
	if e := s.entry(again); e.ReplayOf != ids[0] || e.ReplayedBy != 0 {
		s.Errorf("the replay is one of %d, replayed by %d, want of %d", e.ReplayOf, e.ReplayedBy, ids[0])
	}
	_, err := s.Apply(s.Context(), outbox.Batch{
		Owner: o, At: start, New: []outbox.Entry{text("1", "x"), replaying(ids[0])}, Dropped: ids[1:],
	})
	if !errors.Is(err, outbox.ErrReplayed) {
		s.Errorf("a second replay: Apply() = %v, want ErrReplayed", err)
	}
	if e := s.entry(ids[1]); e.State != outbox.Dead {
		s.Errorf("the refused batch dropped a letter: %v", e.State)
	}
	got := s.apply(outbox.Batch{
		Owner: o, Edits: []outbox.Edit{{ID: ids[0], Target: chat.Target{Bot: bot, Chat: "2"}}}, Dropped: ids,
	}).Missed
	s.same("what is missed of a replayed letter", got, []outbox.ID{ids[0], ids[0]})
}

func foreignReplay(id outbox.ID) outbox.Entry {
	e := replaying(id)
	e.Target.Bot = "other"
	return e
}

func replayRace(s *suite) {
	o := s.acquire(bot)
	id := s.letters(o, text("1", "a"))[0]
	var mu sync.Mutex
	var stored []outbox.ID
	together(1, func(_, _ int) {
		a, err := s.Apply(context.WithoutCancel(s.Context()), outbox.Batch{Owner: o, At: start, New: []outbox.Entry{replaying(id)}})
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			stored = append(stored, a.New[0].ID)
		} else if !errors.Is(err, outbox.ErrReplayed) {
			s.Errorf("Apply() = %v, want ErrReplayed", err)
		}
	})
	s.same("pending", s.pendingIDs(o), stored)
	if len(stored) != 1 || s.entry(id).ReplayedBy != stored[0] {
		s.Errorf("%d replays were stored: %v, want 1", len(stored), stored)
	}
}

func edits(s *suite) {
	o := s.acquire(bot)
	id := s.letters(o, text("1", "wrong"))[0]
	pending := s.store(text("1", "pending"))[0]
	want := s.entry(id)
	want.Target = chat.Target{Bot: bot, Chat: "2", Thread: "t"}
	want.Parts = []chat.Part{{Text: "sent"}, {Text: "right", Attachment: &chat.Attachment{Digest: "ab", Name: "a", Type: "b", Size: 1}}}
	want.Receipts, want.Source = []chat.Receipt{"r1"}, &chat.Message{Text: "right", Format: chat.Markdown}
	edit := outbox.Edit{ID: id, Target: want.Target, Parts: want.Parts, Receipts: want.Receipts, Source: want.Source}
	miss := edit
	miss.ID = pending
	missed := s.apply(outbox.Batch{Owner: o, Edits: []outbox.Edit{miss, edit, {ID: 1 << 40, Target: want.Target}}}).Missed
	s.same("what is missed", missed, []outbox.ID{pending, 1 << 40})
	s.same("the edited letter", s.entry(id), want)
	if e := s.entry(pending); e.Parts[0].Text != "pending" {
		s.Errorf("a pending entry was edited: %+v", e)
	}
	edit.Receipts, edit.Source = nil, nil
	s.apply(outbox.Batch{Owner: o, Edits: []outbox.Edit{edit}})
	want.Receipts, want.Source = nil, nil
	s.same("the letter edited again", s.entry(id), want)
}

func drops(s *suite) {
	o := s.acquire(bot)
	id := s.letters(o, text("1", "unwanted"))[0]
	pending := s.store(text("1", "pending"))[0]
	at := start.Add(time.Minute)
	missed := s.apply(outbox.Batch{Owner: o, At: at, Dropped: []outbox.ID{id, pending, id}}).Missed
	s.same("what is missed", missed, []outbox.ID{pending, id})
	if e := s.entry(id); e.State != outbox.Cancelled || !e.EndedAt.Equal(at) || e.Reason != "refused" {
		s.Errorf("the letter is %v (%q, ended %v), want cancelled", e.State, e.Reason, e.EndedAt)
	}
	s.same("pending", s.pendingIDs(o), []outbox.ID{pending})
}

func foreignLetters(s *suite) {
	o, other := s.acquire(bot), s.acquire("other")
	id := s.letters(o, text("1", "mine"))[0]
	before := s.entry(id)
	missed := s.apply(outbox.Batch{
		Owner: other, Edits: []outbox.Edit{{ID: id, Target: chat.Target{Bot: "other", Chat: "2"}}}, Dropped: []outbox.ID{id}, Told: []outbox.ID{id},
	}).Missed
	s.same("what is missed", missed, []outbox.ID{id, id})
	s.same("the letter", s.entry(id), before)
	s.same("who was told", s.list(outbox.Filter{Untold: true}), []outbox.ID{id})
}
