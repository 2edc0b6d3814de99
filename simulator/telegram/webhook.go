package telegram

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	defaultConnections = 40             // at once (Bot API, setWebhook; read 2026-11-30).
	maxHookRetryAfter  = time.Hour      // a webhook's own Retry-After counts up to this (telegram-bot-api source; read 2026-11-30).
	goneLife           = 23 * time.Hour // of 410 answers, then the webhook is removed (telegram-bot-api source; read 2026-11-30).
)

// webhook is where a bot's updates are sent. The server's lock guards it.
type webhook struct {
	url         string
	secret      string
	connections int
	setAt       time.Time
	flying      int
	lanes       map[int64]*hookLane
	lastError   string
	lastErrorAt time.Time
	goneSince   time.Time
}

// hookLane keeps the order of one chat's updates.
type hookLane struct {
	flying   bool
	failures int
	due      time.Time // on the real clock, since timers wait for it
}

// kickWebhooks wakes Run.
func (s *Server) kickWebhooks() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Run delivers webhooks until ctx ends or the server is closed. It owns every goroutine that it starts.
func (s *Server) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	var sends sync.WaitGroup
	defer sends.Wait()
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(s.launch(ctx, &sends))
		select {
		case <-s.kick:
		case <-timer.C:
		case <-s.done:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// launch starts every delivery that may go and returns how long nothing else is due.
func (s *Server) launch(ctx context.Context, sends *sync.WaitGroup) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := time.Hour
	for _, b := range s.botOrder {
		if b.hook.url == "" {
			continue
		}
		b.expire(s.now())
		ready, wait := b.readyUpdates()
		next = min(next, wait)
		for _, u := range ready {
			lane := b.hook.lane(u.chat)
			lane.flying, u.flying = true, true
			b.hook.flying++
			sends.Go(func() { s.deliver(ctx, b, u, lane) })
		}
	}
	return next
}

// readyUpdates finds the first update of each chat that may go now, and how long the next chat has to wait.
func (b *bot) readyUpdates() (ready []*update, next time.Duration) {
	next = time.Hour
	seen := map[int64]bool{}
	for _, u := range b.queue {
		if b.hook.flying+len(ready) >= b.hook.connections {
			break
		}
		if seen[u.chat] {
			continue
		}
		seen[u.chat] = true
		lane := b.hook.lane(u.chat)
		if wait := time.Until(lane.due); wait > 0 {
			next = min(next, wait)
		} else if !lane.flying {
			ready = append(ready, u)
		}
	}
	return ready, next
}

func (h *webhook) lane(chat int64) *hookLane {
	if h.lanes == nil {
		h.lanes = map[int64]*hookLane{}
	}
	if h.lanes[chat] == nil {
		h.lanes[chat] = &hookLane{}
	}
	return h.lanes[chat]
}

