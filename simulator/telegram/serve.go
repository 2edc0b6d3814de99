package telegram

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// method is one method of the Bot API. run is called with the lock held and may be called again for the same call, so
// it must change nothing before it has reserved a slot.
type method struct {
	name string
	cost cost
	run  func(*Server, *call) (any, *apiError)
	acts bool // not a read and not set-up: faults without a method hit it
}

// call is one request on its way through the server.
type call struct {
	bot      *bot
	method   method
	params   params
	now      time.Time
	absorbed time.Duration
	message  *Message // what the call put into a chat
	early    bool
}

// chatID is the chat that the call names; 0 for none or a @name.
func (c *call) chatID() int64 { return c.params.number("chat_id") }

func (c *call) text() string {
	if t := c.params.text("text"); t != "" {
		return t
	}
	return c.params.text("caption")
}

// cut says how a connection ends instead of an answer.
type cut int

const (
	cutNone cut = iota
	cutReset
	cutClose
)

// answer is what goes back to the client.
type answer struct {
	status int
	header http.Header
	body   []byte
	cut    cut
}

// ServeHTTP answers /bot<token>/<method> and /file/bot<token>/<path>.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/file/bot") {
		s.serveFile(w, r)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/bot")
	token, name, found := strings.Cut(rest, "/")
	if !ok || !found || strings.Contains(name, "/") {
		writeAnswer(w, refusal(refuse(http.StatusNotFound, "")))
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		writeAnswer(w, refusal(refuse(http.StatusNotFound, "")))
		return
	}
	p, unread := readParams(w, r)
	writeAnswer(w, s.answer(r.Context(), token, name, p, unread))
}

// answer runs one request from its token to its answer.
func (s *Server) answer(ctx context.Context, token, name string, p params, unread *apiError) answer {
	s.mu.Lock()
	m, known := s.methods[strings.ToLower(name)]
	if !known {
		m.name = name
	}
	if s.takeFault(faultQuery{kinds: []FaultKind{FaultDown}, method: m.name}) != nil {
		s.record(Call{Method: m.name, ChatID: p.number("chat_id"), Status: http.StatusBadGateway, At: s.now(), Fault: FaultDown})
		s.mu.Unlock()
		return htmlError(http.StatusBadGateway)
	}
	b, refused := s.login(token)
	s.mu.Unlock()
	if refused == nil && unread != nil {
		refused = unread
	}
	if refused == nil && !known {
		refused = refuse(http.StatusNotFound, "method not found")
	}
	if refused != nil {
		return s.finish(&call{bot: b, method: m, params: p}, nil, refused, "")
	}
	c := &call{bot: b, method: m, params: p}
	if a, struck := s.before(ctx, c); struck {
		return a
	}
	result, failed := s.perform(ctx, c)
	return s.after(ctx, c, result, failed)
}

func (c *call) query(kinds ...FaultKind) faultQuery {
	return faultQuery{
		kinds: kinds, bot: c.bot, method: c.method.name, act: c.method.acts, chat: c.chatID(),
		thread: c.params.number("message_thread_id"), text: c.text(),
	}
}

// before applies the faults that strike before anything is accepted.
func (s *Server) before(ctx context.Context, c *call) (answer, bool) {
	s.mu.Lock()
	q := c.query(FaultStatus, FaultResetBefore, FaultDelay, FaultHang)
	f := s.takeFaultWhere(q, func(f *Fault) bool { return f.Kind != FaultHang || !f.Accept })
	if f == nil {
		s.mu.Unlock()
		return answer{}, false
	}
	a := answer{cut: cutReset}
	switch f.Kind { //nolint:exhaustive // the query names the four kinds
	case FaultStatus:
		a = f.answer()
		s.startCooldown(c, f)
	case FaultDelay:
		s.mu.Unlock()
		if s.pause(ctx, f.Duration) {
			return answer{}, false
		}
		s.mu.Lock()
	}
	if f.FIN {
		a.cut = cutClose
	}
	s.record(Call{
		Bot: c.bot.id, Method: c.method.name, ChatID: c.chatID(), Status: a.status, At: s.now(), Fault: f.Kind,
		RetryAfter: int(f.RetryAfter), Error: f.Description,
	})
	s.mu.Unlock()
	if f.Kind == FaultHang {
		s.pause(ctx, f.Duration)
	}
	return a, true
}

// startCooldown makes an ordered 429 hold for those who come too early, if the fault asks for it.
func (s *Server) startCooldown(c *call, f *Fault) {
	until := s.now().Add(time.Duration(f.RetryAfter * float64(time.Second))).UnixNano()
	switch f.Cooldown {
	case "bot":
		c.bot.cool.until = max(c.bot.cool.until, until)
	case "chat":
		if rm := s.room(c.bot, c.chatID(), "", "", ""); rm != nil {
			rm.cool.until = max(rm.cool.until, until)
		}
	}
}

