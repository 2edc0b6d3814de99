package telegram_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatgateway/gateway/simulator/telegram"
)

// limited runs a server with the default limits, changed by f, on a clock that stands still.
func limited(t *testing.T, f func(*telegram.Limits)) (*sim, *clock) {
	t.Helper()
	now, l := newClock(), telegram.DefaultLimits()
	l.Polling = false
	if f != nil {
		f(&l)
	}
	return start(t, telegram.Options{Limits: &l, Now: now.Now}), now
}

// mustWait checks a 429 in all three places of its hint.
func (s *sim) mustWait(t *testing.T, seconds int, method string, pairs ...string) {
	t.Helper()
	r := s.mustFail(t, 429, fmt.Sprintf("Too Many Requests: retry after %d", seconds), method, pairs...)
	if r.Parameters.RetryAfter != float64(seconds) || r.Header.Get("Retry-After") != itoa(int64(seconds)) {
		t.Errorf("retry_after = %v, header %q, want %d", r.Parameters.RetryAfter, r.Header.Get("Retry-After"), seconds)
	}
	want := fmt.Sprintf(`{"ok":false,"error_code":429,"description":"Too Many Requests: retry after %d","parameters":{"retry_after":%d}}`, seconds, seconds)
	if r.Raw != want {
		t.Errorf("body = %s, want %s", r.Raw, want)
	}
}

func TestLimits_privateChatTakesThreeThenOneASecond(t *testing.T) {
	s, now := limited(t, nil)
	send := []string{"chat_id=5", "text=a"}
	for range 3 {
		s.mustWork(t, "sendMessage", send...)
	}
	s.mustWait(t, 1, "sendMessage", send...)
	now.Advance(500 * time.Millisecond)
	s.mustWait(t, 1, "sendMessage", send...) // The rest is rounded up.
	now.Advance(499 * time.Millisecond)
	s.mustWait(t, 1, "sendMessage", send...)
	now.Advance(time.Millisecond)
	s.mustWork(t, "sendMessage", send...)
	s.mustWait(t, 1, "editMessageText", "chat_id=5", "message_id=1", "text=b") // Edits share the bucket.
	s.mustWork(t, "sendMessage", "chat_id=6", "text=a")                        // Other chats don't.
	s.mustWork(t, "sendChatAction", "chat_id=5", "action=typing")
	if got := s.Stats().EarlyCalls; got != 2 {
		t.Errorf("EarlyCalls = %d, want 2", got)
	}
}

func TestLimits_groupTakesTwentyInAnyMinute(t *testing.T) {
	s, now := limited(t, nil)
	send := []string{"chat_id=-1001234567890", "text=a"}
	for range 20 {
		s.mustWork(t, "sendMessage", send...)
		now.Advance(time.Second)
	}
	s.mustWait(t, 40, "sendMessage", send...) // The first was 20 s ago.
	now.Advance(15 * time.Second)
	s.mustWait(t, 25, "sendMessage", send...) // Inside the cooldown it's the rest.
	now.Advance(25 * time.Second)
	s.mustWork(t, "sendMessage", send...)
	s.mustWait(t, 1, "sendMessage", send...)
}

func TestLimits_botTakesThirtyASecond(t *testing.T) {
	s, now := limited(t, func(l *telegram.Limits) { l.Jitter = 0 })
	chat := 0
	burst := func(n int) {
		t.Helper()
		for range n {
			chat++
			s.mustWork(t, "sendMessage", fmt.Sprintf("chat_id=%d", 1000+chat), "text=a")
		}
	}
	burst(30)
	s.mustWait(t, 1, "sendMessage", "chat_id=1", "text=a")
	s.mustWait(t, 1, "sendChatAction", "chat_id=2", "action=typing")
	s.mustWork(t, "getMe")
	now.Advance(time.Second)
	burst(30)
	s.mustWait(t, 1, "sendMessage", "chat_id=1", "text=a")
}

