package telegram_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/simulator/telegram"
)

// direct calls a method without a network and returns the status.
func direct(t *testing.T, s *telegram.Server, method string, parameters map[string]any) int {
	t.Helper()
	return directCall(t, s, method, parameters).Code
}

func directCall(t *testing.T, s *telegram.Server, method string, parameters map[string]any) *httptest.ResponseRecorder {
	t.Helper()
	data, err := json.Marshal(parameters)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/bot"+s.Token()+"/"+method, bytes.NewReader(data))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestGetUpdates_followsTheOffset(t *testing.T) {
	s := start(t, telegram.Options{FirstUpdateID: 10})
	for i := range 5 {
		s.say(t, 5, fmt.Sprintf("m%d", i))
	}
	steps := []struct {
		name  string
		pairs []string
		want  []int64
	}{
		{"no offset starts at the head", nil, []int64{10, 11, 12, 13, 14}},
		{"nothing is confirmed by fetching", nil, []int64{10, 11, 12, 13, 14}},
		{"the limit counts", []string{"limit=2"}, []int64{10, 11}},
		{"an offset confirms what lies before", []string{"offset=12"}, []int64{12, 13, 14}},
		{"what was confirmed is gone", []string{"offset=1"}, []int64{12, 13, 14}},
		{"a negative offset keeps the last", []string{"offset=-2"}, []int64{13, 14}},
		{"and forgets the rest", nil, []int64{13, 14}},
		{"an offset past the end empties", []string{"offset=15"}, []int64{}},
	}
	for _, step := range steps {
		if d := cmp.Diff(step.want, s.updateIDs(t, step.pairs...)); d != "" {
			t.Errorf("%s: -want +got:\n%s", step.name, d)
		}
	}
}

func TestGetUpdates_keepsAllowedUpdates(t *testing.T) {
	s := start(t, telegram.Options{FirstUpdateID: 10})
	s.say(t, 5, "one")
	react := telegram.Input{ChatID: 5, React: 1, Reaction: "👍"}
	if in, err := s.Inject(react); err != nil || in.UpdateID != 0 {
		t.Errorf("reaction = %+v, %v, want no update by default", in, err)
	}
	s.updateIDs(t, "offset=11", `allowed_updates=["message_reaction"]`)
	s.say(t, 5, "two")
	if in, err := s.Inject(react); err != nil || in.UpdateID != 11 {
		t.Errorf("reaction = %+v, %v, want update 11", in, err)
	}
	if d := cmp.Diff([]int64{11}, s.updateIDs(t)); d != "" {
		t.Errorf("updates -want +got:\n%s", d)
	}
}

func TestGetUpdates_forgetsAfterADay(t *testing.T) {
	s := start(t, telegram.Options{FirstUpdateID: 10})
	s.say(t, 5, "old")
	s.Jump(24*time.Hour - time.Second)
	s.say(t, 5, "new")
	s.Jump(time.Second)
	if d := cmp.Diff([]int64{11}, s.updateIDs(t)); d != "" {
		t.Errorf("updates -want +got:\n%s", d)
	}
}

func TestGetUpdates_isWokenByAnUpdate(t *testing.T) {
	s := start(t, telegram.Options{FirstUpdateID: 10})
	got := make(chan []int64)
	go func() { got <- s.updateIDs(t, "timeout=50") }()
	if err := s.Wait(t.Context(), func() bool { return s.Stats().WaitingPolls == 1 }); err != nil {
		t.Fatal(err)
	}
	s.say(t, 5, "wake up")
	if d := cmp.Diff([]int64{10}, <-got); d != "" {
		t.Errorf("updates -want +got:\n%s", d)
	}
}

func TestGetUpdates_secondPollEndsTheFirst(t *testing.T) {
	s := start(t, telegram.Options{FirstUpdateID: 10})
	first, second := make(chan response, 1), make(chan []int64, 1)
	go func() { first <- s.call(t, "getUpdates", "timeout=50") }()
	if err := s.Wait(t.Context(), func() bool { return s.Stats().WaitingPolls == 1 }); err != nil {
		t.Fatal(err)
	}
	s.updateIDs(t) // A poll that doesn't wait ends nobody.
	go func() { second <- s.updateIDs(t, "timeout=50") }()
	r := <-first
	if r.Status != 409 || r.Description != "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running" {
		t.Errorf("first poll = %d %q, want the conflict", r.Status, r.Description)
	}
	if err := s.Wait(t.Context(), func() bool { return s.Stats().WaitingPolls == 1 }); err != nil {
		t.Fatal(err)
	}
	s.say(t, 5, "for the second")
	if d := cmp.Diff([]int64{10}, <-second); d != "" {
		t.Errorf("second poll -want +got:\n%s", d)
	}
}

