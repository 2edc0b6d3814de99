package storetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

func loadCases() []testCase {
	return []testCase{
		{"the heads are the bot's pending entries in the order of their ids", heads},
		{"heads come page by page", headPages},
		{"a new store has an empty backlog", emptyBacklog},
		{"a note tells a call that may have been made from one that was not", notes},
		{"dead targets are marked, marked again and revived", deadTargets},
		{"an ending ends the pending entries that it names, and no others", endings},
		{"a move takes the entries along that it names, and is remembered", moves},
		{"moves come back in their order, whatever the clock said", moveOrder},
		{"anchors are read back", anchors},
		{"cleared anchors void the channels of their scope", clearedAnchors},
	}
}

func emptyBacklog(s *suite) {
	b := s.load(s.acquire(bot))
	if len(b.Dead)+len(b.Moves)+len(b.Anchors) > 0 {
		s.Errorf("a new store's backlog is %+v", b)
	}
}

func heads(s *suite) {
	o := s.acquire(bot)
	var entries []outbox.Entry
	for i := range 30 {
		e := text(chat.ChatID(rune('z'-i%7)), "x")
		e.Priority = outbox.Priority(i%3 + 1)
		e.Target.Thread = chat.ThreadID([]string{"", "t"}[i%2])
		entries = append(entries, e)
	}
	entries[3].NotBefore = start.Add(time.Hour)
	entries[4].ExpiresAt = start.Add(2 * time.Hour)
	entries[5].Target.Bot = "other"
	entries[8].Supersede, entries[9].MayBeDuplicate = "k", true
	entries[10].Parts = append(entries[10].Parts, chat.Part{Text: "y"})
	ids := s.store(entries...)
	waiting := outbox.Settlement{ID: ids[7], State: outbox.Waiting, Due: start.Add(time.Minute), MayBeDuplicate: true}
	s.apply(outbox.Batch{Owner: o, Sending: ids[6:7], Settled: []outbox.Settlement{
		waiting, sent(ids[0], "1"),
		{ID: ids[1], State: outbox.Dead},
		{ID: ids[29], State: outbox.Cancelled},
		{ID: ids[10], State: outbox.Queued, Delivered: true},
	}})
	var want []outbox.Head
	for i, e := range entries {
		if i == 0 || i == 1 || i == 5 || i == 29 {
			continue
		}
		want = append(want, outbox.Head{
			ID: ids[i], Chat: e.Target.Chat, Thread: e.Target.Thread, State: outbox.Queued,
			Priority: e.Priority, NotBefore: e.NotBefore, ExpiresAt: e.ExpiresAt,
			Supersede: e.Supersede, MayBeDuplicate: e.MayBeDuplicate, Begun: i == 10,
		})
	}
	want[6-3].State, want[6-3].Called = outbox.Sending, true // nothing is noted, so nobody knows
	want[7-3].State, want[7-3].Due, want[7-3].MayBeDuplicate = outbox.Waiting, waiting.Due, true
	s.same("the heads", s.heads(o), want)
	s.same("the other bot's", s.pendingIDs(s.acquire("other")), ids[5:6])
}

func headPages(s *suite) {
	const n = 12_000
	o := s.acquire(bot)
	other := text("1", "x")
	other.Target.Bot = "other"
	var want []outbox.ID
	for i, stored := range s.apply(outbox.Batch{Owner: o, New: slices.Repeat([]outbox.Entry{text("1", "x"), text("2", "y"), other}, n/3)}).New {
		if i%3 < 2 {
			want = append(want, stored.ID)
		}
	}
	s.same("the pages", s.pendingIDs(o), want)
	page, err := s.Heads(s.Context(), o, want[len(want)-3])
	if err != nil || len(page) != 2 || page[0].ID != want[len(want)-2] {
		s.Errorf("Heads() after the last but two = %v, %v, want the last two", page, err)
	}
}

