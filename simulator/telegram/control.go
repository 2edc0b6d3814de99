package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxControlBody bounds a control request: 100,000 updates are welcome, more are not.
const maxControlBody = 64 << 20 // bytes

// Control returns the handler of the control API, for mounting at /_sim/telegram/. It mirrors the methods of [Server]:
//
//	GET, POST /bots              list; register {token, username}
//	POST /updates                inject an [Input]; {update: {…}} injects a raw update
//	POST /updates/batch          inject a list of them
//	POST /press                  press a button: a [Press]
//	GET  /messages               what bots sent; ?chat_id, and ?at_least with ?timeout_ms to wait
//	GET  /history                the same with the users' messages; ?chat_id, ?bot, ?last
//	GET  /chats /calls /stats    the chats (?bot), every call, the counts
//	GET  /files/{file_id}        a file's content
//	GET, POST, DELETE /faults    list; arm a [Fault]; clear all. DELETE /faults/{id} clears one
//	GET, POST /limits            the limits in force; change the fields given
//	GET, POST /clock             the simulator's clock; move it by {advance_ms}
//	POST /reset                  forget everything
//
// Errors are {"error": "…"} with a fitting status. Whoever mounts it keeps other web pages away from it.
func (s *Server) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /bots", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.Bots()) })
	mux.HandleFunc("POST /bots", handle(func(_ context.Context, in struct{ Token, Username string }) (Bot, error) {
		return s.Register(in.Token, in.Username)
	}))
	mux.HandleFunc("POST /updates", handle(func(_ context.Context, in Input) (Injected, error) { return s.Inject(in) }))
	mux.HandleFunc("POST /updates/batch", handle(func(_ context.Context, in []Input) ([]Injected, error) { return s.InjectAll(in) }))
	mux.HandleFunc("POST /press", handle(func(_ context.Context, in Press) (Injected, error) { return s.Press(in) }))
	mux.HandleFunc("GET /messages", s.controlMessages)
	mux.HandleFunc("GET /history", s.controlHistory)
	mux.HandleFunc("GET /chats", func(w http.ResponseWriter, r *http.Request) { reply(w, s.Chats(r.FormValue("bot"))) })
	mux.HandleFunc("GET /calls", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.Calls()) })
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.Stats()) })
	mux.HandleFunc("GET /files/{id}", s.controlFile)
	mux.HandleFunc("POST /reset", handle(func(_ context.Context, _ struct{}) (done, error) {
		s.Reset()
		return done{true}, nil
	}))
	mux.HandleFunc("GET /clock", func(w http.ResponseWriter, _ *http.Request) { reply(w, clock{Now: s.Now()}) })
	mux.HandleFunc("POST /clock", handle(func(_ context.Context, in clock) (clock, error) {
		s.Jump(fromMilliseconds(in.AdvanceMS))
		return clock{Now: s.Now()}, nil
	}))
	mux.HandleFunc("GET /limits", func(w http.ResponseWriter, _ *http.Request) { reply(w, limitsToJSON(s.Limits())) })
	mux.HandleFunc("POST /limits", s.controlLimits)
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.Faults()) })
	mux.HandleFunc("POST /faults", handle(s.controlFault))
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) {
		s.ClearFaults()
		reply(w, done{true})
	})
	mux.HandleFunc("DELETE /faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
		if err != nil || !s.ClearFault(id) {
			replyError(w, http.StatusNotFound, errors.New("no such fault"))
			return
		}
		reply(w, done{true})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		replyError(w, http.StatusNotFound, errors.New("no such control endpoint"))
	})
	return mux
}

type done struct {
	OK bool `json:"ok"`
}

type clock struct {
	Now       time.Time `json:"now"`
	AdvanceMS float64   `json:"advance_ms,omitempty"`
}

// handle decodes a JSON body, calls f and encodes its result.
func handle[In, Out any](f func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControlBody))
		if err := dec.Decode(&in); err != nil && r.ContentLength != 0 {
			replyError(w, http.StatusBadRequest, fmt.Errorf("decode the body: %w", err))
			return
		}
		out, err := f(r.Context(), in)
		switch {
		case errors.Is(err, ErrFull):
			replyError(w, http.StatusInsufficientStorage, err)
		case errors.Is(err, ErrUnknownBot):
			replyError(w, http.StatusNotFound, err)
		case err != nil:
			replyError(w, http.StatusBadRequest, err)
		default:
			reply(w, out)
		}
	}
}

func reply(w http.ResponseWriter, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		replyError(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(data, '\n')) // The client is gone; nobody is left to tell.
}

