package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/inbound"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

const (
	compareEvery = 5 // actions: comparing takes longer than they do
	mostRuns     = 30
	racedRuns    = 10 // under the race detector
)

// machine gives a store and the model the same random calls, and compares what
// they answer and what they hold.
func machine(t *testing.T, store Store) {
	t.Helper()
	var runs atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		m := &twins{
			T: rt, store: store, model: NewMemory(), run: fmt.Sprintf("r%d", runs.Add(1)),
			owners: map[chat.BotName][]outbox.Owner{},
		}
		if n := runs.Load(); n > mostRuns || raceDetector && n > racedRuns {
			return
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":        m.check,
			"acquire": m.acquire,
			"apply":   m.apply,
			"accept":  m.accept,
			"admit":   m.admit,
			"begin":   m.begin,
		})
		m.compare(rt)
	})
}

// twins are a store and its model. Runs share one store, so names carry the
// run's own, and ids are translated: the index in the lists is the model's id
// minus one.
type twins struct {
	*rapid.T
	store  Store
	model  *Memory
	run    string
	owners map[chat.BotName][]outbox.Owner // the model's and the store's epochs agree
	ids    []outbox.ID
	turns  []outbox.TurnID
	steps  int
}

func (m *twins) name(rt *rapid.T) chat.BotName {
	return chat.BotName(m.run + rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "bot"))
}

func chatOf(rt *rapid.T) chat.ChatID {
	return chat.ChatID(rapid.SampledFrom([]string{"1", "2", "3"}).Draw(rt, "chat"))
}

func timeOf(rt *rapid.T) time.Time {
	return start.Add(time.Duration(rapid.IntRange(-3, 3).Draw(rt, "at")) * time.Second)
}

func (m *twins) acquire(rt *rapid.T) {
	name := m.name(rt)
	a, err := m.store.Acquire(rt.Context(), name)
	b, _ := m.model.Acquire(rt.Context(), name)
	if err != nil || a != b {
		rt.Fatalf("Acquire(%s) = %v, %v, want %v", name, a, err, b)
	}
	m.owners[name] = append(m.owners[name], a)
}

// owner is nobody, an earlier owner, or mostly the present one.
func (m *twins) owner(rt *rapid.T, name chat.BotName) outbox.Owner {
	known := m.owners[name]
	n := rapid.IntRange(0, 9).Draw(rt, "owner")
	if len(known) == 0 || n == 9 {
		return outbox.Owner{}
	}
	return known[max(len(known)-1-n/7, 0)]
}

func (m *twins) id(rt *rapid.T) (mine outbox.ID, ok bool) {
	if len(m.ids) == 0 {
		return 0, false
	}
	return outbox.ID(rapid.IntRange(1, len(m.ids)).Draw(rt, "id")), true
}

// batch draws a batch, in the model's ids.
func (m *twins) batch(rt *rapid.T) outbox.Batch {
	name := m.name(rt)
	b := outbox.Batch{Owner: m.owner(rt, name), At: timeOf(rt)}
	some := func(what string, most int, add func()) {
		for range rapid.IntRange(0, most).Draw(rt, what) {
			add()
		}
	}
	some("new", 3, func() { b.New = append(b.New, m.entry(rt, name)) })
	some("turns", 1, func() {
		if len(m.turns) > 0 {
			turn := outbox.TurnID(rapid.IntRange(1, len(m.turns)).Draw(rt, "turn"))
			b.Turns = append(b.Turns, outbox.TurnEnd{Turn: turn, Outcome: outbox.TurnDone})
		}
	})
	if b.Owner == (outbox.Owner{}) && rapid.IntRange(0, 9).Draw(rt, "strange") > 0 {
		return b
	}
	some("sending", 2, func() {
		if id, ok := m.id(rt); ok {
			b.Sending = append(b.Sending, id)
		}
	})
	some("settled", 2, func() {
		if id, ok := m.id(rt); ok {
			b.Settled = append(b.Settled, settlement(rt, id))
		}
	})
	m.targets(rt, &b, some)
	m.letters(rt, &b)
	return b
}

