package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/chatgateway/gateway/chat"
)

const (
	maxAnswer  = 1 << 20  // bytes; an answer to a send is a few kilobytes
	maxUpdates = 10 << 20 // bytes; the server ends a batch at about 4 MiB
	maxIdle    = 128      // connections kept for sends that run at once
)

var (
	errUnreadable = errors.New("unreadable answer")
	errTooLarge   = errors.New("answer too large")
)

// limits bound one call.
type limits struct {
	within time.Duration // over the whole call, however long the caller's context lives
	body   int64         // bytes of the answer
}

var plainCall = limits{within: time.Minute, body: maxAnswer}

// newClient makes a client for one bot. It speaks HTTP/1.1 only: with HTTP/2
// all calls share a connection, and its loss would make every send in flight
// uncertain at once.
func newClient() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           dialer.DialContext,
			TLSHandshakeTimeout:   10 * time.Second,
			MaxIdleConns:          maxIdle,
			MaxIdleConnsPerHost:   maxIdle,
			IdleConnTimeout:       90 * time.Second,
			ExpectContinueTimeout: time.Second,
			Protocols:             protocols,
		},
		// The address holds the token: it goes to the configured server only.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// doer lets a function be the library's HTTP client, so that each call has
// its own context.
type doer func(*http.Request) (*http.Response, error)

// Do implements tgbotapi.HTTPClient.
func (d doer) Do(req *http.Request) (*http.Response, error) { return d(req) }

// answer is what the library throws away: the status and the raw body.
type answer struct {
	status int // 0 if none came
	header http.Header
	body   []byte
	err    error // why the body is not whole
}

// progress says how far a request got.
type progress struct {
	stage atomic.Int32
}

const (
	asked     int32 = iota // nothing is known
	searching              // looking for a connection: no byte has left
	handed                 // a connection has the request: bytes may leave at any moment
)

// trace follows the transport. It goes back to searching when the transport
// starts over, which net/http does for a POST only if a reused connection had
// died before it took a byte.
func (p *progress) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { p.stage.Store(searching) },
		GotConn: func(httptrace.GotConnInfo) { p.stage.Store(handed) },
	}
}

// call makes one call and gives its result. It fails with a *chat.SendError,
// or with ctx's error if surely nothing was sent. A nil result without an
// error means that the wanted state already holds.
func (a *Adapter) call(ctx context.Context, method string, params tgbotapi.Params, lim limits) (json.RawMessage, error) {
	result, _, err := a.ask(ctx, method, params, lim)
	return result, err
}

// ask is call for who has to see the answer as it came.
func (a *Adapter) ask(ctx context.Context, method string, params tgbotapi.Params, lim limits) (json.RawMessage, answer, error) {
	var got answer
	if err := ctx.Err(); err != nil {
		return nil, got, err
	}
	bounded, cancel := context.WithTimeout(ctx, lim.within)
	defer cancel()
	var sent progress
	api := &tgbotapi.BotAPI{
		Token: a.cfg.Token.Reveal(),
		Client: doer(func(req *http.Request) (*http.Response, error) {
			traced := httptrace.WithClientTrace(bounded, sent.trace())
			return a.exchange(req.WithContext(traced), &got, lim.body)
		}),
	}
	api.SetAPIEndpoint(a.endpoint)
	resp, err := api.MakeRequest(method, params)
	switch {
	case got.status == 0:
		return nil, got, a.lost(ctx, method, err, sent.stage.Load())
	case resp.Ok && got.status < http.StatusMultipleChoices:
		return resp.Result, got, nil
	}
	if failed := a.failure(got, time.Now()); failed != nil {
		failed.Err = fmt.Errorf("%s: %w", method, failed.Err)
		return nil, got, failed
	}
	return nil, got, nil
}

// exchange reads the whole answer before the library sees it.
func (a *Adapter) exchange(req *http.Request, got *answer, limit int64) (*http.Response, error) {
	resp, err := a.client.Do(req) //nolint:gosec // the operator names the server
	if err != nil {
		return nil, err
	}
	body, err := readBody(req.Context(), resp, limit)
	*got = answer{status: resp.StatusCode, header: resp.Header, body: body, err: err}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// readBody reads and closes resp's body. It ends with ctx, whatever the
// transport does then.
func readBody(ctx context.Context, resp *http.Response, limit int64) ([]byte, error) {
	defer resp.Body.Close()
	if resp.StatusCode < http.StatusOK {
		// After "101 Switching Protocols" the body is the bare connection, which
		// no context ends.
		return nil, errUnreadable
	}
	stream := resp.Body // the caller replaces it, perhaps before a late close below
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
	defer stop()
	body, err := io.ReadAll(io.LimitReader(stream, limit+1))
	switch {
	case int64(len(body)) > limit:
		return body[:limit], errTooLarge
	case err != nil && ctx.Err() != nil:
		return body, ctx.Err()
	}
	return body, err
}

// lost classifies a call that got no answer.
func (a *Adapter) lost(ctx context.Context, method string, cause error, stage int32) error {
	kind := chat.Uncertain
	if stage == searching || (stage == asked && a.traced) {
		if err := ctx.Err(); err != nil {
			return err
		}
		kind = chat.Temporary
	}
	return &chat.SendError{Kind: kind, Err: fmt.Errorf("%s: no answer: %w", method, a.redact.err(cause))}
}