func replyError(w http.ResponseWriter, status int, err error) {
	data, bad := json.Marshal(map[string]string{"error": err.Error()})
	if bad != nil {
		data = []byte(`{"error":"internal error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // The client is gone; nobody is left to tell.
}

// controlFault arms a fault; one with an unknown field is refused, since a misspelt fault would test nothing.
func (s *Server) controlFault(_ context.Context, raw json.RawMessage) (Fault, error) {
	var f Fault
	wire := faultJSON{faultFields: (*faultFields)(&f)}
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&wire); err != nil {
		return Fault{}, fmt.Errorf("decode fault: %w", err)
	}
	f.Duration, f.For = fromMilliseconds(wire.DurationMS), fromMilliseconds(wire.ForMS)
	id, err := s.Fault(f)
	f.ID = id
	return f, err
}

// controlMessages answers at once, or once at_least messages are there or timeout_ms has passed.
func (s *Server) controlMessages(w http.ResponseWriter, r *http.Request) {
	chat, err := chatParam(r)
	if err != nil {
		replyError(w, http.StatusBadRequest, err)
		return
	}
	n, _ := strconv.Atoi(r.FormValue("at_least"))
	ms, _ := strconv.Atoi(r.FormValue("timeout_ms"))
	if n > 0 && ms > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), time.Duration(min(ms, 600_000))*time.Millisecond)
		defer cancel()
		if list, err := s.WaitMessages(ctx, chat, n); err == nil {
			reply(w, list)
			return
		}
	}
	reply(w, s.Messages(chat))
}

func (s *Server) controlHistory(w http.ResponseWriter, r *http.Request) {
	chat, err := chatParam(r)
	if err != nil {
		replyError(w, http.StatusBadRequest, err)
		return
	}
	list := s.History(chat)
	if bot := r.FormValue("bot"); bot != "" {
		kept := list[:0]
		for _, m := range list {
			if strconv.FormatInt(m.Bot, 10) == bot {
				kept = append(kept, m)
			}
		}
		list = kept
	}
	if last, err := strconv.Atoi(r.FormValue("last")); err == nil && last > 0 && len(list) > last {
		list = list[len(list)-last:]
	}
	reply(w, list)
}

func chatParam(r *http.Request) (int64, error) {
	raw := r.FormValue("chat_id")
	if raw == "" {
		return 0, nil
	}
	chat, err := strconv.ParseInt(raw, 10, 64)
	if err != nil {
		return 0, errors.New("chat_id: want a number")
	}
	return chat, nil
}

// controlFile shows pictures and offers everything else as a download, so that no uploaded page runs here.
func (s *Server) controlFile(w http.ResponseWriter, r *http.Request) {
	f, content, ok := s.Content(r.PathValue("id"))
	if !ok {
		replyError(w, http.StatusNotFound, errors.New("no such file"))
		return
	}
	kind := http.DetectContentType(content)
	switch kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
	default:
		kind = "application/octet-stream"
		w.Header().Set("Content-Disposition", "attachment; filename="+strconv.QuoteToASCII(f.Name))
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(content) // The client is gone; nobody is left to tell.
}

// limitsJSON is the control API's form of Limits. Absent fields keep their values.
type limitsJSON struct {
	Off            *bool    `json:"off,omitempty"`
	PrivateEveryMS *float64 `json:"private_every_ms,omitempty"`
	PrivateBurst   *int     `json:"private_burst,omitempty"`
	GroupMessages  *int     `json:"group_messages,omitempty"`
	GroupWindowMS  *float64 `json:"group_window_ms,omitempty"`
	GlobalEveryMS  *float64 `json:"global_every_ms,omitempty"`
	GlobalBurst    *int     `json:"global_burst,omitempty"`
	JitterMS       *float64 `json:"jitter_ms,omitempty"`
	AbsorbMS       *float64 `json:"absorb_ms,omitempty"`
	PenaltyMS      *float64 `json:"penalty_ms,omitempty"`
	Polling        *bool    `json:"polling,omitempty"`
}

func limitsToJSON(l Limits) limitsJSON {
	return limitsJSON{
		Off: &l.Off, PrivateEveryMS: new(milliseconds(l.Private.Every)), PrivateBurst: &l.Private.Burst,
		GroupMessages: &l.GroupMessages, GroupWindowMS: new(milliseconds(l.GroupWindow)),
		GlobalEveryMS: new(milliseconds(l.Global.Every)), GlobalBurst: &l.Global.Burst,
		JitterMS: new(milliseconds(l.Jitter)), AbsorbMS: new(milliseconds(l.Absorb)),
		PenaltyMS: new(milliseconds(l.Penalty)), Polling: &l.Polling,
	}
}

func (s *Server) controlLimits(w http.ResponseWriter, r *http.Request) {
	handle(func(_ context.Context, in limitsJSON) (limitsJSON, error) {
		l := s.Limits()
		override(&l.Off, in.Off)
		override(&l.Private.Burst, in.PrivateBurst)
		override(&l.GroupMessages, in.GroupMessages)
		override(&l.Global.Burst, in.GlobalBurst)
		override(&l.Polling, in.Polling)
		overrideMS(&l.Private.Every, in.PrivateEveryMS)
		overrideMS(&l.GroupWindow, in.GroupWindowMS)
		overrideMS(&l.Global.Every, in.GlobalEveryMS)
		overrideMS(&l.Jitter, in.JitterMS)
		overrideMS(&l.Absorb, in.AbsorbMS)
		overrideMS(&l.Penalty, in.PenaltyMS)
		s.SetLimits(l)
		return limitsToJSON(l), nil
	})(w, r)
}

func override[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

func overrideMS(field *time.Duration, ms *float64) {
	if ms != nil {
		*field = fromMilliseconds(*ms)
	}
}