func (m *twins) targets(rt *rapid.T, b *outbox.Batch, some func(string, int, func())) {
	some("dead", 1, func() {
		b.Dead = append(b.Dead, outbox.DeadTarget{Chat: chatOf(rt), Since: timeOf(rt), At: timeOf(rt), Count: 1})
	})
	some("revived", 1, func() { b.Revived = append(b.Revived, chatOf(rt)) })
	some("ended", 1, func() {
		state := rapid.SampledFrom([]outbox.State{outbox.Dead, outbox.Dead, outbox.Expired, outbox.Cancelled}).Draw(rt, "end")
		b.Ended = append(b.Ended, outbox.Ending{IDs: m.some(rt), State: state, Reason: "gone"})
	})
	some("moves", 2, func() { b.Moves = append(b.Moves, outbox.Move{From: chatOf(rt), To: chatOf(rt), IDs: m.some(rt)}) })
	some("anchors", 1, func() {
		b.Anchors = append(b.Anchors, limiter.Anchors{
			Scope: m.run, At: b.At, Tokens: rapid.Float64Range(-1, 30).Draw(rt, "tokens"), Cleared: rapid.Bool().Draw(rt, "cleared"),
			Channels: []limiter.ChannelAnchor{{Channel: string(chatOf(rt)), DelayUntil: timeOf(rt)}},
		})
	})
}