func notes(s *suite) {
	o := s.acquire(bot)
	ids := s.store(text("1", "x"), text("2", "y"), text("3", "z"))
	s.apply(outbox.Batch{Owner: o, Sending: ids})
	note := func(seat int, c outbox.Call) {
		if err := s.Note(bot, seat, c); err != nil {
			s.Fatalf("Note() = %v", err)
		}
	}
	called := func() (got []outbox.ID) {
		for _, h := range s.heads(s.acquire(bot)) {
			if h.Called {
				got = append(got, h.ID)
			}
		}
		return got
	}
	s.same("without any note, what may have been called", called(), ids)
	note(0, outbox.Call{})
	s.same("after an empty note", called(), []outbox.ID(nil))
	note(0, outbox.Call{ID: ids[0]})
	note(4000, outbox.Call{ID: ids[1], Attempt: 1})
	s.same("noted, and noted for another attempt", called(), ids[:1])
	note(0, outbox.Call{ID: ids[2]})
	s.same("after the seat went to another", called(), ids[2:])
	o = s.acquire(bot)
	again := outbox.Settlement{ID: ids[1], State: outbox.Waiting, Log: outbox.Attempt{At: start, Kind: "temporary"}}
	s.apply(outbox.Batch{Owner: o, Settled: []outbox.Settlement{again}})
	s.apply(outbox.Batch{Owner: o, Sending: ids[1:2]})
	s.same("at its second attempt", called(), ids[1:])
	if err := s.Note("other", 0, outbox.Call{ID: ids[0]}); err != nil {
		s.Fatalf("Note() = %v", err)
	}
	s.same("after another bot's note", called(), ids[1:])
}

func deadTargets(s *suite) {
	o := s.acquire(bot)
	first := outbox.DeadTarget{Chat: "1", Reason: "blocked", Code: "403", Since: start, At: start, Count: 1, ProbeAt: start.Add(time.Hour)}
	other := outbox.DeadTarget{Chat: "2", Reason: "gone", Since: start, At: start.Add(time.Minute), Count: 1}
	s.apply(outbox.Batch{Owner: o, Dead: []outbox.DeadTarget{first, other}})
	s.same("the dead targets", s.load(o).Dead, []outbox.DeadTarget{first, other})

	again := outbox.DeadTarget{Chat: "1", Reason: "deleted", Code: "400", Since: start.Add(time.Hour), At: start.Add(time.Hour), Count: 2, ProbeAt: start.Add(2 * time.Hour)}
	s.apply(outbox.Batch{Owner: o, Dead: []outbox.DeadTarget{again}, Revived: []chat.ChatID{"2", "unknown"}})
	again.Since = start // the first mark is kept
	s.same("the dead targets", s.load(o).Dead, []outbox.DeadTarget{again})
	if dead := s.load(s.acquire("other")).Dead; len(dead) > 0 {
		s.Errorf("another bot's dead targets: %v", dead)
	}
}

func endings(s *suite) {
	o := s.acquire(bot)
	other := text("1", "other bot")
	other.Target.Bot = "other"
	ids := s.store(text("1", "queued"), text("2", "waiting"), text("1", "sending"), text("1", "sent"), other, text("1", "spared"))
	s.apply(outbox.Batch{Owner: o, Sending: ids[2:3], Settled: []outbox.Settlement{
		{ID: ids[1], State: outbox.Waiting, Attempts: 2, Due: start}, sent(ids[3], "1"),
	}})
	at := start.Add(time.Minute)
	s.apply(outbox.Batch{Owner: o, At: at, Ended: []outbox.Ending{
		{IDs: []outbox.ID{ids[4], ids[3], ids[1], ids[0], 1 << 40}, State: outbox.Dead, Reason: "dead target: blocked"},
		{IDs: ids[2:3], State: outbox.Cancelled, Reason: "withdrawn"},
		{State: outbox.Expired, Reason: "names nothing"},
	}})
	for i, want := range map[int]outbox.State{0: outbox.Dead, 1: outbox.Dead, 2: outbox.Cancelled} {
		if e := s.entry(ids[i]); e.State != want || e.Reason == "" || !e.EndedAt.Equal(at) {
			s.Errorf("entry %q is %v (%q, ended %v), want %v", e.Parts[0].Text, e.State, e.Reason, e.EndedAt, want)
		}
	}
	if e := s.entry(ids[3]); e.State != outbox.Sent || e.Reason != "" {
		s.Errorf("what was sent ended again as %v (%q)", e.State, e.Reason)
	}
	s.same("what is left", s.pendingIDs(o), ids[5:])
	s.same("the other bot's", s.pendingIDs(s.acquire("other")), ids[4:5])
}

func moves(s *suite) {
	o := s.acquire(bot)
	thread, other := text("1", "thread"), text("1", "other bot")
	thread.Target.Thread, other.Target.Bot = "t", "other"
	ids := s.store(text("1", "a"), thread, text("3", "c"), other, text("1", "ended"), text("1", "not named"))
	s.apply(outbox.Batch{Owner: o, Settled: []outbox.Settlement{sent(ids[4], "1")}, Sending: ids[:1]})
	s.apply(outbox.Batch{Owner: o, Moves: []outbox.Move{{From: "1", To: "2", IDs: []outbox.ID{ids[4], ids[0], ids[1], ids[3]}}}})
	for i, want := range []chat.Target{
		{Bot: bot, Chat: "2"},
		{Bot: bot, Chat: "2", Thread: "t"},
		{Bot: bot, Chat: "3"},
		{Bot: "other", Chat: "1"},
		{Bot: bot, Chat: "1"},
		{Bot: bot, Chat: "1"},
	} {
		if got := s.entry(ids[i]).Target; got != want {
			s.Errorf("entry %d goes to %v, want %v", i, got, want)
		}
	}
	b := s.load(o)
	s.same("the moves", b.Moves, []outbox.Move{{From: "1", To: "2"}})
	s.same("the heads", s.pendingIDs(o), []outbox.ID{ids[0], ids[1], ids[2], ids[5]})
}

