package config

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
)

var validName = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// checker reports what is wrong between keys, at the key's place in the file.
type checker struct {
	root    *node
	origins map[string]string // what to name for a setting that is not from the file
	rep     *report
	o       Options
}

// check checks what decoding a single value can't.
func (k *checker) check(c *Config) {
	k.rateLimit(&c.Gateway.RateLimit)
	for _, name := range sortedKeys(c.Bots) {
		k.bot(c.Bots[name], c.Handlers)
	}
	for _, name := range sortedKeys(c.Handlers) {
		k.handler(c.Handlers[name])
	}
	k.defaultHandler(c)
	k.store(c.Store)
	k.listen(c.HTTP.Listen)
	if c.Gateway.DataDir == "" {
		k.fail(nil, "must name a folder", "", "gateway", "data_dir")
	}
}

// fail reports a mistake at the value of the keys; s, if not nil, knows better
// where its keys are.
func (k *checker) fail(s *Section, msg, hint string, keys ...string) {
	e := &KeyError{Msg: msg, Hint: hint}
	for _, key := range keys {
		e.Path = join(e.Path, key)
	}
	if origin, ok := k.origins[e.Path]; ok {
		e.Path = origin
		k.rep.fail(e)
		return
	}
	n := k.root.find(keys...)
	if n == nil && s != nil {
		n = s.node
	}
	if n != nil {
		e.Line, e.Column = n.line, n.column
	}
	k.rep.fail(e)
}

func (k *checker) name(section, name string) {
	if validName.MatchString(name) {
		return
	}
	e := &KeyError{Path: join(section, name), Msg: "a name must start with a letter a to z and go on with a-z, 0-9, _ and -"}
	if found, ok := k.root.find(section).lookup(name); ok {
		e.Line, e.Column = found.line, found.column
	}
	k.rep.fail(e)
}

// oneOfKnown reports a name that is missing or not among the known ones.
func (k *checker) oneOfKnown(s *Section, what, name string, known []string, keys ...string) {
	switch {
	case k.broken(keys...):
	case name == "":
		k.fail(s, "is missing: name the "+what, "", keys...)
	case len(known) > 0 && !slices.Contains(known, name):
		hint := didYouMean(name, known)
		k.fail(s, fmt.Sprintf("there is no %s %s; known: %s", what, shorten(name), anyOf(known)), hint, keys...)
	}
}

// broken tells whether a value was reported already.
func (k *checker) broken(keys ...string) bool {
	n := k.root.find(keys...)
	return n != nil && n.broken
}

func (k *checker) rateLimit(r *RateLimit) {
	policies := k.o.Policies
	if len(policies) > 0 && !slices.Contains(policies, SlidingWindow) {
		policies = append([]string{SlidingWindow}, policies...)
	}
	k.oneOfKnown(&r.Section, "policy", r.Policy, policies, "gateway", "rate_limit", "policy")
}

func (k *checker) bot(b *Bot, handlers map[string]*Handler) {
	k.name("bots", b.Name)
	k.oneOfKnown(&b.Section, "platform", b.Platform, k.o.Platforms, "bots", b.Name, "platform")
	if _, ok := handlers[b.Handler]; !ok && !k.broken("bots", b.Name, "handler") {
		hint := didYouMean(b.Handler, sortedKeys(handlers))
		k.fail(&b.Section, fmt.Sprintf("there is no handler %s under handlers:", shorten(b.Handler)), hint, "bots", b.Name, "handler")
	}
	if scope := b.Limits.Scope; scope != nil && *scope == "" {
		k.fail(&b.Section, "must not be empty", "", "bots", b.Name, "limits", "scope")
	}
}

func (k *checker) handler(h *Handler) {
	k.name("handlers", h.Name)
	k.oneOfKnown(&h.Section, "kind", h.Kind, k.o.Kinds, "handlers", h.Name, "kind")
	if h.Kind == echoKind {
		k.rep.join(h.Decode(&struct{}{}))
	}
}

// defaultHandler warns of a bot that would answer with an echo although handlers
// were configured: most likely its handler key was forgotten.
func (k *checker) defaultHandler(c *Config) {
	if c.Handlers[defaultHandler].node != nil || len(c.Handlers) == 1 {
		return
	}
	for _, name := range sortedKeys(c.Bots) {
		if b := c.Bots[name]; b.Handler == defaultHandler {
			k.rep.warn(&KeyError{
				Path: join(b.path, "handler"), Line: b.node.line, Column: b.node.column,
				Msg: "is not set, and handlers has no default: the bot answers with an echo",
			})
		}
	}
}

func (k *checker) store(s Store) {
	const driver = "sqlite"
	switch {
	case s.Driver == driver || k.broken("store", "driver"):
	case s.Driver == "postgres":
		k.fail(nil, "postgres comes in a later version: use sqlite", "", "store", "driver")
	default:
		k.fail(nil, "must be sqlite", didYouMean(s.Driver, []string{driver}), "store", "driver")
	}
}

func (k *checker) listen(address string) {
	if address == "" || k.broken("http", "listen") {
		return
	}
	_, port, err := net.SplitHostPort(address)
	if number, portErr := strconv.ParseUint(port, 10, 16); err == nil && portErr == nil && strconv.FormatUint(number, 10) == port {
		return
	}
	k.fail(nil, "must be an address with a port, such as 127.0.0.1:8080, or empty for off", "", "http", "listen")
}
