package telegram_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/simulator/telegram"
)

func TestFault_statusTakesEveryForm(t *testing.T) {
	body := `{"ok":false}`
	tests := []struct {
		name        string
		fault       telegram.Fault
		status      int
		retry       float64
		header      string
		description string
	}{
		{"whole seconds", telegram.Fault{Status: 429, RetryAfter: 37}, 429, 37, "37", "Too Many Requests: retry after 37"},
		{"a fraction", telegram.Fault{Status: 429, RetryAfter: 1.5}, 429, 1.5, "1.5", "Too Many Requests: retry after 1.5"},
		{"a header alone", telegram.Fault{Status: 429, Headers: map[string][]string{"retry-after": {"2814, 2"}}, Body: &body}, 429, 0, "2814, 2", ""},
		{"no hint", telegram.Fault{Status: 429}, 429, 0, "", "Too Many Requests"},
		{"a revoked token", telegram.Fault{Status: 401}, 401, 0, "", "Unauthorized"},
		{"an overload", telegram.Fault{Status: 500, Description: "Internal Server Error: restart"}, 500, 0, "", "Internal Server Error: restart"},
		{"free parameters", telegram.Fault{Status: 429, Parameters: map[string]any{"retry_after": 0.0004}}, 429, 0.0004, "0.0004", "Too Many Requests"},
	}
	s := start(t, telegram.Options{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.fault.Kind = telegram.FaultStatus
			s.fault(t, tt.fault)
			r := s.call(t, "sendMessage", "chat_id=5", "text=a")
			if r.Status != tt.status || r.Parameters.RetryAfter != tt.retry || r.Header.Get("Retry-After") != tt.header || r.Description != tt.description {
				t.Errorf("answer = %d %s, header %q", r.Status, r.Raw, r.Header.Get("Retry-After"))
			}
			s.mustWork(t, "sendMessage", "chat_id=5", "text=a")
		})
	}
}

func TestFault_matchesWhatItNames(t *testing.T) {
	s := start(t, telegram.Options{})
	id := s.fault(t, telegram.Fault{Kind: telegram.FaultStatus, Status: 500, Method: "SENDMESSAGE", ChatID: 5, Text: "bad", Count: 2})
	s.mustWork(t, "sendMessage", "chat_id=5", "text=good")
	s.mustWork(t, "sendMessage", "chat_id=6", "text=bad")
	s.mustWork(t, "sendDocument", "chat_id=5", "document=https://e.org/a", "caption=bad")
	s.mustFail(t, 500, "Internal Server Error", "sendMessage", "chat_id=5", "text=very bad")
	if list := s.Faults(); len(list) != 1 || list[0].ID != id || list[0].Hits != 1 || list[0].Count != 1 {
		t.Errorf("Faults() = %+v, want one hit and one to go", list)
	}
	s.mustFail(t, 500, "Internal Server Error", "sendMessage", "chat_id=5", "text=very bad")
	s.mustWork(t, "sendMessage", "chat_id=5", "text=very bad")

	s.fault(t, telegram.Fault{Kind: telegram.FaultStatus, Status: 500})
	s.mustWork(t, "getUpdates") // Without a method reads are spared.
	s.ClearFaults()
	s.fault(t, telegram.Fault{Kind: telegram.FaultStatus, Status: 429, RetryAfter: 10, Method: "getUpdates", Count: telegram.Forever})
	s.mustFail(t, 429, "Too Many Requests: retry after 10", "getUpdates")
	s.mustFail(t, 429, "Too Many Requests: retry after 10", "getUpdates")
	s.ClearFaults()
	s.mustWork(t, "getUpdates")
}

func TestFault_cooldownIsEnforced(t *testing.T) {
	now := newClock()
	s := start(t, telegram.Options{Now: now.Now})
	s.fault(t, telegram.Fault{Kind: telegram.FaultStatus, Status: 429, RetryAfter: 5, Cooldown: "chat", ChatID: 5})
	s.mustWait(t, 5, "sendMessage", "chat_id=5", "text=a")
	now.Advance(1500 * time.Millisecond)
	s.mustWait(t, 4, "sendMessage", "chat_id=5", "text=a")
	s.mustWork(t, "sendMessage", "chat_id=6", "text=a")
	now.Advance(3500 * time.Millisecond)
	s.mustWork(t, "sendMessage", "chat_id=5", "text=a")
	if got := s.Stats().EarlyCalls; got != 1 {
		t.Errorf("EarlyCalls = %d, want 1", got)
	}
}

