package telegram_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/simulator/telegram"
)

func client(t *testing.T, s *sim) *tgbotapi.BotAPI {
	t.Helper()
	bot, err := tgbotapi.NewBotAPIWithAPIEndpoint(s.Token(), s.url+"/bot%s/%s")
	if err != nil {
		t.Fatalf("NewBotAPI() = %v", err)
	}
	return bot
}

func TestServer_talksToTheGoClient(t *testing.T) {
	s := start(t, telegram.Options{})
	bot := client(t, s)
	if bot.Self.ID != 100000001 || !bot.Self.IsBot {
		t.Errorf("getMe = %+v, want the default bot", bot.Self)
	}
	in := s.say(t, 5, "/start now")
	updates, err := bot.GetUpdates(tgbotapi.UpdateConfig{Timeout: 5})
	if err != nil || len(updates) != 1 {
		t.Fatalf("GetUpdates() = %d updates, %v, want 1", len(updates), err)
	}
	if m := updates[0].Message; m.Command() != "start" || m.MessageID != int(in.MessageID) || m.From.ID != 5 || m.Chat.Type != "private" {
		t.Errorf("update = %+v, want user 5's command", m)
	}
	msg := tgbotapi.NewMessage(5, "<b>hé</b> 😀<i>there</i>")
	msg.ParseMode, msg.ReplyToMessageID = "HTML", int(in.MessageID)
	msg.ReplyMarkup = tgbotapi.NewInlineKeyboardMarkup(tgbotapi.NewInlineKeyboardRow(tgbotapi.NewInlineKeyboardButtonData("A", "x")))
	sent, err := bot.Send(msg)
	if err != nil {
		t.Fatalf("Send() = %v", err)
	}
	want := []tgbotapi.MessageEntity{{Type: "bold", Length: 2}, {Type: "italic", Offset: 5, Length: 5}}
	if d := cmp.Diff(want, sent.Entities); d != "" || sent.Text != "hé 😀there" || sent.ReplyToMessage.MessageID != int(in.MessageID) {
		t.Errorf("sent %+v, entities -want +got:\n%s", sent, d)
	}
	if _, err := s.Press(telegram.Press{ChatID: 5, MessageID: int64(sent.MessageID)}); err != nil {
		t.Fatalf("Press() = %v", err)
	}
	updates, err = bot.GetUpdates(tgbotapi.UpdateConfig{Offset: updates[0].UpdateID + 1, Timeout: 5})
	if err != nil || len(updates) != 1 || updates[0].CallbackQuery.Data != "x" {
		t.Fatalf("GetUpdates() = %+v, %v, want the press", updates, err)
	}
	if _, err := bot.Request(tgbotapi.NewCallback(updates[0].CallbackQuery.ID, "done")); err != nil {
		t.Errorf("answerCallbackQuery = %v", err)
	}
	edited, err := bot.Send(tgbotapi.NewEditMessageText(5, sent.MessageID, "new"))
	if err != nil || edited.Text != "new" || edited.EditDate == 0 {
		t.Errorf("edit = %+v, %v", edited, err)
	}
	if _, err := bot.Request(tgbotapi.NewDeleteMessage(5, sent.MessageID)); err != nil {
		t.Errorf("delete = %v", err)
	}
	if list := s.Messages(5); len(list) != 1 || !list[0].Deleted || list[0].Edits[0].Text != "hé 😀there" {
		t.Errorf("Messages(5) = %+v, want one, edited and deleted", list)
	}
	_, err = bot.Send(tgbotapi.NewMessage(5, strings.Repeat("é", 4097)))
	if apiErr, ok := errors.AsType[*tgbotapi.Error](err); !ok || apiErr.Code != 400 || apiErr.Message != "Bad Request: message is too long" {
		t.Errorf("Send(4097 letters) = %v, want too long", err)
	}
}

