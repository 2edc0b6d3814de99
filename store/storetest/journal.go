package storetest

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/chatgateway/gateway/inbound"
	"github.com/chatgateway/gateway/outbox"
)

func journalCases() []testCase {
	return []testCase{
		{"an event is read back whole", eventBack},
		{"a repeated event is known, for its bot only", repeated},
		{"an event that nothing answers is kept and never run", endedEvent},
		{"a turn counts its attempts until it has ended", attempts},
		{"an admitted turn stays admitted", admitted},
		{"unfinished turns come in pages, oldest first", pages},
		{"a turn ends together with its replies", turnEnds},
		{"an earlier owner ends no turn", fencedTurn},
		{"nothing to store is no error", emptyJournal},
	}
}

func eventBack(s *suite) {
	in := message("update 1", "hi \x00 <b>")
	in.Event.Source.Thread = "t"
	in.Event.FromBot, in.Event.Message, in.Event.Data, in.Event.MovedTo = true, "m", "d", "-100"
	in.Event.Raw = json.RawMessage(`{"a":1.50}`)
	got := s.accept(in)[0]
	s.same("the turns", s.unfinished(0, 10), []inbound.Turn{{ID: got.Turn, Event: in.Event}})
}

func repeated(s *suite) {
	other := message("1", "of another bot")
	other.Event.Source.Bot = "other"
	first := s.accept(message("1", "a"), message("2", "b"), message("1", "again"), other)
	for i, fresh := range []bool{true, true, false, true} {
		if first[i].Fresh != fresh {
			s.Errorf("event %d: Fresh = %v, want %v", i, first[i].Fresh, fresh)
		}
	}
	if first[2].Turn != first[0].Turn || first[1].Turn <= first[0].Turn || first[3].Turn <= first[1].Turn {
		s.Errorf("the turns are %v", first)
	}
	s.apply(outbox.Batch{Turns: []outbox.TurnEnd{{Turn: first[0].Turn, Outcome: outbox.TurnDone}}})
	second := s.accept(message("3", "c"), message("1", "after its end"))
	s.same("the repeat after its end", second[1], inbound.Accepted{Turn: first[0].Turn})
	s.same("the text of the turns", texts(s.unfinished(0, 10)), []string{"b", "c"})
}

func texts(turns []inbound.Turn) []string {
	var all []string
	for _, t := range turns {
		all = append(all, t.Event.Text)
	}
	return all
}

func endedEvent(s *suite) {
	in := message("1", "a sticker")
	in.Ended = true
	got := s.accept(in, message("2", "b"))
	if !got[0].Fresh {
		s.Errorf("the event counts as known")
	}
	if n := s.begin(got[0].Turn); n != 0 {
		s.Errorf("Begin() = %d for an event that nothing answers, want 0", n)
	}
	if s.accept(message("1", "again"))[0].Fresh {
		s.Errorf("its repeat is not recognised")
	}
	s.same("the turns", texts(s.unfinished(0, 10)), []string{"b"})
}

func attempts(s *suite) {
	o := s.acquire(bot)
	for _, outcome := range []outbox.Outcome{outbox.TurnDone, outbox.TurnDenied, outbox.TurnDead} {
		turn := s.accept(message(outcome.String(), "a"))[0].Turn
		for want := 1; want <= 3; want++ {
			if got := s.begin(turn); got != want {
				s.Errorf("Begin() = %d, want %d", got, want)
			}
		}
		if got := s.unfinished(0, 10); len(got) != 1 || got[0].Attempt != 3 || !got[0].Admitted {
			s.Errorf("the turn is %+v, want three attempts", got)
		}
		s.apply(outbox.Batch{Owner: o, Turns: []outbox.TurnEnd{{Turn: turn, Outcome: outcome, Reason: "r"}}})
		if got := s.begin(turn); got != 0 {
			s.Errorf("Begin() = %d after the end as %v, want 0", got, outcome)
		}
		if got := s.unfinished(0, 10); len(got) != 0 {
			s.Errorf("unfinished after the end as %v: %+v", outcome, got)
		}
	}
	if got := s.begin(1 << 40); got != 0 {
		s.Errorf("Begin() = %d for a turn that is not known, want 0", got)
	}
}

