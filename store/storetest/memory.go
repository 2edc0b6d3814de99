package storetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/inbound"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

var (
	_ outbox.Outbox   = (*Memory)(nil)
	_ outbox.Archive  = (*Memory)(nil)
	_ inbound.Journal = (*Memory)(nil)
)

// Memory is a store without a disk, for tests of what uses one, and the model
// that databases are compared with. It is safe for concurrent use and keeps
// everything for ever.
type Memory struct {
	mu       sync.Mutex
	fail     error
	epochs   map[chat.BotName]int64
	entries  []outbox.Entry     // the index is the id minus one
	outside  map[outbox.ID]bool // stored by a process without an owner, and not adopted yet
	told     map[outbox.ID]bool
	keys     map[string]outbox.ID
	events   []event // the index is the turn's id minus one
	known    map[eventKey]outbox.TurnID
	dead     map[chatKey]outbox.DeadTarget
	moves    map[chat.BotName][]outbox.Move
	states   map[string]limiter.Anchors
	channels map[string][]limiter.ChannelAnchor
	calls    map[chat.BotName]map[int]outbox.Call // by seat
}

type event struct {
	inbound.Turn
	ended bool
}

type eventKey struct {
	bot chat.BotName
	id  string
}

type chatKey struct {
	bot chat.BotName
	id  chat.ChatID
}

// NewMemory makes an empty store.
func NewMemory() *Memory {
	return &Memory{
		epochs:   map[chat.BotName]int64{},
		outside:  map[outbox.ID]bool{},
		told:     map[outbox.ID]bool{},
		keys:     map[string]outbox.ID{},
		known:    map[eventKey]outbox.TurnID{},
		dead:     map[chatKey]outbox.DeadTarget{},
		moves:    map[chat.BotName][]outbox.Move{},
		states:   map[string]limiter.Anchors{},
		channels: map[string][]limiter.ChannelAnchor{},
		calls:    map[chat.BotName]map[int]outbox.Call{},
	}
}

// Fail makes every later write fail with err and change nothing, until it is
// called with nil. [outbox.ErrNoSpace] plays a full disk.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// Acquire makes the caller the owner of bot.
func (m *Memory) Acquire(_ context.Context, bot chat.BotName) (outbox.Owner, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return outbox.Owner{}, m.fail
	}
	m.epochs[bot]++
	return outbox.Owner{Bot: bot, Epoch: m.epochs[bot]}, nil
}

// Apply stores b as a whole, or nothing of it.
func (m *Memory) Apply(_ context.Context, b outbox.Batch) (outbox.Applied, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return outbox.Applied{}, m.fail
	}
	if err := m.check(b); err != nil {
		return outbox.Applied{}, err
	}
	if b.At.IsZero() {
		b.At = now()
	}
	applied := outbox.Applied{New: make([]outbox.Stored, len(b.New))}
	for i, e := range b.New {
		applied.New[i] = m.insert(e, b.At, b.Owner == outbox.Owner{})
	}
	for _, id := range b.Sending {
		if e := m.pending(b.Owner.Bot, id); e != nil {
			e.State = outbox.Sending
		}
	}
	for _, s := range b.Settled {
		if e := m.pending(b.Owner.Bot, s.ID); e != nil {
			settle(e, s, b.At)
		}
	}
	for _, t := range b.Turns {
		if e := m.turn(t.Turn); e != nil {
			e.ended = true
		}
	}
	m.applyTargets(b)
	m.applyAnchors(b.Anchors)
	applied.Missed = m.applyLetters(b)
	if b.Adopt {
		applied.Adopted = m.adopt(b.Owner.Bot)
	}
	return applied, nil
}

// applyLetters changes dead letters, and gives those that could not be.
func (m *Memory) applyLetters(b outbox.Batch) []outbox.ID {
	var missed []outbox.ID
	for _, ed := range b.Edits {
		e := m.letter(b.Owner.Bot, ed.ID)
		if e == nil {
			missed = append(missed, ed.ID)
			continue
		}
		e.Target.Chat, e.Target.Thread = ed.Target.Chat, ed.Target.Thread
		e.Parts, e.Receipts, e.Source = ed.Parts, ed.Receipts, ed.Source
		*e = clone(*e)
	}
	for _, id := range b.Dropped {
		e := m.letter(b.Owner.Bot, id)
		if e == nil {
			missed = append(missed, id)
			continue
		}
		e.State, e.EndedAt = outbox.Cancelled, b.At
	}
	for _, id := range b.Told {
		if e := m.entry(b.Owner.Bot, id); e != nil && e.State == outbox.Dead {
			m.told[id] = true
		}
	}
	return missed
}