func TestGetUpdates_conflictsWithAWebhook(t *testing.T) {
	s := start(t, telegram.Options{})
	first := make(chan response, 1)
	go func() { first <- s.call(t, "getUpdates", "timeout=50") }()
	if err := s.Wait(t.Context(), func() bool { return s.Stats().WaitingPolls == 1 }); err != nil {
		t.Fatal(err)
	}
	s.mustWork(t, "setWebhook", "url=http://127.0.0.1:1/hook")
	if r := <-first; r.Status != 409 || r.Description != "Conflict: terminated by setWebhook request" {
		t.Errorf("poll = %d %q, want the conflict", r.Status, r.Description)
	}
	s.mustFail(t, 409, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first", "getUpdates")
	s.mustWork(t, "deleteWebhook")
	s.mustWork(t, "getUpdates")
}

func TestGetUpdates_waitsNoLongerThanAsked(t *testing.T) {
	for _, tt := range []struct{ asked, want time.Duration }{{7 * time.Second, 7 * time.Second}, {time.Hour, 50 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			s := telegram.New(telegram.Options{})
			begin := time.Now()
			if w := directCall(t, s, "getUpdates", map[string]any{"timeout": tt.asked / time.Second}); w.Body.String() != `{"ok":true,"result":[]}` {
				t.Errorf("answer = %s, want no updates", w.Body)
			}
			if got := time.Since(begin); got != tt.want {
				t.Errorf("a poll for %v took %v, want %v", tt.asked, got, tt.want)
			}
		})
	}
}

func TestGetUpdates_holdsBusyLoopsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := telegram.New(telegram.Options{})
		begin := time.Now()
		direct(t, s, "getUpdates", nil)
		direct(t, s, "getUpdates", nil)
		if got := time.Since(begin); got != 3*time.Second {
			t.Errorf("two empty polls took %v, want 3 s", got)
		}
	})
}

func TestInject_repeatsARawUpdate(t *testing.T) {
	s := start(t, telegram.Options{FirstUpdateID: 10})
	raw := json.RawMessage(`{"update_id":77,"message":{"message_id":"x"}}`)
	for range 2 {
		if in, err := s.Inject(telegram.Input{Raw: raw}); err != nil || in.UpdateID != 77 {
			t.Fatalf("Inject(raw) = %+v, %v", in, err)
		}
	}
	s.say(t, 5, "next")
	if d := cmp.Diff([]int64{77, 77, 78}, s.updateIDs(t)); d != "" {
		t.Errorf("updates -want +got:\n%s", d)
	}
}

func TestGetUpdates_delaysFurtherConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := telegram.New(telegram.Options{})
		begin := time.Now()
		type end struct {
			code int
			at   time.Duration
		}
		ends := make(chan end, 3)
		for range 3 {
			go func() {
				code := direct(t, s, "getUpdates", map[string]any{"timeout": 20})
				ends <- end{code, time.Since(begin)}
			}()
			synctest.Wait()
		}
		want := []end{{409, 0}, {409, 3 * time.Second}, {200, 20 * time.Second}}
		for _, w := range want {
			if got := <-ends; got != w {
				t.Errorf("a poll ended with %+v, want %+v", got, w)
			}
		}
	})
}

func TestSetWebhook_isLimited(t *testing.T) {
	l := telegram.DefaultLimits()
	s := start(t, telegram.Options{Limits: &l, Now: newClock().Now})
	s.mustWork(t, "setWebhook", "url=http://127.0.0.1:1/hook")
	s.mustWait(t, 1, "setWebhook", "url=http://127.0.0.1:1/hook")
	s.Jump(time.Second)
	s.mustWork(t, "setWebhook", "url=http://127.0.0.1:1/hook")
	s.mustFail(t, 429, "Too Many Requests: retry after 599", "close")
}
