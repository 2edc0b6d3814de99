package telegram

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/chatgateway/gateway/chat"
)

const (
	maxErrorText = 300 // bytes of a platform's or a library's text that are kept
	minSecret    = 8   // a shorter piece would blot out innocent text
)

var userInfo = regexp.MustCompile(`//[^/\s"@]+@`)

// redactor takes credentials out of texts and errors.
type redactor struct {
	pairs *strings.Replacer
}

func newRedactor(token, webhookSecret chat.Secret) redactor {
	whole := token.Reveal()
	pieces := []string{whole, url.QueryEscape(whole), url.PathEscape(whole)}
	if _, half, ok := strings.Cut(whole, ":"); ok && len(half) >= minSecret {
		pieces = append(pieces, half)
	}
	if s := webhookSecret.Reveal(); len(s) >= minSecret {
		pieces = append(pieces, s)
	}
	var pairs []string
	for _, p := range pieces {
		if p != "" {
			pairs = append(pairs, p, token.String())
		}
	}
	return redactor{strings.NewReplacer(pairs...)}
}

// text gives s without credentials, cut to a length that fits a log line.
func (r redactor) text(s string) string {
	return clip(userInfo.ReplaceAllString(r.pairs.Replace(s), "//[redacted]@"))
}

// err gives a cause that may be shown. A *url.Error always holds the address,
// and so the token: only what it wraps is kept. The chain below survives if
// its text is innocent.
func (r redactor) err(err error) error {
	for {
		wrapped, ok := errors.AsType[*url.Error](err)
		if !ok {
			break
		}
		err = wrapped.Err
	}
	if err == nil {
		return errors.New("no cause given")
	}
	shown := r.text(err.Error())
	if shown == err.Error() {
		return err
	}
	return errors.New(shown)
}

func clip(s string) string {
	if len(s) <= maxErrorText {
		return s
	}
	cut := maxErrorText
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