// letter gives a dead letter that was not replayed, or nil.
func (m *Memory) letter(bot chat.BotName, id outbox.ID) *outbox.Entry {
	e := m.entry(bot, id)
	if e == nil || e.State != outbox.Dead || e.ReplayedBy != 0 {
		return nil
	}
	return e
}

// adopt takes over what was stored without an owner.
func (m *Memory) adopt(bot chat.BotName) []outbox.Head {
	var heads []outbox.Head
	for _, e := range m.entries {
		if e.Target.Bot == bot && m.outside[e.ID] {
			delete(m.outside, e.ID)
			if e.State.Pending() {
				heads = append(heads, m.head(e))
			}
		}
	}
	return heads
}

// check refuses a batch before anything of it is stored.
func (m *Memory) check(b outbox.Batch) error {
	if b.Owner == (outbox.Owner{}) {
		if len(b.Sending)+len(b.Settled)+len(b.Dead)+len(b.Revived)+len(b.Ended)+len(b.Moves)+len(b.Anchors)+
			len(b.Edits)+len(b.Dropped)+len(b.Told) > 0 || b.Adopt {
			return fmt.Errorf("only an owner may change more than new entries and turns: %w", outbox.ErrNotOwner)
		}
	} else if b.Owner.Epoch == 0 || b.Owner.Epoch != m.epochs[b.Owner.Bot] {
		return outbox.ErrNotOwner
	}
	prints := map[string][]byte{}
	for _, e := range b.New {
		known, ok := prints[e.Key]
		if id := m.keys[e.Key]; id != 0 {
			known, ok = m.entries[id-1].Fingerprint, true
		}
		if e.Key != "" && ok && !bytes.Equal(known, e.Fingerprint) {
			return outbox.ErrKeyReused
		}
		prints[e.Key] = e.Fingerprint
	}
	replayed := map[outbox.ID]bool{}
	for _, e := range b.New {
		if e.ReplayOf == 0 {
			continue
		}
		if m.letter(e.Target.Bot, e.ReplayOf) == nil || replayed[e.ReplayOf] {
			return outbox.ErrReplayed
		}
		replayed[e.ReplayOf] = true
	}
	return nil
}

func (m *Memory) insert(e outbox.Entry, at time.Time, outside bool) outbox.Stored {
	if id := m.keys[e.Key]; id != 0 {
		return outbox.Stored{ID: id, Duplicate: true}
	}
	e.ID = outbox.ID(len(m.entries) + 1)
	e.CreatedAt = at
	m.entries = append(m.entries, clone(e))
	if e.Key != "" {
		m.keys[e.Key] = e.ID
	}
	if outside {
		m.outside[e.ID] = true
	}
	if e.ReplayOf != 0 {
		m.entries[e.ReplayOf-1].ReplayedBy = e.ID
	}
	if old := m.pending(e.Target.Bot, e.Supersedes); old != nil {
		old.State, old.EndedAt, old.Reason = outbox.Cancelled, at, outbox.SupersededBy(e.ID)
	}
	return outbox.Stored{ID: e.ID}
}

// clone gives what a reader of the disk would see: nothing that the caller
// still holds, and no field that is not stored.
func clone(e outbox.Entry) outbox.Entry {
	e.Parts = slices.Clone(e.Parts)
	for i := range e.Parts {
		e.Parts[i].Key, e.Parts[i].Open, e.Parts[i].Leaving = "", nil, nil
		if a := e.Parts[i].Attachment; a != nil {
			e.Parts[i].Attachment = new(*a)
		}
	}
	if e.Source != nil {
		source := *e.Source
		source.Attachments = slices.Clone(source.Attachments)
		e.Source = &source
	}
	e.Receipts, e.Log = slices.Clone(e.Receipts), slices.Clone(e.Log)
	e.Fingerprint = bytes.Clone(e.Fingerprint)
	e.Supersedes = 0
	return e
}

