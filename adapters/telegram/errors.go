package telegram

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/chatgateway/gateway/adapters"
	"github.com/chatgateway/gateway/chat"
)

// envelope is the frame of every answer. Numbers are read leniently, since the
// library fails on a fractional retry_after.
type envelope struct {
	OK          *bool  `json:"ok"`
	Code        int    `json:"error_code"`
	Description string `json:"description"`
	Parameters  struct {
		RetryAfter json.RawMessage `json:"retry_after"`
		MigrateTo  json.RawMessage `json:"migrate_to_chat_id"`
	} `json:"parameters"`
}

// readEnvelope reports false for anything that the Bot API would not say, for
// example a front end's HTML page.
func readEnvelope(body []byte) (envelope, bool) {
	var e envelope
	err := json.Unmarshal(body, &e)
	if _, odd := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !odd {
		return envelope{}, false
	}
	return e, e.OK != nil
}

// failure says what an answer means that is no success. Nil means that the
// wanted state already holds.
func (a *Adapter) failure(got answer, now time.Time) *chat.SendError {
	e, known := readEnvelope(got.body)
	code := got.status
	if known && (code < http.StatusBadRequest || e.Code == http.StatusTooManyRequests) {
		code = e.Code
	}
	failed := &chat.SendError{Code: strconv.Itoa(code)}
	if !known {
		failed.Err = a.unknownAnswer(got)
	} else {
		failed.Err = &tgbotapi.Error{Code: code, Message: a.redact.text(e.Description)}
	}
	text := phrase(e.Description)
	switch {
	case code == http.StatusTooManyRequests:
		failed.Kind, failed.Scope, failed.RetryAfter = chat.RateLimited, chat.ScopeChannel, wait(got, e, now)
		if !known {
			failed.Scope = chat.ScopeBot // a front end knows no chats
		}
	case !known:
		failed.Kind = kindOfStatus(code)
	case code == http.StatusBadRequest && begins(text, "message is not modified"):
		return nil
	case integer(e.Parameters.MigrateTo) != 0 && code < http.StatusInternalServerError:
		failed.Kind = chat.Moved
		failed.MovedTo = chat.ChatID(strconv.FormatInt(integer(e.Parameters.MigrateTo), 10))
	default:
		failed.Kind = kindOfCode(code, e.Description, text)
	}
	failed.NotFound = failed.Kind == chat.TargetGone && says(text, unknownChat...)
	if failed.Kind == chat.Temporary {
		failed.RetryAfter, _ = adapters.RetryAfter(got.header, now)
	}
	// A 502 mostly means that the front end found no backend, but also that one
	// went away in the middle of its answer.
	failed.MaybeSent = failed.Kind == chat.Temporary && code == http.StatusBadGateway
	return failed
}

func (a *Adapter) unknownAnswer(got answer) error {
	err := errUnreadable
	if got.err != nil {
		err = a.redact.err(got.err)
	}
	return fmt.Errorf("status %d, not an answer of the Bot API: %w", got.status, err)
}

// wait reads the platform's wait, most exact source first.
func wait(got answer, e envelope, now time.Time) time.Duration {
	if seconds, err := strconv.ParseFloat(number(e.Parameters.RetryAfter), 64); err == nil {
		if d, ok := adapters.Wait(seconds); ok {
			return d
		}
	}
	if d, ok := adapters.RetryAfter(got.header, now); ok {
		return d
	}
	text := e.Description
	if e.OK == nil {
		text = string(got.body)
	}
	d, _ := adapters.RetryAfterText(text)
	return d
}

func number(raw json.RawMessage) string { return strings.Trim(string(raw), `"`) }

func integer(raw json.RawMessage) int64 {
	n, err := strconv.ParseInt(number(raw), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// kindOfStatus classifies an answer that something else than the Bot API gave:
// a front end, a proxy, a wrong address. It knows nothing of the chat, so it
// never means that the chat is gone or that the message is bad.
func kindOfStatus(status int) chat.Kind {
	switch status {
	case http.StatusUnauthorized, http.StatusNotFound:
		return chat.Unauthorized // no Bot API at this address, or not for us
	case http.StatusRequestEntityTooLarge:
		return chat.Rejected
	case http.StatusServiceUnavailable, http.StatusBadGateway:
		return chat.Temporary // a front end turns away without asking its backend, or could not reach it
	}
	if status >= http.StatusMultipleChoices && status < http.StatusInternalServerError {
		return chat.Temporary
	}
	// A 2xx that can't be read, and 504: the backend may have had it.
	return chat.Uncertain
}

// kindOfCode classifies an answer of the Bot API, by its code first.
func kindOfCode(code int, description, text string) chat.Kind {
	switch code {
	case http.StatusBadRequest:
		return kindOfBadRequest(text)
	case http.StatusUnauthorized, http.StatusConflict:
		return chat.Unauthorized
	case http.StatusForbidden:
		return kindOfForbidden(description, text)
	case http.StatusNotFound: // also for a malformed token
		if says(text, "method not found") {
			return chat.Rejected
		}
		return chat.Unauthorized
	case http.StatusServiceUnavailable, http.StatusBadGateway:
		return chat.Temporary // the Bot API itself never says so, but something in front of it
	}
	if code >= http.StatusBadRequest && code < http.StatusInternalServerError {
		return chat.Rejected
	}
	// 500 also ends requests that the server was already working on ("restart").
	return chat.Uncertain
}

// unknownChat are the phrases for a chat that Telegram does not know.
var unknownChat = []string{"chat not found", "private chat not found", "chat_not_found", "chat does not exist"}

func kindOfBadRequest(text string) chat.Kind {
	switch {
	case begins(text, "can't parse entities"),
		says(text, "message to be replied not found", "replied message not found", "reply message not found"):
		return chat.Degradable
	case says(text, "logged out", "frozen_method_invalid"):
		return chat.Unauthorized
	case says(text, unknownChat...):
		return chat.TargetGone
	case says(text, "have no write access to the chat", "need administrator rights in the channel chat",
		"not enough rights to send text messages to the chat",
		"chat_write_forbidden", "chat_restricted", "user_is_blocked", "input_user_deactivated",
		"group chat was upgraded to a supergroup chat"): // without the new id
		return chat.TargetGone
	}
	return chat.Rejected
}

// kindOfForbidden takes every 403 of the Bot API as the end of the chat, but
// for missing rights to one kind of content.
func kindOfForbidden(description, text string) chat.Kind {
	if begins(text, "not enough rights to send") {
		return kindOfBadRequest(text)
	}
	if begins(strings.ToLower(description), "forbidden") {
		return chat.TargetGone
	}
	return chat.Rejected
}

// phrase gives the platform's words of a description in lower case: what
// stands after the prefix that the server puts before them.
func phrase(description string) string {
	text := strings.ToLower(strings.TrimSpace(description))
	for _, prefix := range []string{
		"bad request:", "unauthorized:", "forbidden:", "not found:", "conflict:",
		"too many requests:", "internal server error:",
	} {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
	return text
}

// says reports whether text is one of the phrases, alone or with more after a
// colon, comma or full stop. A description can quote what a user wrote, so a
// phrase inside it proves nothing.
func says(text string, phrases ...string) bool {
	for _, p := range phrases {
		if rest, ok := strings.CutPrefix(text, p); ok && (rest == "" || strings.ContainsRune(":;,.", rune(rest[0]))) {
			return true
		}
	}
	return false
}

func begins(text, phrase string) bool { return strings.HasPrefix(text, phrase) }