func TestServer_takesFilesAndGivesThemBack(t *testing.T) {
	s := start(t, telegram.Options{})
	bot := client(t, s)
	doc := tgbotapi.NewDocument(5, tgbotapi.FileBytes{Name: "a.txt", Bytes: []byte("content")})
	doc.Caption = "look"
	sent, err := bot.Send(doc)
	if err != nil || sent.Document.FileName != "a.txt" || sent.Caption != "look" {
		t.Fatalf("Send(document) = %+v, %v", sent, err)
	}
	f, err := bot.GetFile(tgbotapi.FileConfig{FileID: sent.Document.FileID})
	if err != nil {
		t.Fatalf("GetFile() = %v", err)
	}
	resp, err := http.Get(s.url + "/file/bot" + s.Token() + "/" + f.FilePath)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, _ := io.ReadAll(resp.Body); string(got) != "content" {
		t.Errorf("download = %q, want %q", got, "content")
	}
	again, err := bot.Send(tgbotapi.NewDocument(5, tgbotapi.FileID(sent.Document.FileID)))
	if err != nil || again.Document.FileID != sent.Document.FileID {
		t.Errorf("Send(file_id) = %+v, %v", again, err)
	}
	album, err := bot.SendMediaGroup(tgbotapi.NewMediaGroup(5, []any{
		tgbotapi.NewInputMediaPhoto(tgbotapi.FileBytes{Name: "1.png", Bytes: []byte("one")}),
		tgbotapi.NewInputMediaPhoto(tgbotapi.FileURL("https://example.org/2.png")),
	}))
	if err != nil || len(album) != 2 || album[0].MediaGroupID == "" || album[0].MediaGroupID != album[1].MediaGroupID {
		t.Errorf("SendMediaGroup() = %+v, %v, want two of one album", album, err)
	}
	if _, err = bot.Send(tgbotapi.NewPhoto(5, tgbotapi.FileID("nonsense"))); err == nil || !strings.Contains(err.Error(), "wrong file identifier/HTTP URL specified") {
		t.Errorf("Send(unknown file_id) = %v", err)
	}
}

func TestServer_readsEveryFormOfParameters(t *testing.T) {
	s := start(t, telegram.Options{})
	base := s.url + "/bot" + s.Token()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	_ = w.WriteField("chat_id", "7")
	_ = w.WriteField("text", "t")
	_ = w.WriteField("entities", "null")
	_ = w.Close()
	requests := []struct{ name, method, path, kind, body string }{
		{"a query", "GET", "/sendmessage?chat_id=7&text=t&parse_mode=null", "", ""},
		{"a query on POST", "POST", "/SENDMESSAGE?chat_id=7&text=t", "", ""},
		{"a form", "POST", "/sendMessage", "application/x-www-form-urlencoded", "chat_id=7&text=t&reply_markup=null"},
		{"JSON", "POST", "/sendMessage", "application/json; charset=utf-8", `{"chat_id":7,"text":"t","entities":null,"reply_parameters":null}`},
		{"multipart", "POST", "/sendMessage", w.FormDataContentType(), form.String()},
	}
	for _, tt := range requests {
		t.Run(tt.name, func(t *testing.T) {
			req, _ := http.NewRequestWithContext(t.Context(), tt.method, base+tt.path, strings.NewReader(tt.body))
			req.Header.Set("Content-Type", tt.kind)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := read(t, resp); err != nil || !r.OK {
				t.Errorf("answer = %q, %v, want success", r.Raw, err)
			}
		})
	}
	if n := len(s.Messages(7)); n != len(requests) {
		t.Errorf("%d messages, want %d", n, len(requests))
	}
}

func TestSendMessage_checksInThePlatformsOrder(t *testing.T) {
	s := start(t, telegram.Options{StrictChats: true})
	s.say(t, 5, "hi")
	long := strings.Repeat("x", 4097)
	s.fault(t, telegram.Fault{Kind: telegram.FaultBlocked, ChatID: 5})
	everything := []string{"text=", "parse_mode=HTML", "reply_markup=[", "chat_id=9", "message_thread_id=1", "reply_to_message_id=99"}
	steps := []struct{ fix, want string }{
		{"", "message text is empty"},
		{"text=<b>" + long, `can't parse entities: Can't find end tag corresponding to start tag "b"`},
		{"text=<b> </b>", "text must be non-empty"},
		{"text=" + long, "can't parse reply keyboard markup JSON object"},
		{"reply_markup=[]", "object expected as reply markup"},
		{"reply_markup=", "chat not found"},
		{"chat_id=", "chat_id is empty"},
		{"chat_id=5", "message thread not found"},
		{"message_thread_id=", "message to be replied not found"},
		{`reply_parameters={"message_id":99,"allow_sending_without_reply":true}`, "message is too long"},
	}
	for _, step := range steps {
		everything = append(everything, step.fix) // A later pair replaces an earlier one.
		s.mustFail(t, 400, "Bad Request: "+step.want, "sendMessage", everything...)
	}
	s.mustFail(t, 403, "Forbidden: bot was blocked by the user", "sendMessage", append(everything, "text=fine")...)
	s.ClearFaults()
	s.mustWork(t, "sendMessage", append(everything, "text=fine")...)
}