// entry gives an entry of the bot, or nil.
func (m *Memory) entry(bot chat.BotName, id outbox.ID) *outbox.Entry {
	if id < 1 || int(id) > len(m.entries) || m.entries[id-1].Target.Bot != bot {
		return nil
	}
	return &m.entries[id-1]
}

// pending gives an entry of the bot that has yet to end, or nil.
func (m *Memory) pending(bot chat.BotName, id outbox.ID) *outbox.Entry {
	e := m.entry(bot, id)
	if e == nil || !e.State.Pending() {
		return nil
	}
	return e
}

func settle(e *outbox.Entry, s outbox.Settlement, at time.Time) {
	e.State, e.Due, e.Reason = s.State, s.Due, s.Reason
	e.Attempts, e.Uncertain, e.Degraded, e.MayBeDuplicate = s.Attempts, s.Uncertain, s.Degraded, s.MayBeDuplicate
	if !s.State.Pending() {
		e.EndedAt = at
	}
	if s.Delivered {
		e.Receipts = append(e.Receipts, s.Receipt)
	}
	if s.Log.Kind != "" {
		e.Log = append(e.Log, s.Log)
	}
}

func (m *Memory) applyTargets(b outbox.Batch) {
	bot := b.Owner.Bot
	for _, d := range b.Dead {
		if old, ok := m.dead[chatKey{bot, d.Chat}]; ok {
			d.Since = old.Since
		}
		m.dead[chatKey{bot, d.Chat}] = d
	}
	for _, c := range b.Revived {
		delete(m.dead, chatKey{bot, c})
	}
	for i := range m.entries {
		if e := &m.entries[i]; e.Target.Bot == bot {
			retarget(e, b)
		}
	}
	for _, mv := range b.Moves {
		known := slices.DeleteFunc(m.moves[bot], func(old outbox.Move) bool { return old.From == mv.From })
		m.moves[bot] = append(known, outbox.Move{From: mv.From, To: mv.To})
	}
}

// retarget ends or moves a pending entry, as the batch says.
func retarget(e *outbox.Entry, b outbox.Batch) {
	for _, d := range b.Ended {
		if e.State.Pending() && slices.Contains(d.IDs, e.ID) {
			e.State, e.EndedAt, e.Reason = d.State, b.At, d.Reason
		}
	}
	for _, mv := range b.Moves {
		if e.State.Pending() && slices.Contains(mv.IDs, e.ID) {
			e.Target.Chat = mv.To
		}
	}
}

func (m *Memory) applyAnchors(anchors []limiter.Anchors) {
	for _, a := range anchors {
		if a.Cleared {
			m.channels[a.Scope] = nil
		}
		for _, c := range a.Channels {
			known := slices.DeleteFunc(m.channels[a.Scope], func(old limiter.ChannelAnchor) bool {
				return old.Channel == c.Channel && old.Method == c.Method
			})
			m.channels[a.Scope] = append(known, c)
		}
		a.Channels, a.Cleared = nil, false
		m.states[a.Scope] = a
	}
}

// Load gives the owner's backlog.
func (m *Memory) Load(_ context.Context, o outbox.Owner) (outbox.Backlog, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b outbox.Backlog
	for key, d := range m.dead {
		if key.bot == o.Bot {
			b.Dead = append(b.Dead, d)
		}
	}
	slices.SortFunc(b.Dead, func(x, y outbox.DeadTarget) int { return x.At.Compare(y.At) })
	b.Moves = slices.Clone(m.moves[o.Bot])
	for _, scope := range slices.Sorted(maps.Keys(m.states)) {
		a := m.states[scope]
		a.Channels = slices.Clone(m.channels[scope])
		b.Anchors = append(b.Anchors, a)
	}
	return b, nil
}

