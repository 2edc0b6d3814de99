package telegram_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"
)

// api is a Bot API without sockets, for tests in fake time.
type api struct {
	// answer is called for the nth call of a method, counted from 0. An empty
	// body stands for a connection that is cut after the answer's delay.
	answer func(method string, n int, form url.Values) reply

	mu     sync.Mutex
	calls  []call
	counts map[string]int
}

type call struct {
	method string
	form   url.Values
	at     time.Time
}

type reply struct {
	status int
	body   string
	after  time.Duration
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	method := path.Base(r.URL.Path)
	re := a.answer(method, a.record(call{method, form, time.Now()}), form)
	select {
	case <-time.After(re.after):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if re.body == "" {
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{StatusCode: re.status, Body: io.NopCloser(strings.NewReader(re.body)), Request: r}, nil
}

func (a *api) record(c call) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counts == nil {
		a.counts = map[string]int{}
	}
	a.calls = append(a.calls, c)
	a.counts[c.method]++
	return a.counts[c.method] - 1
}

// of gives the calls of one method so far.
func (a *api) of(method string) []call {
	a.mu.Lock()
	defer a.mu.Unlock()
	var found []call
	for _, c := range a.calls {
		if c.method == method {
			found = append(found, c)
		}
	}
	return found
}

// gaps gives the times between the calls of one method, in seconds.
func (a *api) gaps(method string) []float64 {
	calls := a.of(method)
	var gaps []float64
	for i := 1; i < len(calls); i++ {
		gaps = append(gaps, calls[i].at.Sub(calls[i-1].at).Seconds())
	}
	return gaps
}

func ok(result string) reply { return reply{200, `{"ok":true,"result":` + result + `}`, 0} }

func failed(code int, description, parameters string) reply {
	a := refusal(code, description, parameters)
	return reply{a.Status, a.Body, 0}
}

// quiet is a long poll that brings nothing.
func quiet(form url.Values) reply {
	seconds, err := time.ParseDuration(form.Get("timeout") + "s")
	if err != nil {
		panic(err)
	}
	return reply{200, `{"ok":true,"result":[]}`, seconds}
}

func text(id int) string { return fmt.Sprintf(updateJSON, fmt.Sprint(id)) }