// some draws a few ids, of whatever entries.
func (m *twins) some(rt *rapid.T) []outbox.ID {
	var ids []outbox.ID
	for range rapid.IntRange(0, 3).Draw(rt, "ids") {
		if id, ok := m.id(rt); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// letters draws what operators do.
func (m *twins) letters(rt *rapid.T, b *outbox.Batch) {
	if len(m.ids) == 0 {
		return
	}
	switch rapid.SampledFrom([]string{"", "", "edit", "drop", "tell", "adopt"}).Draw(rt, "letters") {
	case "edit":
		id, _ := m.id(rt)
		b.Edits = append(b.Edits, outbox.Edit{
			ID: id, Target: chat.Target{Bot: b.Owner.Bot, Chat: chatOf(rt)}, Parts: []chat.Part{{Text: rapid.String().Draw(rt, "text")}},
			Receipts: rapid.SampledFrom([][]chat.Receipt{nil, {"r1", "r\n2"}}).Draw(rt, "receipts"), Source: sourceOf(rt),
		})
	case "drop":
		b.Dropped = m.some(rt)
	case "tell":
		b.Told = m.some(rt)
	case "adopt":
		b.Adopt = true
	}
}

func sourceOf(rt *rapid.T) *chat.Message {
	if rapid.Bool().Draw(rt, "source") {
		return nil
	}
	return &chat.Message{Text: rapid.String().Draw(rt, "text"), Format: chat.Markdown}
}

func (m *twins) entry(rt *rapid.T, name chat.BotName) outbox.Entry {
	e := outbox.Entry{
		Target:   chat.Target{Bot: name, Chat: chatOf(rt), Thread: chat.ThreadID(rapid.SampledFrom([]string{"", "t"}).Draw(rt, "thread"))},
		State:    rapid.SampledFrom([]outbox.State{outbox.Queued, outbox.Sending}).Draw(rt, "state"),
		Priority: outbox.Priority(rapid.IntRange(1, 3).Draw(rt, "priority")),
		Parts:    []chat.Part{{Text: rapid.String().Draw(rt, "text")}},
		Source:   sourceOf(rt), MayBeDuplicate: rapid.Bool().Draw(rt, "duplicate"),
		Supersede: rapid.SampledFrom([]string{"", "s"}).Draw(rt, "supersede"), OnUncertain: outbox.OnUncertain(rapid.IntRange(0, 3).Draw(rt, "uncertain")),
	}
	switch rapid.IntRange(0, 5).Draw(rt, "instead") {
	case 0:
		e.Supersedes, _ = m.id(rt)
	case 1:
		e.ReplayOf, _ = m.id(rt)
	}
	if key := rapid.SampledFrom([]string{"", "", "k", "l"}).Draw(rt, "key"); key != "" {
		e.Key = m.run + key
		e.Fingerprint = []byte(rapid.SampledFrom([]string{"x", "x", "x", "x", "y"}).Draw(rt, "fingerprint"))
	}
	return e
}

func settlement(rt *rapid.T, id outbox.ID) outbox.Settlement {
	s := outbox.Settlement{
		ID: id, State: outbox.State(rapid.IntRange(1, 7).Draw(rt, "state")), Due: timeOf(rt),
		Attempts: rapid.IntRange(0, 5).Draw(rt, "attempts"), Delivered: rapid.Bool().Draw(rt, "delivered"),
		Log: outbox.Attempt{At: timeOf(rt), Kind: rapid.SampledFrom([]string{"", "sent"}).Draw(rt, "kind")},
	}
	if s.Delivered {
		s.Receipt = chat.Receipt(rapid.String().Draw(rt, "receipt"))
	}
	return s
}

func (m *twins) apply(rt *rapid.T) {
	b := m.batch(rt)
	want, wantErr := m.model.Apply(rt.Context(), b)
	got, err := m.store.Apply(rt.Context(), m.translated(b))
	for _, known := range []error{outbox.ErrNotOwner, outbox.ErrKeyReused, outbox.ErrReplayed} {
		if errors.Is(err, known) != errors.Is(wantErr, known) {
			rt.Fatalf("Apply() = %v, want %v", err, wantErr)
		}
	}
	if wantErr != nil {
		return
	}
	if err != nil {
		rt.Fatalf("Apply() = %v, want nil", err)
	}
	m.stored(got.New, want.New)
	m.same("missed letters", got.Missed, m.all(want.Missed), nil)
	m.same("adopted heads", got.Adopted, m.heads(want.Adopted), nil)
}

// stored compares where new entries stand, and learns their ids.
func (m *twins) stored(got, want []outbox.Stored) {
	for i, w := range want {
		g := got[i]
		if g.Duplicate != w.Duplicate {
			m.Fatalf("new entry %d: %+v, want %+v", i, g, w)
		}
		if !w.Duplicate {
			if len(m.ids) > 0 && g.ID <= m.ids[len(m.ids)-1] {
				m.Fatalf("id %d came after %d", g.ID, m.ids[len(m.ids)-1])
			}
			m.ids = append(m.ids, g.ID)
		}
		if g.ID != m.ids[w.ID-1] {
			m.Fatalf("new entry %d has id %d, want %d", i, g.ID, m.ids[w.ID-1])
		}
	}
}

// real gives the store's id; none stays none.
func (m *twins) real(id outbox.ID) outbox.ID {
	if id == 0 {
		return 0
	}
	return m.ids[id-1]
}

func (m *twins) all(ids []outbox.ID) []outbox.ID {
	ids = slices.Clone(ids)
	for i, id := range ids {
		ids[i] = m.real(id)
	}
	return ids
}

func (m *twins) heads(heads []outbox.Head) []outbox.Head {
	for i := range heads {
		heads[i].ID = m.real(heads[i].ID)
	}
	return heads
}

// entries gives entries as the store has them. What they were superseded by is
// named by id.
func (m *twins) entries(entries []outbox.Entry) []outbox.Entry {
	for i := range entries {
		e := &entries[i]
		for id, is := range m.ids {
			if e.Reason == outbox.SupersededBy(outbox.ID(id+1)) {
				e.Reason = outbox.SupersededBy(is)
				break
			}
		}
		e.ID, e.ReplayOf, e.ReplayedBy = m.real(e.ID), m.real(e.ReplayOf), m.real(e.ReplayedBy)
	}
	return entries
}

// translated gives the batch in the store's ids.
func (m *twins) translated(b outbox.Batch) outbox.Batch {
	b.New, b.Settled, b.Ended, b.Moves = slices.Clone(b.New), slices.Clone(b.Settled), slices.Clone(b.Ended), slices.Clone(b.Moves)
	b.Turns, b.Edits = slices.Clone(b.Turns), slices.Clone(b.Edits)
	b.Sending, b.Dropped, b.Told = m.all(b.Sending), m.all(b.Dropped), m.all(b.Told)
	for i := range b.New {
		b.New[i].Supersedes, b.New[i].ReplayOf = m.real(b.New[i].Supersedes), m.real(b.New[i].ReplayOf)
	}
	for i := range b.Settled {
		b.Settled[i].ID = m.real(b.Settled[i].ID)
	}
	for i := range b.Ended {
		b.Ended[i].IDs = m.all(b.Ended[i].IDs)
	}
	for i := range b.Moves {
		b.Moves[i].IDs = m.all(b.Moves[i].IDs)
	}
	for i := range b.Edits {
		b.Edits[i].ID = m.real(b.Edits[i].ID)
	}
	for i := range b.Turns {
		b.Turns[i].Turn = m.turns[b.Turns[i].Turn-1]
	}
	return b
}

func (m *twins) accept(rt *rapid.T) {
	var intakes []inbound.Intake
	name := m.name(rt)
	for range rapid.IntRange(1, 3).Draw(rt, "events") {
		n := rapid.IntRange(0, 5).Draw(rt, "event")
		in := message(fmt.Sprint(n), "x")
		in.Event.Source.Bot, in.Ended = name, n == 5
		intakes = append(intakes, in)
	}
	want, _ := m.model.Accept(rt.Context(), intakes...)
	got, err := m.store.Accept(rt.Context(), intakes...)
	if err != nil {
		rt.Fatalf("Accept() = %v, want nil", err)
	}
	for i, w := range want {
		if w.Fresh && got[i].Fresh {
			m.turns = append(m.turns, got[i].Turn)
		}
		if got[i].Fresh != w.Fresh || got[i].Turn != m.turns[w.Turn-1] {
			rt.Fatalf("event %d: %+v, want %+v", i, got[i], w)
		}
	}
}

func (m *twins) turn(rt *rapid.T) outbox.TurnID {
	if len(m.turns) == 0 {
		rt.Skip("no turn yet")
	}
	return outbox.TurnID(rapid.IntRange(1, len(m.turns)).Draw(rt, "turn"))
}

func (m *twins) admit(rt *rapid.T) {
	turn := m.turn(rt)
	_ = m.model.Admit(rt.Context(), turn)
	if err := m.store.Admit(rt.Context(), m.turns[turn-1]); err != nil {
		rt.Fatalf("Admit() = %v, want nil", err)
	}
}

func (m *twins) begin(rt *rapid.T) {
	turn := m.turn(rt)
	want, _ := m.model.Begin(rt.Context(), turn)
	if got, err := m.store.Begin(rt.Context(), m.turns[turn-1]); err != nil || got != want {
		rt.Fatalf("Begin() = %d, %v, want %d", got, err, want)
	}
}

func (m *twins) check(rt *rapid.T) {
	if m.steps++; m.steps%compareEvery == 0 {
		m.compare(rt)
	}
}

// compare holds everything that can be read against the model.
func (m *twins) compare(rt *rapid.T) {
	for _, name := range []chat.BotName{chat.BotName(m.run + "a"), chat.BotName(m.run + "b")} {
		want, _ := m.model.Load(rt.Context(), outbox.Owner{Bot: name})
		got, err := m.store.Load(rt.Context(), outbox.Owner{Bot: name})
		m.same("backlog", m.normal(got), m.normal(want), err)

		heads, _ := allHeads(rt.Context(), m.model, outbox.Owner{Bot: name})
		gotHeads, err := allHeads(rt.Context(), m.store, outbox.Owner{Bot: name})
		m.same("heads", gotHeads, m.heads(heads), err)
		m.compareLists(rt, name)

		turns, _ := m.model.Unfinished(rt.Context(), name, 0, 100)
		for i := range turns {
			turns[i].ID = m.turns[turns[i].ID-1]
		}
		gotTurns, err := m.store.Unfinished(rt.Context(), name, 0, 100)
		m.same("unfinished turns", gotTurns, turns, err)
	}
	var all []outbox.ID
	for i := range m.ids {
		all = append(all, outbox.ID(i+1))
	}
	want, _ := m.model.Read(rt.Context(), all...)
	got, err := m.store.Read(rt.Context(), m.ids...)
	m.same("entries", got, m.entries(want), err)
}

// compareLists compares some of what operators see of a bot.
func (m *twins) compareLists(rt *rapid.T, name chat.BotName) {
	for _, f := range []outbox.Filter{
		{Bot: name, Open: true},
		{Bot: name, Untold: true, Newest: true},
		{Bot: name, Reason: "gone"},
		{Bot: name, States: []outbox.State{outbox.Queued, outbox.Sending, outbox.Waiting}},
	} {
		want, _ := m.model.List(rt.Context(), f)
		got, err := m.store.List(rt.Context(), f)
		m.same("list", got, m.entries(want), err)
		count, _ := m.model.Count(rt.Context(), f)
		gotCount, err := m.store.Count(rt.Context(), f)
		m.same("count", gotCount, count, err)
	}
}

// normal leaves out other runs' anchors and sorts what may come in any order.
func (m *twins) normal(b outbox.Backlog) outbox.Backlog {
	b.Anchors = sorted(slices.DeleteFunc(b.Anchors, func(a limiter.Anchors) bool { return !strings.HasPrefix(a.Scope, m.run) || len(a.Scope) > len(m.run) }))
	slices.SortFunc(b.Dead, func(x, y outbox.DeadTarget) int { return cmp.Compare(x.Chat, y.Chat) })
	return b
}

func (m *twins) same(what string, got, want any, err error) {
	if err != nil {
		m.Fatalf("the %s can't be read: %v", what, err)
	}
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		m.Fatalf("the %s differ (-want +got):\n%s", what, diff)
	}
}