func TestFault_cutsConnections(t *testing.T) {
	tests := []struct {
		name     string
		fault    telegram.Fault
		accepted bool
		want     error
	}{
		{"the answer is lost by a reset", telegram.Fault{Kind: telegram.FaultLost}, true, syscall.ECONNRESET},
		{"the answer is lost by a close", telegram.Fault{Kind: telegram.FaultLost, FIN: true}, true, io.EOF},
		{"reset before accepting", telegram.Fault{Kind: telegram.FaultResetBefore}, false, syscall.ECONNRESET},
		{"hang before accepting", telegram.Fault{Kind: telegram.FaultHang, Duration: time.Millisecond}, false, syscall.ECONNRESET},
		{"hang after accepting", telegram.Fault{Kind: telegram.FaultHang, Duration: time.Millisecond, Accept: true, FIN: true}, true, io.EOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, telegram.Options{})
			s.fault(t, tt.fault)
			if _, err := s.try(t, "sendMessage", "chat_id=5", "text=a"); !errors.Is(err, tt.want) {
				t.Errorf("sendMessage = %v, want %v", err, tt.want)
			}
			list := s.Messages(5)
			if got := len(list) == 1 && list[0].Lost; got != tt.accepted || len(list) > 1 {
				t.Errorf("messages = %+v, want accepted and lost = %v", list, tt.accepted)
			}
			if calls := s.Calls(); len(calls) != 1 || calls[0].Status != 0 || calls[0].Fault != tt.fault.Kind {
				t.Errorf("Calls() = %+v, want one without an answer", calls)
			}
		})
	}
}

func TestFault_truncatesTheAnswer(t *testing.T) {
	s := start(t, telegram.Options{})
	s.fault(t, telegram.Fault{Kind: telegram.FaultTruncate, KeepBytes: 9})
	r, err := s.try(t, "sendMessage", "chat_id=5", "text=a")
	if r.Status != 200 || r.Raw != `{"ok":tru` || !isJSONError(err) || len(s.Messages(5)) != 1 {
		t.Errorf("answer = %d %q, %v, want 200, cut, accepted", r.Status, r.Raw, err)
	}
}

func TestFault_delayGoesOn(t *testing.T) {
	s := start(t, telegram.Options{})
	s.fault(t, telegram.Fault{Kind: telegram.FaultDelay, Duration: 30 * time.Millisecond})
	begin := time.Now()
	s.mustWork(t, "sendMessage", "chat_id=5", "text=a")
	if got := time.Since(begin); got < 30*time.Millisecond {
		t.Errorf("took %v, want 30 ms at least", got)
	}
}

func TestFault_closeEndsAHang(t *testing.T) {
	s := start(t, telegram.Options{})
	s.fault(t, telegram.Fault{Kind: telegram.FaultHang, Duration: time.Hour, Accept: true})
	ended := make(chan error)
	go func() {
		_, err := s.try(t, "sendMessage", "chat_id=5", "text=a")
		ended <- err
	}()
	if _, err := s.WaitMessages(t.Context(), 5, 1); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := <-ended; err == nil {
		t.Error("a hanging call was answered, want a cut connection")
	}
}

