package telegram

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrUnknownBot means that a request to the simulator named a bot that doesn't exist.
var ErrUnknownBot = errors.New("unknown bot")

// ErrFull means that one of the simulator's bounds is reached.
var ErrFull = errors.New("simulator is full")

// errClosed is the end of a wait on a closed server.
var errClosed = errors.New("simulator is closed")

// Server is a Bot API server and its control. Create it with [New]; the zero value isn't usable. Without a running
// [Server.Run] it does everything but deliver webhooks.
type Server struct {
	opts      Options
	methods   map[string]method
	tokens    *regexp.Regexp
	done      chan struct{} // closed by Close
	kick      chan struct{} // wakes Run
	running   sync.WaitGroup
	ownClient bool // Client was made here, so its connections are closed here

	mu        sync.Mutex
	limits    Limits
	skew      time.Duration // how far the clock was moved
	bots      map[string]*bot
	botOrder  []*bot
	faults    []*Fault
	nextFault int64
	calls     ring[Call]
	perMethod map[string]int
	perStatus map[int]int
	messages  ring[*Message]
	files     fileStore
	changed   chan struct{} // closed at the next change; nil while nobody waits
	nextQuery int64
	closed    bool
}

// New returns a server. It starts no goroutine.
func New(o Options) *Server {
	own := o.Client == nil
	o = o.withDefaults()
	s := &Server{
		ownClient: own,
		opts:      o,
		tokens:    regexp.MustCompile(`^\d{1,15}:[\w-]{3,}$`),
		done:      make(chan struct{}),
		kick:      make(chan struct{}, 1),
		limits:    *o.Limits,
		bots:      map[string]*bot{},
	}
	s.methods = methodTable()
	s.resetLocked()
	return s
}

// Token returns the token of the default bot.
func (s *Server) Token() string {
	if len(s.opts.Tokens) > 0 {
		return s.opts.Tokens[0]
	}
	return DefaultToken
}

// Close ends every request that waits, stops [Server.Run] and waits for it. It may be called more than once.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	s.mu.Unlock()
	s.running.Wait()
	if s.ownClient {
		s.opts.Client.CloseIdleConnections()
	}
}

// Reset forgets all messages, calls, faults, chats and clock jumps, and all bots but those of [Options.Tokens]. Waiting
// polls end empty.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.botOrder {
		b.wakePoll(nil)
	}
	s.resetLocked()
	s.changedLocked(Event{Kind: "reset"})
}

func (s *Server) resetLocked() {
	s.limits, s.skew = *s.opts.Limits, 0
	s.bots, s.botOrder, s.faults = map[string]*bot{}, nil, nil
	s.calls, s.messages = ring[Call]{size: s.opts.Keep}, ring[*Message]{size: s.opts.Keep}
	s.perMethod, s.perStatus = map[string]int{}, map[int]int{}
	s.files = fileStore{}
	for _, token := range s.opts.Tokens {
		s.addBot(token, "")
	}
}

// Now returns the simulator's clock, jumps included.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

func (s *Server) now() time.Time { return s.opts.Now().Add(s.skew) }

// Jump moves the clock for limits, dates and expiry by d, which may be negative. Timers that already run don't notice.
func (s *Server) Jump(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew += d
	s.changedLocked()
}

// Limits returns the limits in force.
func (s *Server) Limits() Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits
}

// SetLimits changes the limits for all bots at once; what was already counted stays counted.
func (s *Server) SetLimits(l Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = l
}

// Register makes a bot that tests address by its token; an empty token or username gets a generated one. Registering a
// known token again changes its username.
func (s *Server) Register(token, username string) (Bot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token == "" {
		token = fmt.Sprintf("%d:simulator-%d", 200_000_000+len(s.botOrder), len(s.botOrder))
	}
	if !s.tokens.MatchString(token) {
		return Bot{}, fmt.Errorf("token must look like 123456:abc_DEF-123: %w", ErrUnknownBot)
	}
	b := s.bots[token]
	if b == nil {
		if b = s.addBot(token, username); b == nil {
			return Bot{}, fmt.Errorf("register bot: %w", ErrFull)
		}
	}
	if username != "" {
		b.username = username
	}
	return b.public(), nil
}

// Bots lists the bots in the order in which they first appeared.
func (s *Server) Bots() []Bot {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Bot, 0, len(s.botOrder))
	for _, b := range s.botOrder {
		list = append(list, b.public())
	}
	return list
}

func (s *Server) addBot(token, username string) *bot {
	if len(s.botOrder) >= maxBots {
		return nil
	}
	b := newBot(token, username, s.now())
	b.nextUpdate = s.opts.FirstUpdateID
	if b.nextUpdate <= 0 {
		b.nextUpdate = max(1, s.now().Unix())
	}
	s.bots[token] = b
	s.botOrder = append(s.botOrder, b)
	s.changedLocked(Event{Kind: "bot", Bot: b.id})
	return b
}

// findBot finds a bot by token, id or username; an empty name means the default bot.
func (s *Server) findBot(name string) (*bot, error) {
	if name == "" {
		if len(s.botOrder) > 0 {
			return s.botOrder[0], nil
		}
		return s.addBot(s.Token(), ""), nil
	}
	if b := s.bots[name]; b != nil {
		return b, nil
	}
	i := slices.IndexFunc(s.botOrder, func(b *bot) bool {
		return strings.EqualFold(b.username, strings.TrimPrefix(name, "@")) || strconv.FormatInt(b.id, 10) == name
	})
	if i >= 0 {
		return s.botOrder[i], nil
	}
	if s.tokens.MatchString(name) && !s.opts.Strict {
		if b := s.addBot(name, ""); b != nil {
			return b, nil
		}
	}
	return nil, ErrUnknownBot
}

// login finds the bot of a request's token, or makes it.
func (s *Server) login(token string) (*bot, *apiError) {
	if !s.tokens.MatchString(token) {
		return nil, refuse(http.StatusNotFound, "")
	}
	if b := s.bots[token]; b != nil {
		return b, nil
	}
	if s.opts.Strict {
		return nil, refuse(http.StatusUnauthorized, "")
	}
	if b := s.addBot(token, ""); b != nil {
		return b, nil
	}
	return nil, refuse(http.StatusInternalServerError, "too many bots")
}

// changedLocked tells those who wait in Wait, and the observer, that something happened.
func (s *Server) changedLocked(events ...Event) {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	for _, e := range events {
		s.opts.Observe(e)
	}
}

func (s *Server) watch() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// Wait returns nil once cond holds. It asks again after every change of the simulator, so cond should be cheap; it may
// call the server's methods. The error is ctx's, or says that the server was closed.
func (s *Server) Wait(ctx context.Context, cond func() bool) error {
	for {
		changed := s.watch()
		if cond() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the simulator: %w", ctx.Err())
		case <-s.done:
			return errClosed
		}
	}
}

// WaitMessages waits until the bots have sent at least n messages to a chat (0: to all chats) and returns them.
func (s *Server) WaitMessages(ctx context.Context, chatID int64, n int) ([]Message, error) {
	err := s.Wait(ctx, func() bool { return s.sentTo(chatID) >= n })
	return s.Messages(chatID), err
}

// pause waits for d and reports whether it passed before ctx ended or the server was closed.
func (s *Server) pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.done:
	}
	return false
}
