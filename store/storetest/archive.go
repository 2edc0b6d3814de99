package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

func archiveCases() []testCase {
	return []testCase{
		{"a filter chooses entries by what they are", filters},
		{"a list goes on after an id, forwards and backwards", listPages},
		{"dead letters that nobody was told of are found", untold},
		{"dead targets come page by page, and one by one", deadPages},
		{"an empty store lists nothing", emptyArchive},
	}
}

// list gives the ids of a list, and holds Count to it.
func (s *suite) list(f outbox.Filter) []outbox.ID {
	s.Helper()
	entries, err := s.List(s.Context(), f)
	if err != nil {
		s.Fatalf("List(%+v) failed: %v", f, err)
	}
	ids := []outbox.ID{}
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	n, err := s.Count(s.Context(), f)
	if err != nil || n < len(ids) || n > len(ids) && len(ids) < max(f.Limit, 1) {
		s.Errorf("Count(%+v) = %d, %v beside a list of %d", f, n, err, len(ids))
	}
	return ids
}

func filters(s *suite) {
	o := s.acquire(bot)
	other := text("2", "f")
	other.Target.Bot = "other"
	var ids []outbox.ID
	for i, e := range []outbox.Entry{text("1", "a"), text("2", "b"), text("1", "c"), text("2", "d"), text("1", "e"), other, text("1", "g")} {
		ids = append(ids, s.apply(outbox.Batch{At: start.Add(time.Duration(i) * time.Minute), New: []outbox.Entry{e}}).New[0].ID)
	}
	s.apply(outbox.Batch{Owner: o, Sending: ids[4:5], Settled: []outbox.Settlement{
		{ID: ids[0], State: outbox.Dead, Reason: "rejected: 100% _wrong_"},
		{ID: ids[1], State: outbox.Dead, Reason: "uncertain"},
		{ID: ids[2], State: outbox.Waiting, Reason: "temporary"},
		sent(ids[3], "1"),
	}})
	again := s.apply(outbox.Batch{Owner: o, At: start.Add(time.Hour), New: []outbox.Entry{replaying(ids[1])}}).New[0].ID
	for _, c := range []struct {
		name string
		f    outbox.Filter
		want []outbox.ID
	}{
		{"all", outbox.Filter{}, append(slices.Clone(ids), again)},
		{"the newest two", outbox.Filter{Newest: true, Limit: 2}, []outbox.ID{again, ids[6]}},
		{"dead letters", outbox.Filter{States: []outbox.State{outbox.Dead}}, ids[:2]},
		{"dead letters, the newest", outbox.Filter{States: []outbox.State{outbox.Dead}, Newest: true, Limit: 1}, ids[1:2]},
		{"dead letters that were not replayed", outbox.Filter{Open: true}, ids[:1]},
		{"of another state and open at once", outbox.Filter{Open: true, States: []outbox.State{outbox.Sent}}, nil},
		{"pending", outbox.Filter{States: []outbox.State{outbox.Queued, outbox.Sending, outbox.Waiting}}, []outbox.ID{ids[2], ids[4], ids[5], ids[6], again}},
		{"pending, the newest three", outbox.Filter{States: []outbox.State{outbox.Queued, outbox.Sending, outbox.Waiting}, Newest: true, Limit: 3}, []outbox.ID{again, ids[6], ids[5]}},
		{"pending of a bot", outbox.Filter{States: []outbox.State{outbox.Queued, outbox.Sending, outbox.Waiting}, Bot: bot}, []outbox.ID{ids[2], ids[4], ids[6], again}},
		{"waiting", outbox.Filter{States: []outbox.State{outbox.Waiting}}, ids[2:3]},
		{"waiting or sent", outbox.Filter{States: []outbox.State{outbox.Sent, outbox.Waiting}}, ids[2:4]},
		{"of a bot", outbox.Filter{Bot: "other"}, ids[5:6]},
		{"of a chat", outbox.Filter{Bot: bot, Chat: "2"}, []outbox.ID{ids[1], ids[3]}},
		{"of a chat of any bot", outbox.Filter{Chat: "2"}, []outbox.ID{ids[1], ids[3], ids[5]}},
		{"by reason", outbox.Filter{Reason: "% _w"}, ids[:1]},
		{"by reason, in another case", outbox.Filter{Reason: "Rejected"}, nil},
		{"since", outbox.Filter{Since: start.Add(6 * time.Minute)}, []outbox.ID{ids[6], again}},
		{"since a nanosecond later", outbox.Filter{Since: start.Add(6*time.Minute + 1)}, []outbox.ID{again}},
		{"until", outbox.Filter{Until: start.Add(time.Minute)}, ids[:1]},
		{"until a nanosecond later", outbox.Filter{Until: start.Add(time.Minute + 1)}, ids[:2]},
		{"since and until", outbox.Filter{Since: start.Add(time.Minute), Until: start.Add(3 * time.Minute)}, ids[1:3]},
	} {
		if got := s.list(c.f); !slices.Equal(got, c.want) {
			s.Errorf("%s: List() = %v, want %v", c.name, got, c.want)
		}
	}
	e, err := s.List(s.Context(), outbox.Filter{Open: true})
	if err != nil || len(e) != 1 {
		s.Fatalf("List() = %v, %v", e, err)
	}
	s.same("a listed entry", e[0], s.entry(ids[0]))
}

