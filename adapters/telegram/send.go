package telegram

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptrace"
	"regexp"
	"strconv"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/chatgateway/gateway/chat"
)

// generalTopic is the topic that every forum has. Naming it in a send is
// refused ("message thread not found"), leaving it out reaches it.
const generalTopic = "1"

var publicName = regexp.MustCompile(`^@[A-Za-z0-9_]{1,64}$`)

// Send makes one attempt at p by sendMessage. The receipt is the message id.
func (a *Adapter) Send(ctx context.Context, t chat.Target, p chat.Part) (chat.Receipt, error) {
	params, err := a.sendParams(t, p)
	if err != nil {
		return "", err
	}
	if p.Leaving != nil {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { p.Leaving() }})
	}
	result, err := a.call(ctx, "sendMessage", params, plainCall)
	if err != nil {
		return "", err
	}
	var sent struct {
		ID int64 `json:"message_id"`
	}
	if err := json.Unmarshal(result, &sent); err != nil || sent.ID == 0 {
		return "", nil //nolint:nilerr // Telegram said ok: it was sent, only its id is lost
	}
	return chat.Receipt(strconv.FormatInt(sent.ID, 10)), nil
}

// Announces says that Send calls Part.Leaving.
func (a *Adapter) Announces() {}

// CheckTarget refuses a chat or a topic that Telegram can't have.
func (a *Adapter) CheckTarget(t chat.Target) error {
	if !validChat(t.Chat) {
		return fmt.Errorf("chat %q is neither a number nor an @name", string(t.Chat))
	}
	if t.Thread != "" && !positive(string(t.Thread)) {
		return fmt.Errorf("thread %q is no number", string(t.Thread))
	}
	return nil
}

func (a *Adapter) sendParams(t chat.Target, p chat.Part) (tgbotapi.Params, error) {
	if err := a.CheckTarget(t); err != nil {
		return nil, refused(chat.Rejected, "%w", err)
	}
	params := tgbotapi.Params{"chat_id": string(t.Chat), "text": p.Text}
	params.AddNonEmpty("parse_mode", p.Markup)
	params.AddBool("disable_notification", p.Silent)
	if t.Thread != "" && t.Thread != generalTopic {
		params["message_thread_id"] = string(t.Thread)
	}
	if p.ReplyTo != "" {
		if !positive(p.ReplyTo) {
			return nil, refused(chat.Degradable, "reply target %q is no message id", p.ReplyTo)
		}
		params["reply_parameters"] = `{"message_id":` + p.ReplyTo + `}`
	}
	return params, nil
}

// refused is a failure that was found without a call.
func refused(kind chat.Kind, format string, args ...any) error {
	return &chat.SendError{Kind: kind, Err: fmt.Errorf("sendMessage: "+format, args...)}
}

func validChat(id chat.ChatID) bool {
	if n, err := strconv.ParseInt(string(id), 10, 64); err == nil {
		return strconv.FormatInt(n, 10) == string(id) && n != 0
	}
	return publicName.MatchString(string(id))
}

func positive(id string) bool {
	n, err := strconv.ParseInt(id, 10, 64)
	return err == nil && n > 0 && strconv.FormatInt(n, 10) == id
}