func TestLimits_forgiveJitter(t *testing.T) {
	s, now := limited(t, nil)
	for range 3 {
		s.mustWork(t, "sendMessage", "chat_id=5", "text=a")
	}
	for range 50 { // Each is 5 ms late and the next one early again: the rate is kept.
		now.Advance(1005 * time.Millisecond)
		s.mustWork(t, "sendMessage", "chat_id=5", "text=a")
		now.Advance(995 * time.Millisecond)
		s.mustWork(t, "sendMessage", "chat_id=5", "text=a")
	}
	now.Advance(900 * time.Millisecond)
	s.mustWork(t, "sendMessage", "chat_id=5", "text=a")
	now.Advance(900 * time.Millisecond) // Jitter is no credit: 200 ms early in all is too much.
	s.mustWait(t, 1, "sendMessage", "chat_id=5", "text=a")
}

func TestLimits_penaltyLengthensTheCooldown(t *testing.T) {
	s, now := limited(t, func(l *telegram.Limits) { l.Penalty = 10 * time.Second })
	for range 3 {
		s.mustWork(t, "sendMessage", "chat_id=5", "text=a")
	}
	s.mustWait(t, 1, "sendMessage", "chat_id=5", "text=a")
	s.mustWait(t, 11, "sendMessage", "chat_id=5", "text=a")
	s.mustWait(t, 21, "sendMessage", "chat_id=5", "text=a")
	now.Advance(21 * time.Second)
	s.mustWork(t, "sendMessage", "chat_id=5", "text=a")
}

func TestLimits_clockJumpEndsTheCooldown(t *testing.T) {
	s, _ := limited(t, nil)
	for range 3 {
		s.mustWork(t, "sendMessage", "chat_id=5", "text=a")
	}
	s.mustWait(t, 1, "sendMessage", "chat_id=5", "text=a")
	s.Jump(time.Second)
	s.mustWork(t, "sendMessage", "chat_id=5", "text=a")
}

func TestLimits_absorbHoldsBackInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := telegram.DefaultLimits()
		l.Absorb = 8 * time.Second
		s := telegram.New(telegram.Options{Limits: &l})
		begin := time.Now()
		var calls sync.WaitGroup
		var mu sync.Mutex
		codes := map[int]int{}
		for range 20 {
			calls.Go(func() {
				code := direct(t, s, "sendMessage", map[string]any{"chat_id": 5, "text": "a"})
				mu.Lock()
				codes[code]++
				mu.Unlock()
			})
		}
		calls.Wait()
		// Three at once, one in each of eight seconds; then nobody has budget left.
		if codes[200] != 11 || codes[429] != 9 {
			t.Errorf("answers = %v, want 11 sent and 9 refused", codes)
		}
		if got := time.Since(begin); got > 8*time.Second {
			t.Errorf("took %v, want 8 s at most", got)
		}
	})
}

func TestServer_survivesConcurrentUse(t *testing.T) {
	s := start(t, telegram.Options{Keep: 50})
	var work sync.WaitGroup
	for worker := range 16 {
		work.Go(func() {
			chat := fmt.Sprintf("chat_id=%d", worker%4+1)
			for i := range 20 {
				s.mustWork(t, "sendMessage", chat, fmt.Sprintf("text=%d", i))
				s.say(t, int64(worker%4+1), "hi")
				s.mustWork(t, "getUpdates")
				s.Messages(0)
				s.Stats()
				s.fault(t, telegram.Fault{Kind: telegram.FaultDelay, Text: "nothing has this"})
			}
			s.ClearFaults()
		})
	}
	work.Wait()
	st := s.Stats()
	if st.Messages != 320 || st.PendingUpdates != 320 {
		t.Errorf("stats = %+v, want 320 messages and updates", st)
	}
	if calls, history := len(s.Calls()), len(s.History(0)); calls != 50 || history != 50 {
		t.Errorf("%d calls and %d messages remembered, want 50 of each", calls, history)
	}
}