func admitted(s *suite) {
	got := s.accept(message("1", "a"), message("2", "b"), message("3", "c"))
	s.apply(outbox.Batch{Turns: []outbox.TurnEnd{{Turn: got[2].Turn, Outcome: outbox.TurnDenied}}})
	for range 2 {
		if err := s.Admit(s.Context(), got[0].Turn, got[2].Turn, 1<<40); err != nil {
			s.Fatalf("Admit() failed: %v", err)
		}
	}
	turns := s.unfinished(0, 10)
	if len(turns) != 2 || !turns[0].Admitted || turns[1].Admitted {
		s.Errorf("the turns are %+v, want a admitted, b not, c ended", turns)
	}
	if n := s.begin(got[0].Turn); n != 1 {
		s.Errorf("Begin() = %d after Admit, want 1", n)
	}
}

func pages(s *suite) {
	var want, got []string
	for i := range 10 {
		s.accept(message(fmt.Sprint(i), fmt.Sprint(i)))
		want = append(want, fmt.Sprint(i))
	}
	var last outbox.TurnID
	for {
		page := s.unfinished(last, 4)
		if len(page) == 0 {
			break
		}
		if len(page) > 4 {
			s.Fatalf("a page of %d turns, want at most 4", len(page))
		}
		got, last = append(got, texts(page)...), page[len(page)-1].ID
	}
	s.same("the turns", got, want)
}

func turnEnds(s *suite) {
	o := s.acquire(bot)
	turn := s.accept(message("1", "a"))[0].Turn
	s.begin(turn)
	s.store(keyed("k", "known"))
	end := []outbox.TurnEnd{{Turn: turn, Outcome: outbox.TurnDone}}
	_, err := s.Apply(s.Context(), outbox.Batch{Owner: o, At: start, New: []outbox.Entry{text("1", "reply"), keyed("k", "other")}, Turns: end})
	if !errors.Is(err, outbox.ErrKeyReused) {
		s.Fatalf("Apply() = %v, want ErrKeyReused", err)
	}
	if n := s.begin(turn); n != 2 {
		s.Errorf("a refused batch ended its turn: Begin() = %d, want 2", n)
	}
	if n := len(s.pendingIDs(o)); n != 1 {
		s.Errorf("%d entries are pending after the refusal, want 1", n)
	}
	s.apply(outbox.Batch{Owner: o, New: []outbox.Entry{text("1", "reply")}, Turns: end})
	if n := s.begin(turn); n != 0 {
		s.Errorf("Begin() = %d after the end, want 0", n)
	}
	if n := len(s.pendingIDs(o)); n != 2 {
		s.Errorf("%d entries are pending after the end, want 2", n)
	}
}

func fencedTurn(s *suite) {
	old := s.acquire(bot)
	s.acquire(bot)
	turn := s.accept(message("1", "a"))[0].Turn
	_, err := s.Apply(s.Context(), outbox.Batch{
		Owner: old, At: start, New: []outbox.Entry{text("1", "reply")}, Turns: []outbox.TurnEnd{{Turn: turn, Outcome: outbox.TurnDone}},
	})
	if !errors.Is(err, outbox.ErrNotOwner) {
		s.Errorf("Apply() = %v, want ErrNotOwner", err)
	}
	if n := s.begin(turn); n != 1 {
		s.Errorf("an earlier owner ended the turn: Begin() = %d, want 1", n)
	}
}

func emptyJournal(s *suite) {
	s.accept()
	if err := s.Admit(s.Context()); err != nil {
		s.Errorf("Admit() of nothing failed: %v", err)
	}
	bad := message("1", "a")
	bad.Event.Raw = json.RawMessage(`{`)
	if _, err := s.Accept(s.Context(), message("2", "b"), bad); err == nil {
		s.Errorf("an event that can't be kept as it is was accepted")
	}
	if got := s.unfinished(0, 10); len(got) != 0 {
		s.Errorf("half of a refused call is stored: %v", got)
	}
}