// pages lists page after page.
func (s *suite) pages(f outbox.Filter) []outbox.ID {
	s.Helper()
	all := []outbox.ID{}
	for {
		page := s.list(f)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		f.After = page[len(page)-1]
	}
}

func listPages(s *suite) {
	const n = 4_500
	o := s.acquire(bot)
	ids := s.store(append(slices.Repeat([]outbox.Entry{text("1", "x"), text("2", "y"), text("3", "z")}, n/3), text("rare", "r"))...)
	var dead, pending []outbox.ID
	for i, id := range ids {
		if i%3 == 0 {
			pending = append(pending, id)
		} else {
			dead = append(dead, id)
		}
	}
	s.apply(outbox.Batch{Owner: o, Ended: []outbox.Ending{{IDs: dead, State: outbox.Dead}}})
	if got := s.list(outbox.Filter{}); !slices.Equal(got, ids[:100]) {
		s.Errorf("a list without a limit gave %d entries, want the first 100", len(got))
	}
	for _, c := range []struct {
		name string
		f    outbox.Filter
		want []outbox.ID
	}{
		{"all", outbox.Filter{Limit: 700}, ids},
		{"dead letters", outbox.Filter{Limit: 1100, States: []outbox.State{outbox.Dead}}, dead},
		{"pending", outbox.Filter{Limit: 1100, States: []outbox.State{outbox.Queued}}, pending},
		{"of a rare chat", outbox.Filter{Limit: 1, Chat: "rare"}, ids[n:]},
	} {
		if got := s.pages(c.f); !slices.Equal(got, c.want) {
			s.Errorf("%s: the pages hold %d entries, want %d", c.name, len(got), len(c.want))
		}
		c.f.Newest = true
		got := s.pages(c.f)
		slices.Reverse(got)
		if !slices.Equal(got, c.want) {
			s.Errorf("%s, the newest first: the pages hold %d entries, want %d", c.name, len(got), len(c.want))
		}
	}
	if got, err := s.Count(s.Context(), outbox.Filter{Limit: 1, After: ids[0]}); err != nil || got != n {
		s.Errorf("Count() = %d, %v, want %d whatever the limit", got, err, n)
	}
}

func untold(s *suite) {
	o := s.acquire(bot)
	ids := s.letters(o, text("1", "a"), text("1", "b"), text("1", "c"))
	pending := s.store(text("1", "pending"))
	s.same("untold", s.list(outbox.Filter{Untold: true}), ids)
	s.apply(outbox.Batch{Owner: o, Told: append([]outbox.ID{ids[1], 1 << 40}, pending...)})
	s.same("untold", s.list(outbox.Filter{Untold: true, Bot: bot}), []outbox.ID{ids[0], ids[2]})
	s.apply(outbox.Batch{Owner: o, Dropped: ids[:1]})
	s.same("untold", s.list(outbox.Filter{Untold: true}), ids[2:])
	s.apply(outbox.Batch{Owner: o, Ended: []outbox.Ending{{IDs: pending, State: outbox.Dead}}})
	s.same("untold, though it was told of while it was pending", s.list(outbox.Filter{Untold: true}), append(ids[2:], pending...))
}

func deadPages(s *suite) {
	o, other := s.acquire(bot), s.acquire("other")
	var all []outbox.DeadTarget
	for i := range 25 {
		all = append(all, outbox.DeadTarget{
			Chat: chat.ChatID(fmt.Sprint(100 + i)), Reason: "blocked", Code: "403", Since: start, At: start.Add(-time.Duration(i) * time.Minute), Count: i, ProbeAt: start.Add(time.Hour),
		})
	}
	s.apply(outbox.Batch{Owner: o, Dead: all})
	s.apply(outbox.Batch{Owner: other, Dead: all[:1]})
	var got []outbox.DeadTarget
	for after := chat.ChatID(""); ; after = got[len(got)-1].Chat {
		page, err := s.DeadTargets(s.Context(), bot, after, 10)
		if err != nil || len(page) > 10 {
			s.Fatalf("DeadTargets() gave %d, %v, want 10 at most", len(page), err)
		}
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
	}
	s.same("the pages", got, all)
	one, dead, err := s.DeadTarget(s.Context(), bot, "107")
	if err != nil || !dead {
		s.Fatalf("DeadTarget() = %v, %v, want it dead", dead, err)
	}
	s.same("the dead target", one, all[7])
	for _, c := range []struct {
		bot  chat.BotName
		chat chat.ChatID
	}{{bot, "7"}, {"other", "107"}, {"unknown", "100"}} {
		if one, dead, err := s.DeadTarget(s.Context(), c.bot, c.chat); err != nil || dead || one != (outbox.DeadTarget{}) {
			s.Errorf("DeadTarget(%s, %s) = %v, %v, %v, want none", c.bot, c.chat, one, dead, err)
		}
	}
}

func emptyArchive(s *suite) {
	for _, f := range []outbox.Filter{{}, {Newest: true}, {Open: true}, {Untold: true}, {States: []outbox.State{outbox.Queued}}, {After: 5, Bot: bot}} {
		if got := s.list(f); len(got) > 0 {
			s.Errorf("List(%+v) = %v", f, got)
		}
	}
	if dead, err := s.DeadTargets(s.Context(), bot, "", 5); err != nil || len(dead) > 0 {
		s.Errorf("DeadTargets() = %v, %v", dead, err)
	}
}
