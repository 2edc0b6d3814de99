package storetest

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

// List gives the entries that pass the filter.
func (m *Memory) List(_ context.Context, f outbox.Filter) ([]outbox.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.Limit <= 0 {
		f.Limit = 100
	}
	found := []outbox.Entry{}
	for i := range m.entries {
		e := m.entries[i]
		if f.Newest {
			e = m.entries[len(m.entries)-1-i]
		}
		if len(found) < f.Limit && m.passes(e, f) {
			found = append(found, clone(e))
		}
	}
	return found, nil
}

// Count counts the entries that pass the filter.
func (m *Memory) Count(_ context.Context, f outbox.Filter) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, e := range m.entries {
		if m.passes(e, f) {
			n++
		}
	}
	return n, nil
}

func (m *Memory) passes(e outbox.Entry, f outbox.Filter) bool {
	later := e.ID > f.After
	if f.Newest {
		later = f.After == 0 || e.ID < f.After
	}
	dead := e.State == outbox.Dead
	return later &&
		(len(f.States) == 0 || slices.Contains(f.States, e.State)) &&
		(f.Bot == "" || e.Target.Bot == f.Bot) &&
		(f.Chat == "" || e.Target.Chat == f.Chat) &&
		strings.Contains(e.Reason, f.Reason) &&
		(f.Since.IsZero() || !e.CreatedAt.Before(f.Since)) &&
		(f.Until.IsZero() || e.CreatedAt.Before(f.Until)) &&
		(!f.Open || dead && e.ReplayedBy == 0) &&
		(!f.Untold || dead && !m.told[e.ID])
}

// DeadTargets gives a page of a bot's dead targets.
func (m *Memory) DeadTargets(_ context.Context, bot chat.BotName, after chat.ChatID, n int) ([]outbox.DeadTarget, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := []outbox.DeadTarget{}
	for key, d := range m.dead {
		if key.bot == bot && key.id > after {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b outbox.DeadTarget) int { return cmp.Compare(a.Chat, b.Chat) })
	return found[:min(n, len(found))], nil
}

// DeadTarget tells whether a chat is dead.
func (m *Memory) DeadTarget(_ context.Context, bot chat.BotName, id chat.ChatID) (outbox.DeadTarget, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.dead[chatKey{bot, id}]
	return d, ok, nil
}
