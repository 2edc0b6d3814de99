package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrNoBots means that the configuration names no bot and that no token was
// found in the environment, so that there is nothing to serve.
var ErrNoBots = errors.New("no bots: add one under bots: in gateway.yaml, or set TELEGRAM_BOT_TOKEN")

// maxMistakes bounds the list of mistakes: nobody reads on after so many.
const maxMistakes = 100

// KeyError is one mistake in the configuration. It never holds the value of a
// secret or of an environment variable.
type KeyError struct {
	Path   string // the key's full path, e.g. gateway.rate_limit.max_requests; the variable's name if the value came from the environment
	Line   int    // 1 for the first line; 0 if the value has no place in the file
	Column int    // in characters, from 1
	Msg    string // what is wrong
	Hint   string // what may have been meant; empty if there is no guess
}

// Error gives the mistake on one line: path, what is wrong, where, and a hint.
func (e *KeyError) Error() string {
	var b strings.Builder
	if e.Path != "" {
		b.WriteString(e.Path)
		b.WriteString(": ")
	}
	b.WriteString(e.Msg)
	if e.Line > 0 {
		fmt.Fprintf(&b, " (line %d, column %d)", e.Line, e.Column)
	}
	if e.Hint != "" {
		b.WriteString("; ")
		b.WriteString(e.Hint)
	}
	return b.String()
}

// report collects every mistake of one reading, so that all are listed at once.
type report struct {
	mistakes []error
	warn     func(*KeyError)
	lenient  bool // unknown keys are warnings
	seen     map[KeyError]bool
}

func newReport(lenient bool, warn func(*KeyError)) *report {
	return &report{lenient: lenient, warn: warn, seen: make(map[KeyError]bool)}
}

// fail records a mistake at a place. A second mistake at the same key and place
// is left out: it follows from the first.
func (r *report) fail(e *KeyError) {
	place := KeyError{Path: e.Path, Line: e.Line, Column: e.Column}
	if r.seen[place] {
		return
	}
	r.seen[place] = true
	r.mistakes = append(r.mistakes, e)
}

// failAt records a mistake in the value n of the key at path.
func (r *report) failAt(path string, n *node, format string, args ...any) {
	r.fail(&KeyError{Path: path, Line: n.line, Column: n.column, Msg: fmt.Sprintf(format, args...)})
}

// unknown records an unknown key: a mistake, or a warning when lenient.
func (r *report) unknown(e *KeyError) {
	if r.lenient {
		r.warn(e)
		return
	}
	r.fail(e)
}

// join records the mistakes in err, however they were joined or wrapped.
func (r *report) join(err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			r.join(e)
		}
		return
	}
	if e, ok := err.(*KeyError); ok { //nolint:errorlint // a wrapped one keeps its wrapping text
		r.fail(e)
		return
	}
	r.mistakes = append(r.mistakes, err)
}

// err gives all mistakes in the order of the file, one per line, or nil. What
// has no place in the file comes last.
func (r *report) err() error {
	list := slices.Clone(r.mistakes)
	slices.SortStableFunc(list, func(a, b error) int {
		la, ca := place(a)
		lb, cb := place(b)
		return cmp.Or(cmp.Compare(la, lb), cmp.Compare(ca, cb))
	})
	if more := len(list) - maxMistakes; more > 0 {
		list = append(list[:maxMistakes], fmt.Errorf("and %d more mistakes", more))
	}
	return errors.Join(list...)
}

func place(err error) (line, column int) {
	const nowhere = int(^uint(0) >> 1)
	if e, ok := errors.AsType[*KeyError](err); ok && e.Line > 0 {
		return e.Line, e.Column
	}
	return nowhere, 0
}