func TestFault_chatStates(t *testing.T) {
	tests := []struct {
		kind   telegram.FaultKind
		chat   int64
		status int
		want   string
	}{
		{telegram.FaultBlocked, 5, 403, "Forbidden: bot was blocked by the user"},
		{telegram.FaultDeactivated, 5, 403, "Forbidden: user is deactivated"},
		{telegram.FaultKicked, -1001234567890, 403, "Forbidden: bot was kicked from the supergroup chat"},
		{telegram.FaultKicked, -77, 403, "Forbidden: bot was kicked from the group chat"},
		{telegram.FaultChatNotFound, 5, 400, "Bad Request: chat not found"},
		{telegram.FaultTopicClosed, -1001234567890, 400, "Bad Request: TOPIC_CLOSED"},
		{telegram.FaultTopicDeleted, -1001234567890, 400, "Bad Request: message thread not found"},
	}
	for _, tt := range tests {
		t.Run(string(tt.kind), func(t *testing.T) {
			s := start(t, telegram.Options{})
			id := s.fault(t, telegram.Fault{Kind: tt.kind, ChatID: tt.chat, Thread: 7 * boolInt(strings.HasPrefix(string(tt.kind), "topic"))})
			send := []string{"chat_id=" + itoa(tt.chat), "text=a", "message_thread_id=7"}
			s.mustFail(t, tt.status, tt.want, "sendMessage", send...)
			s.mustFail(t, tt.status, tt.want, "sendMessage", send...)
			s.mustWork(t, "sendMessage", "chat_id=1", "text=a")
			if !s.ClearFault(id) {
				t.Error("ClearFault() = false, want true")
			}
			s.mustWork(t, "sendMessage", send...)
		})
	}
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func TestFault_blockEndsWhenTheUserWrites(t *testing.T) {
	s := start(t, telegram.Options{})
	s.fault(t, telegram.Fault{Kind: telegram.FaultBlocked, ChatID: 5})
	s.mustFail(t, 403, "Forbidden: bot was blocked by the user", "sendMessage", "chat_id=5", "text=a")
	s.say(t, 5, "I'm back")
	s.mustWork(t, "sendMessage", "chat_id=5", "text=a")
}

func TestFault_migrationIsAnnouncedAndAnswered(t *testing.T) {
	s := start(t, telegram.Options{FirstUpdateID: 10})
	s.say(t, -77, "in the group")
	s.fault(t, telegram.Fault{Kind: telegram.FaultMigrated, ChatID: -77, MigrateTo: -1001234567890})
	r := s.mustFail(t, 400, "Bad Request: group chat was upgraded to a supergroup chat", "sendMessage", "chat_id=-77", "text=a")
	if r.Parameters.MigrateToChatID != -1001234567890 {
		t.Errorf("migrate_to_chat_id = %d", r.Parameters.MigrateToChatID)
	}
	s.mustWork(t, "sendMessage", "chat_id=-1001234567890", "text=a")
	var updates []struct {
		Message struct {
			Chat struct{ ID int64 }
			To   int64 `json:"migrate_to_chat_id"`
			From int64 `json:"migrate_from_chat_id"`
		}
	}
	if err := json.Unmarshal(s.mustWork(t, "getUpdates").Result, &updates); err != nil || len(updates) != 3 {
		t.Fatalf("updates = %+v, %v, want three", updates, err)
	}
	if updates[1].Message.To != -1001234567890 || updates[1].Message.Chat.ID != -77 || updates[2].Message.From != -77 || updates[2].Message.Chat.ID != -1001234567890 {
		t.Errorf("service messages = %+v", updates[1:])
	}
}

func TestFault_downHitsEverything(t *testing.T) {
	now := newClock()
	s := start(t, telegram.Options{Now: now.Now})
	s.fault(t, telegram.Fault{Kind: telegram.FaultDown, For: time.Minute})
	for _, method := range []string{"getMe", "getUpdates", "sendMessage"} {
		r, err := s.try(t, method, "chat_id=5", "text=a")
		if r.Status != http.StatusBadGateway || r.Header.Get("Content-Type") != "text/html" || !isJSONError(err) {
			t.Errorf("%s = %d %q, want 502 in HTML", method, r.Status, r.Raw)
		}
	}
	now.Advance(time.Minute)
	s.mustWork(t, "sendMessage", "chat_id=5", "text=a")
}

func TestFault_duplicatesAnUpdate(t *testing.T) {
	s := start(t, telegram.Options{FirstUpdateID: 10})
	s.fault(t, telegram.Fault{Kind: telegram.FaultDuplicate})
	s.say(t, 5, "twice")
	s.say(t, 5, "once")
	if d := cmp.Diff([]int64{10, 10, 11}, s.updateIDs(t)); d != "" {
		t.Errorf("updates -want +got:\n%s", d)
	}
}

func TestFault_refusesWhatItCantDo(t *testing.T) {
	s := start(t, telegram.Options{})
	for _, f := range []telegram.Fault{
		{Kind: "nonsense"},
		{Kind: telegram.FaultStatus},
		{Kind: telegram.FaultBlocked},
		{Kind: telegram.FaultMigrated, ChatID: -5},
		{Kind: telegram.FaultDown, Count: -2},
	} {
		if _, err := s.Fault(f); err == nil {
			t.Errorf("Fault(%+v) = nil, want an error", f)
		}
	}
}