// perform runs the method, again and again while the limits hold it back in silence.
func (s *Server) perform(ctx context.Context, c *call) (any, *apiError) {
	for {
		s.mu.Lock()
		c.now = s.now()
		if c.bot.loggedOut {
			s.mu.Unlock()
			return nil, &apiError{code: http.StatusBadRequest, description: "Logged out"}
		}
		if c.method.run == nil {
			s.mu.Unlock()
			return s.longPoll(ctx, c)
		}
		result, failed := c.method.run(s, c)
		s.mu.Unlock()
		if failed == nil || failed.hold == 0 {
			return result, failed
		}
		c.absorbed += failed.hold
		if !s.pause(ctx, failed.hold) {
			return nil, refuse(http.StatusInternalServerError, "restart")
		}
	}
}

// after applies the faults that strike once the call was accepted.
func (s *Server) after(ctx context.Context, c *call, result any, failed *apiError) answer {
	if failed != nil {
		return s.finish(c, nil, failed, "")
	}
	s.mu.Lock()
	q := c.query(FaultTruncate, FaultLost, FaultHang)
	f := s.takeFaultWhere(q, func(f *Fault) bool { return f.Kind != FaultHang || f.Accept })
	if f == nil {
		s.mu.Unlock()
		return s.finish(c, result, nil, "")
	}
	if c.message != nil {
		c.message.Lost = true
	}
	s.mu.Unlock()
	if f.Kind == FaultTruncate {
		a := s.finish(c, result, nil, f.Kind)
		keep := f.KeepBytes
		if keep <= 0 || keep > len(a.body) {
			keep = len(a.body) / 2
		}
		a.body = a.body[:keep]
		return a
	}
	a := answer{cut: cutReset}
	if f.FIN {
		a.cut = cutClose
	}
	s.mu.Lock()
	s.record(Call{Bot: c.bot.id, Method: c.method.name, ChatID: c.chatID(), At: s.stamp(c), Fault: f.Kind})
	s.mu.Unlock()
	if f.Kind == FaultHang {
		s.pause(ctx, f.Duration)
	}
	return a
}

// takeFaultWhere is takeFault with one more condition.
func (s *Server) takeFaultWhere(q faultQuery, also func(*Fault) bool) *Fault {
	s.sweepFaults()
	if i := slices.IndexFunc(s.faults, func(f *Fault) bool {
		return slices.Contains(q.kinds, f.Kind) && also(f) && f.matches(q)
	}); i >= 0 {
		q.id = s.faults[i].ID
		return s.takeFault(q)
	}
	return nil
}

// stamp is when the call was decided.
func (s *Server) stamp(c *call) time.Time {
	if c.now.IsZero() {
		return s.now()
	}
	return c.now
}

// finish records the call and makes its answer.
func (s *Server) finish(c *call, result any, failed *apiError, fault FaultKind) answer {
	a := answer{status: http.StatusOK, header: http.Header{"Content-Type": {"application/json"}}}
	record := Call{Method: c.method.name, ChatID: c.chatID(), Fault: fault}
	if failed != nil {
		a = refusal(failed)
		record.Error = failed.description
		if n, ok := failed.parameters["retry_after"].(int); ok {
			record.RetryAfter = n
		}
	} else {
		data, err := json.Marshal(body{OK: true, Result: result})
		if err != nil {
			a = refusal(refuse(http.StatusInternalServerError, "encode the result"))
		} else {
			a.body = data
		}
	}
	record.Status = a.status
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.bot != nil {
		record.Bot = c.bot.id
		if c.early {
			c.bot.early++
		}
	}
	record.At = s.stamp(c)
	s.record(record)
	return a
}

// refusal is the answer for an error.
func refusal(e *apiError) answer {
	a := answer{status: e.code, header: http.Header{"Content-Type": {"application/json"}}}
	data, err := json.Marshal(body{ErrorCode: e.code, Description: e.description, Parameters: e.parameters})
	if err != nil {
		data = []byte(`{"ok":false,"error_code":500,"description":"Internal Server Error"}`)
	}
	a.body = data
	switch v := e.parameters["retry_after"].(type) {
	case int:
		a.header.Set("Retry-After", strconv.Itoa(v))
	case float64:
		a.header.Set("Retry-After", trimFloat(v))
	}
	return a
}

func trimFloat(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// htmlError is what the platform's front end says while the server behind it is away.
func htmlError(status int) answer {
	title := html.EscapeString(fmt.Sprintf("%d %s", status, http.StatusText(status)))
	page := "<html>\r\n<head><title>" + title + "</title></head>\r\n<body>\r\n<center><h1>" + title +
		"</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
	return answer{status: status, header: http.Header{"Content-Type": {"text/html"}}, body: []byte(page)}
}

// writeAnswer sends the answer, or cuts the connection.
func writeAnswer(w http.ResponseWriter, a answer) {
	if a.cut != cutNone {
		cutConnection(w, a.cut)
		return
	}
	maps.Copy(w.Header(), a.header)
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // The client is gone; nobody is left to tell.
}

// cutConnection closes the connection by a reset or in order, without any answer.
func cutConnection(w http.ResponseWriter, how cut) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2 and recorders: net/http ends the stream.
	}
	if tcp, ok := conn.(*net.TCPConn); ok && how == cutReset {
		_ = tcp.SetLinger(0) // Without it the close is just an orderly one.
	}
	_ = conn.Close()
}