func TestServer_refusesLikeThePlatform(t *testing.T) {
	s := start(t, telegram.Options{Tokens: []string{"42:abc"}, Strict: true})
	get := func(path string) response {
		resp, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := read(t, resp)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return r
	}
	tests := []struct {
		path, want string
		status     int
	}{
		{"/bot42:abc/getMe", "", 200},
		{"/bot42:abc/nonsense", "Not Found: method not found", 404},
		{"/bot42:other/getMe", "Unauthorized", 401},
		{"/botnonsense/getMe", "Not Found", 404},
		{"/elsewhere", "Not Found", 404},
		{"/file/bot42:abc/documents/none", "Not Found", 404},
		{"/bot42:abc/sendMessage?chat_id=5&text=a&parse_mode=x", "Bad Request: unsupported parse_mode", 400},
		{"/bot42:abc/sendMessage?chat_id=42&text=a", "Forbidden: the bot can't send messages to the bot", 403},
		{"/bot42:abc/editMessageText?chat_id=5&text=a&message_id=8", "Bad Request: message to edit not found", 400},
		{"/bot42:abc/deleteMessage?chat_id=5&message_id=8", "Bad Request: message to delete not found", 400},
		{"/bot42:abc/answerCallbackQuery?callback_query_id=8", "Bad Request: query is too old and response timeout expired or query ID is invalid", 400},
		{"/bot42:abc/setWebhook?url=https://example.org/x", "Bad Request: bad webhook: this simulator sends to loopback addresses only", 400},
		{"/bot42:abc/setWebhook?url=http://127.0.0.1:9/&secret_token=a+b", "Bad Request: secret token contains unallowed characters", 400},
	}
	for _, tt := range tests {
		if r := get(tt.path); r.Status != tt.status || r.Description != tt.want {
			t.Errorf("GET %s = %d %q, want %d %q", tt.path, r.Status, r.Description, tt.status, tt.want)
		}
	}
}

func TestEditMessageText_knowsItsMessage(t *testing.T) {
	s := start(t, telegram.Options{})
	in := s.say(t, 5, "mine")
	s.mustFail(t, 400, "Bad Request: message can't be edited", "editMessageText", "chat_id=5", "text=a", "message_id="+itoa(in.MessageID))
	s.mustWork(t, "sendMessage", "chat_id=5", "text=a")
	s.mustFail(t, 400, "Bad Request: message is not modified: specified new message content and reply markup are exactly the same "+
		"as a current content and reply markup of the message", "editMessageText", "chat_id=5", "text=a", "message_id=2")
	s.mustWork(t, "editMessageText", "chat_id=5", "text=*a*", "parse_mode=MarkdownV2", "message_id=2")
}

func TestServer_reactsAndShowsCommands(t *testing.T) {
	s := start(t, telegram.Options{})
	in := s.say(t, 5, "hi")
	s.mustWork(t, "setMessageReaction", "chat_id=5", "message_id="+itoa(in.MessageID), `reaction=[{"type":"emoji","emoji":"👍"}]`)
	if got := s.History(5)[0].BotReaction; got != "👍" {
		t.Errorf("reaction = %q", got)
	}
	s.mustWork(t, "setMyCommands", `commands=[{"command":"help","description":"Help"}]`)
	if r := s.mustWork(t, "getMyCommands"); string(r.Result) != `[{"command":"help","description":"Help"}]` {
		t.Errorf("getMyCommands = %s", r.Result)
	}
	s.mustFail(t, 400, "Bad Request: BOT_COMMAND_INVALID", "setMyCommands", `commands=[{"command":"Help me","description":"x"}]`)
	s.mustWork(t, "sendChatAction", "chat_id=5", "action=typing")
	s.mustWork(t, "getChat", "chat_id=5")
	s.mustWork(t, "logOut")
	s.mustFail(t, 400, "Logged out", "getMe")
}

func TestServer_keepsMessageIDsPerChat(t *testing.T) {
	s := start(t, telegram.Options{})
	for _, chat := range []string{"5", "6"} {
		r := s.mustWork(t, "sendMessage", "chat_id="+chat, "text=a", "message_thread_id=7")
		var m struct {
			MessageID int64 `json:"message_id"`
			Thread    int64 `json:"message_thread_id"`
		}
		if err := json.Unmarshal(r.Result, &m); err != nil || m.MessageID != 1 || m.Thread != 7 {
			t.Errorf("message = %s, want the first of its chat, in topic 7", r.Result)
		}
	}
}