func moveOrder(s *suite) {
	o := s.acquire(bot)
	s.apply(outbox.Batch{Owner: o, At: start, Moves: []outbox.Move{{From: "9", To: "5"}, {From: "5", To: "1"}}})
	s.apply(outbox.Batch{Owner: o, At: start.Add(-time.Hour), Moves: []outbox.Move{{From: "3", To: "9"}}})
	s.same("the moves", s.load(o).Moves, []outbox.Move{{From: "9", To: "5"}, {From: "5", To: "1"}, {From: "3", To: "9"}})
	s.apply(outbox.Batch{Owner: o, Moves: []outbox.Move{{From: "9", To: "7"}}})
	s.same("the moves", s.load(o).Moves, []outbox.Move{{From: "5", To: "1"}, {From: "3", To: "9"}, {From: "9", To: "7"}})
}

// sorted puts anchors into one order: a store gives them in any.
func sorted(anchors []limiter.Anchors) []limiter.Anchors {
	slices.SortFunc(anchors, func(a, b limiter.Anchors) int { return cmp.Compare(a.Scope, b.Scope) })
	for _, a := range anchors {
		slices.SortFunc(a.Channels, func(a, b limiter.ChannelAnchor) int {
			return cmp.Or(cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.Method, b.Method))
		})
	}
	return anchors
}

func anchors(s *suite) {
	o := s.acquire(bot)
	a := limiter.Anchors{
		Scope: "telegram:ab", At: start, Tokens: -0.25, Ceiling: 26.5, PenaltyUntil: start.Add(time.Minute), PenaltyFor: time.Hour, Clean: true,
		Channels: []limiter.ChannelAnchor{
			{Method: "send", PenaltyUntil: start.Add(time.Second), PenaltyFor: time.Second},
			{Channel: "1", DelayUntil: start.Add(time.Second), RuleUntil: start.Add(2 * time.Second)},
			{Channel: "1", Method: "edit", PenaltyUntil: start.Add(time.Minute), PenaltyFor: 90 * time.Second},
			{Channel: "2", PenaltyUntil: start.Add(time.Minute), PenaltyFor: time.Minute},
		},
	}
	other := limiter.Anchors{Scope: "other", At: start, Tokens: 3}
	s.apply(outbox.Batch{Owner: o, Anchors: []limiter.Anchors{a, other}})
	s.same("the anchors", sorted(s.load(o).Anchors), []limiter.Anchors{other, a})

	next := limiter.Anchors{Scope: a.Scope, At: start.Add(time.Second), Tokens: 5, Channels: []limiter.ChannelAnchor{
		{Channel: "1", DelayUntil: start.Add(3 * time.Second)}, {Channel: "3", RuleUntil: start.Add(4 * time.Second)},
	}}
	s.apply(outbox.Batch{Owner: o, Anchors: []limiter.Anchors{next}})
	want := next
	want.Channels = []limiter.ChannelAnchor{a.Channels[0], next.Channels[0], a.Channels[2], a.Channels[3], next.Channels[1]}
	s.same("the anchors", sorted(s.load(o).Anchors), []limiter.Anchors{other, want})
}

func clearedAnchors(s *suite) {
	o := s.acquire(bot)
	channels := []limiter.ChannelAnchor{{Channel: "1", DelayUntil: start}, {Channel: "2", DelayUntil: start}}
	a := limiter.Anchors{Scope: "a", At: start, Channels: channels}
	b := limiter.Anchors{Scope: "b", At: start, Channels: channels}
	s.apply(outbox.Batch{Owner: o, Anchors: []limiter.Anchors{a, b}})
	cleared := limiter.Anchors{Scope: "a", At: start, Cleared: true, Channels: []limiter.ChannelAnchor{{Channel: "3", RuleUntil: start}}}
	s.apply(outbox.Batch{Owner: o, Anchors: []limiter.Anchors{cleared}})
	cleared.Cleared = false
	s.same("the anchors", sorted(s.load(o).Anchors), []limiter.Anchors{cleared, b})
}
