package storetest

import (
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

func settleCases() []testCase {
	return []testCase{
		{"an entry can be stored as sending", bornSending},
		{"a settlement is read back with receipts and time line", settled},
		{"an entry that has ended is not settled again", settledOnce},
		{"sending and settling in one batch hand a lane on", handOn},
	}
}

func bornSending(s *suite) {
	e := text("1", "x")
	e.State = outbox.Sending
	id := s.store(e)[0]
	if got := s.entry(id).State; got != outbox.Sending {
		s.Errorf("the entry is %v, want sending", got)
	}
}

func settled(s *suite) {
	o := s.acquire(bot)
	e := text("1", "one")
	e.Parts = append(e.Parts, chat.Part{Text: "two"}, chat.Part{Text: "three"})
	e.ID, e.CreatedAt = s.store(e)[0], start
	steps := []outbox.Settlement{
		{State: outbox.Queued, Delivered: true, Receipt: "r\n1", Log: outbox.Attempt{At: start, Kind: "sent"}},
		{
			State: outbox.Waiting, Due: start.Add(time.Minute), Attempts: 1, Uncertain: 1, Degraded: true, MayBeDuplicate: true,
			Reason: "uncertain: <reset>", Log: outbox.Attempt{
				At: start.Add(time.Second), Part: 1, Kind: "uncertain", Code: "ECONNRESET", RetryAfter: 1500 * time.Millisecond, Detail: "line\nbreak",
			},
		},
		{State: outbox.Queued, Delivered: true, Receipt: "", Attempts: 1, MayBeDuplicate: true}, // a platform without ids
		{State: outbox.Sent, Delivered: true, Receipt: "r3", Attempts: 1, MayBeDuplicate: true, Log: outbox.Attempt{At: start, Part: 2, Kind: "sent"}},
	}
	for i, step := range steps {
		step.ID = e.ID
		at := start.Add(time.Duration(i) * time.Second)
		s.apply(outbox.Batch{Owner: o, At: at, Sending: []outbox.ID{e.ID}})
		if got := s.entry(e.ID).State; got != outbox.Sending {
			s.Fatalf("step %d: the entry is %v, want sending", i, got)
		}
		s.apply(outbox.Batch{Owner: o, At: at, Settled: []outbox.Settlement{step}})
		settle(&e, step, at)
		s.same("the entry after "+step.State.String(), s.entry(e.ID), e)
	}
}

func settledOnce(s *suite) {
	o := s.acquire(bot)
	for _, end := range []outbox.State{outbox.Sent, outbox.Dead, outbox.Expired, outbox.Cancelled} {
		id := s.store(text("1", "x"))[0]
		s.apply(outbox.Batch{Owner: o, Settled: []outbox.Settlement{{ID: id, State: end, Reason: "first"}}})
		before := s.entry(id)
		s.apply(outbox.Batch{Owner: o, At: start.Add(time.Hour), Sending: []outbox.ID{id}})
		s.apply(outbox.Batch{Owner: o, At: start.Add(time.Hour), Settled: []outbox.Settlement{sent(id, "again")}})
		s.apply(outbox.Batch{Owner: o, Ended: []outbox.Ending{{IDs: []outbox.ID{id}, State: outbox.Dead}}, Moves: []outbox.Move{{From: "1", To: "2", IDs: []outbox.ID{id}}}})
		s.same("an entry that is "+end.String(), s.entry(id), before)
		s.apply(outbox.Batch{Owner: o, Settled: []outbox.Settlement{sent(id+1000, "unknown")}})
	}
}

func handOn(s *suite) {
	o := s.acquire(bot)
	ids := s.store(text("1", "a"), text("1", "b"))
	s.apply(outbox.Batch{Owner: o, Sending: ids[:1]})
	s.apply(outbox.Batch{Owner: o, Settled: []outbox.Settlement{sent(ids[0], "1")}, Sending: ids[1:]})
	s.same("the heads", s.heads(o),
		[]outbox.Head{{ID: ids[1], Chat: "1", State: outbox.Sending, Priority: outbox.Proactive, Called: true}})
}