// Heads gives pending entries that an owner knows of, a few at once.
func (m *Memory) Heads(_ context.Context, o outbox.Owner, after outbox.ID) ([]outbox.Head, error) {
	const page = 100
	m.mu.Lock()
	defer m.mu.Unlock()
	var heads []outbox.Head
	for _, e := range m.entries[min(int(after), len(m.entries)):] {
		if len(heads) < page && e.Target.Bot == o.Bot && e.State.Pending() && !m.outside[e.ID] {
			heads = append(heads, m.head(e))
		}
	}
	return heads, nil
}

func (m *Memory) head(e outbox.Entry) outbox.Head {
	return outbox.Head{
		ID: e.ID, Chat: e.Target.Chat, Thread: e.Target.Thread, State: e.State, Priority: e.Priority, Supersede: e.Supersede,
		NotBefore: e.NotBefore, ExpiresAt: e.ExpiresAt, Due: e.Due, Begun: len(e.Receipts) > 0, MayBeDuplicate: e.MayBeDuplicate,
		Called: e.State == outbox.Sending && m.called(e.Target.Bot, outbox.Call{ID: e.ID, Attempt: len(e.Log)}),
	}
}

// called reports whether a call may have been made; without any note nobody
// knows. The caller holds the mutex.
func (m *Memory) called(name chat.BotName, c outbox.Call) bool {
	seats, ok := m.calls[name]
	for _, noted := range seats {
		if noted == c {
			return true
		}
	}
	return !ok
}

// Note notes a call.
func (m *Memory) Note(name chat.BotName, seat int, c outbox.Call) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls[name] == nil {
		m.calls[name] = map[int]outbox.Call{}
	}
	m.calls[name][seat] = c
	return nil
}

// Read gives the entries with these ids.
func (m *Memory) Read(_ context.Context, ids ...outbox.ID) ([]outbox.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries := make([]outbox.Entry, 0, len(ids))
	for _, id := range ids {
		if id >= 1 && int(id) <= len(m.entries) {
			entries = append(entries, clone(m.entries[id-1]))
		}
	}
	return entries, nil
}

// Accept stores the events that are not known.
func (m *Memory) Accept(_ context.Context, intakes ...inbound.Intake) ([]inbound.Accepted, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, m.fail
	}
	for _, in := range intakes {
		if _, err := json.Marshal(in.Event); err != nil {
			return nil, errors.Join(errors.New("accept events"), err)
		}
	}
	accepted := make([]inbound.Accepted, len(intakes))
	for i, in := range intakes {
		key := eventKey{in.Event.Source.Bot, in.Event.ID}
		if id, ok := m.known[key]; ok {
			accepted[i].Turn = id
			continue
		}
		id := outbox.TurnID(len(m.events) + 1)
		m.known[key] = id
		m.events = append(m.events, event{Turn: inbound.Turn{ID: id, Event: in.Event}, ended: in.Ended})
		accepted[i] = inbound.Accepted{Turn: id, Fresh: true}
	}
	return accepted, nil
}

// turn gives a turn that has not ended, or nil.
func (m *Memory) turn(id outbox.TurnID) *event {
	if id < 1 || int(id) > len(m.events) || m.events[id-1].ended {
		return nil
	}
	return &m.events[id-1]
}

// Admit records the policy's yes.
func (m *Memory) Admit(_ context.Context, turns ...outbox.TurnID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	for _, id := range turns {
		if e := m.turn(id); e != nil {
			e.Admitted = true
		}
	}
	return nil
}

// Begin counts an attempt at a turn.
func (m *Memory) Begin(_ context.Context, id outbox.TurnID) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return 0, m.fail
	}
	e := m.turn(id)
	if e == nil {
		return 0, nil
	}
	e.Admitted = true
	e.Attempt++
	return e.Attempt, nil
}

// Unfinished gives turns that have not ended.
func (m *Memory) Unfinished(_ context.Context, bot chat.BotName, after outbox.TurnID, limit int) ([]inbound.Turn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var turns []inbound.Turn
	for _, e := range m.events {
		if e.Event.Source.Bot == bot && e.ID > after && !e.ended && len(turns) < limit {
			turns = append(turns, e.Turn)
		}
	}
	slices.SortFunc(turns, func(a, b inbound.Turn) int { return cmp.Compare(a.ID, b.ID) })
	return turns, nil
}

func now() time.Time {
	return time.Now() //nolint:forbidigo // stamps what a caller gave no time
}