// deliver sends one update and settles it.
func (s *Server) deliver(ctx context.Context, b *bot, u *update, lane *hookLane) {
	s.mu.Lock()
	target, secret := b.hook.url, b.hook.secret
	s.mu.Unlock()
	status, answer, retryAfter, err := s.postUpdate(ctx, target, secret, u.body)
	if err == nil && status >= 200 && status <= 299 {
		s.answerInWebhook(ctx, b, answer)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lane.flying, u.flying = false, false
	b.hook.flying--
	switch {
	case ctx.Err() != nil:
	case err == nil && status >= 200 && status <= 299:
		s.delivered(b, u, lane)
	default:
		s.undelivered(b, lane, status, retryAfter, err)
	}
	s.changedLocked()
	s.kickWebhooks()
}

func (s *Server) delivered(b *bot, u *update, lane *hookLane) {
	b.fetched++
	b.hook.goneSince = time.Time{}
	lane.failures, lane.due = 0, time.Time{}
	if u.copies > 0 {
		u.copies--
		return
	}
	b.queue = slices.DeleteFunc(b.queue, func(v *update) bool { return v == u })
	if !slices.ContainsFunc(b.queue, func(v *update) bool { return v.chat == u.chat }) {
		delete(b.hook.lanes, u.chat)
	}
}

// undelivered plans the next attempt: one at once, then after 2, 4, 8 … seconds up to a cap between one and two minutes.
func (s *Server) undelivered(b *bot, lane *hookLane, status int, retryAfter time.Duration, err error) {
	now := s.now()
	b.hook.lastErrorAt = now
	if err != nil {
		b.hook.lastError = "Connection failed"
		if ue, ok := errors.AsType[*url.Error](err); ok && ue.Timeout() {
			b.hook.lastError = "Read timeout expired"
		}
	} else {
		b.hook.lastError = fmt.Sprintf("Wrong response from the webhook: %d %s", status, http.StatusText(status))
	}
	if status == http.StatusGone {
		if b.hook.goneSince.IsZero() {
			b.hook.goneSince = now
		}
		if now.Sub(b.hook.goneSince) >= goneLife {
			b.hook.url = ""
			return
		}
	} else {
		b.hook.goneSince = time.Time{}
	}
	lane.failures++
	var wait time.Duration
	if lane.failures > 1 {
		limit := time.Minute + rand.N(time.Minute) //nolint:gosec // spreads retries; nothing secret
		wait = min(time.Second<<min(lane.failures-1, 10), limit)
	}
	lane.due = time.Now().Add(max(wait, min(retryAfter, maxHookRetryAfter)))
}

// postUpdate makes one attempt.
func (s *Server) postUpdate(ctx context.Context, target, secret string, update []byte) (status int, answer []byte, retryAfter time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, webhookTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(update))
	if err != nil {
		return 0, nil, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if secret != "" {
		req.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
	}
	resp, err := s.opts.Client.Do(req)
	if err != nil {
		return 0, nil, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if seconds, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil && seconds > 0 {
		retryAfter = time.Duration(min(seconds, 3600)) * time.Second
	}
	return resp.StatusCode, answer, retryAfter, err
}

// answerInWebhook runs the one API call that the answer to a webhook may hold. Its result is never reported.
func (s *Server) answerInWebhook(ctx context.Context, b *bot, answer []byte) {
	p := params{values: map[string]string{}}
	if len(answer) == 0 || p.readJSON(bytes.NewReader(answer)) != nil {
		return
	}
	name := strings.ToLower(p.text("method"))
	if name == "" || strings.HasPrefix(name, "get") || slices.Contains([]string{"setwebhook", "deletewebhook", "close", "logout"}, name) {
		return
	}
	s.answer(ctx, b.token, name, p, nil)
}

func setWebhook(s *Server, c *call) (any, *apiError) {
	b, target := c.bot, c.params.text("url")
	if target == "" {
		return deleteWebhook(s, c)
	}
	secret := c.params.text("secret_token")
	if len(secret) > 256 {
		return nil, badRequest("secret token is too long")
	}
	if !regexp.MustCompile(`^[\w-]*$`).MatchString(secret) {
		return nil, badRequest("secret token contains unallowed characters")
	}
	if problem := s.checkHook(target); problem != "" {
		return nil, badRequest("bad webhook: " + problem)
	}
	if s.limits.Polling && !s.limits.Off && c.now.Sub(b.hook.setAt) < time.Second {
		return nil, errTooMany(1)
	}
	b.allowKinds(c.params)
	connections := int(c.params.number("max_connections"))
	if connections < 1 || connections > 100 {
		connections = defaultConnections
	}
	if c.params.flag("drop_pending_updates") {
		b.queue = nil
	}
	// Lanes that still have an update in flight must stay known.
	hook := webhook{
		url: target, secret: secret, connections: connections, setAt: c.now, flying: b.hook.flying, lanes: b.hook.lanes,
	}
	for _, lane := range hook.lanes {
		lane.due, lane.failures = time.Time{}, 0
	}
	b.hook = hook
	b.wakePoll(conflict("terminated by setWebhook request"))
	s.kickWebhooks()
	s.changedLocked(Event{Kind: "bot", Bot: b.id})
	return true, nil
}

// checkHook says what is wrong with an address for webhooks, or nothing.
func (s *Server) checkHook(target string) string {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "invalid webhook URL specified"
	}
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	switch {
	case !local && !s.opts.RemoteWebhooks:
		return "this simulator sends to loopback addresses only"
	case !local && u.Scheme != "https":
		return "An HTTPS URL must be provided for webhook"
	}
	return ""
}

func deleteWebhook(s *Server, c *call) (any, *apiError) {
	if c.params.flag("drop_pending_updates") {
		c.bot.queue = nil
	}
	c.bot.hook.url = ""
	s.changedLocked(Event{Kind: "bot", Bot: c.bot.id})
	return true, nil
}

func getWebhookInfo(_ *Server, c *call) (any, *apiError) {
	h := c.bot.hook
	c.bot.expire(c.now)
	info := map[string]any{"url": h.url, "has_custom_certificate": false, "pending_update_count": len(c.bot.queue)}
	if h.url != "" {
		info["max_connections"], info["ip_address"] = h.connections, "127.0.0.1"
	}
	if !h.lastErrorAt.IsZero() && h.url != "" {
		info["last_error_date"], info["last_error_message"] = h.lastErrorAt.Unix(), h.lastError
	}
	if c.bot.allowed != nil {
		info["allowed_updates"] = c.bot.allowed
	}
	return info, nil
}
