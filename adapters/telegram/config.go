package telegram

import (
	"crypto/md5"  //nolint:gosec // only to recognise a secret that was made from the token
	"crypto/sha1" //nolint:gosec // as above
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/chatgateway/gateway/chat"
)

// Defaults of [Config].
const (
	DefaultAPIBase     = "https://api.telegram.org"
	DefaultPollTimeout = 50 * time.Second // the server clips a longer one (Bot API, getUpdates; read 2026-11-30)
)

const longestMode = 16 // bytes of an unknown mode that are quoted; a token is longer

// Mode says how updates come in.
type Mode string

// The modes of receiving.
const (
	Polling Mode = "polling"
	Webhook Mode = "webhook"
)

// Config is what stands under a bot of this platform in the configuration.
// Call Validate before use.
type Config struct {
	Token         chat.Secret   `yaml:"token"`
	TokenFile     string        `yaml:"token_file"` // instead of token
	APIBase       string        `yaml:"api_base"`   // any Bot API server, with a path in front if need be
	Mode          Mode          `yaml:"mode"`
	WebhookURL    string        `yaml:"webhook_url"`    // where Telegram posts updates to
	WebhookSecret chat.Secret   `yaml:"webhook_secret"` // what Telegram sends along, to prove itself
	PollTimeout   time.Duration `yaml:"poll_timeout"`

	fromFile bool // Token was read from TokenFile
}

var (
	tokenForm  = regexp.MustCompile(`^[0-9]+:[A-Za-z0-9_-]+$`)
	anyToken   = regexp.MustCompile(`^[A-Za-z0-9:_-]+$`)         // whatever leaves the URL as it is
	tokenSlip  = regexp.MustCompile(`[0-9]+:[A-Za-z0-9_-]{20,}`) // a token where it does not belong
	secretForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)    // Bot API, setWebhook; read 2026-11-30
)

// Validate sets what is left out to its default, reads the token file, and
// lists all mistakes, each with its key in front. It prints no credential, and
// may be called again.
func (c *Config) Validate() error {
	errs := []error{c.validateToken(), c.validateBase(), c.validateMode()}
	if c.PollTimeout == 0 {
		c.PollTimeout = DefaultPollTimeout
	}
	if t := c.PollTimeout; t < time.Second || t > DefaultPollTimeout {
		errs = append(errs, fmt.Errorf("poll_timeout: %v is not between 1s and %v", t, DefaultPollTimeout))
	}
	return errors.Join(errs...)
}

func (c *Config) validateToken() error {
	switch {
	case c.fromFile:
		return nil
	case c.TokenFile != "" && !c.Token.Empty():
		return errors.New("token_file: set either token or token_file, not both")
	case c.TokenFile == "" && c.Token.Empty():
		return errors.New("token: missing; @BotFather gives one")
	case c.TokenFile == "":
		if !c.tokenFits(c.Token.Reveal()) {
			return errors.New("token: malformed; it looks like 123456:ABC-DEF, without blanks or quotes")
		}
		return nil
	case tokenSlip.MatchString(c.TokenFile):
		return errors.New("token_file: holds a token, not a file's name; put it under token")
	}
	token, err := c.readToken()
	if err != nil {
		return fmt.Errorf("token_file: %w", err)
	}
	c.Token, c.fromFile = chat.NewSecret(token), true
	return nil
}

// tokenFits holds a token for Telegram itself to its form. Other servers, those
// for tests above all, take what they like.
func (c *Config) tokenFits(token string) bool {
	if c.APIBase == "" || c.APIBase == DefaultAPIBase {
		return tokenForm.MatchString(token)
	}
	return anyToken.MatchString(token)
}

func (c *Config) readToken() (string, error) {
	path := c.TokenFile
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		path = filepath.Join(home, rest)
	}
	b, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		return "", fmt.Errorf("%s: %w", path, pathErr.Err)
	}
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(strings.TrimPrefix(string(b), "\uFEFF")) // some editors write a byte order mark
	if !c.tokenFits(token) {
		return "", fmt.Errorf("%s: holds no token; it looks like 123456:ABC-DEF, alone on its line", path)
	}
	return token, nil
}

func (c *Config) validateBase() error {
	if c.APIBase == "" {
		c.APIBase = DefaultAPIBase
	}
	u, err := webURL(c.APIBase)
	if err != nil {
		return fmt.Errorf("api_base: %w", err)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return errors.New("api_base: has a query or a fragment; it is the address in front of /bot<token>")
	}
	return nil
}

func (c *Config) validateMode() error {
	switch c.Mode {
	case "", Polling:
		c.Mode = Polling
		return nil
	case Webhook:
		return errors.Join(c.validateWebhookURL(), c.validateSecret())
	}
	if len(c.Mode) > longestMode {
		return errors.New("mode: is neither polling nor webhook") // it may be a token: it is not quoted
	}
	return fmt.Errorf("mode: %q is neither polling nor webhook", string(c.Mode))
}

func (c *Config) validateWebhookURL() error {
	if c.WebhookURL == "" {
		return errors.New("webhook_url: missing; webhook mode needs the address that Telegram posts to")
	}
	if _, err := webURL(c.WebhookURL); err != nil {
		return fmt.Errorf("webhook_url: %w", err)
	}
	return nil
}

func (c *Config) validateSecret() error {
	secret := c.WebhookSecret.Reveal()
	switch {
	case secret == "":
		return errors.New("webhook_secret: missing; without it anybody could post updates")
	case !secretForm.MatchString(secret):
		return errors.New("webhook_secret: takes 1 to 256 of the characters A-Z a-z 0-9 _ -")
	case derived(secret, c.Token.Reveal()):
		return errors.New("webhook_secret: is made from the token; choose a random one of its own")
	}
	return nil
}

// webURL never quotes its argument, which may hold a password.
func webURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("is no address that begins with http:// or https://")
	}
	return u, nil
}

// derived reports whether secret gives the token away, or follows from it.
func derived(secret, token string) bool {
	if token == "" {
		return false
	}
	_, half, _ := strings.Cut(token, ":")
	joined := strings.ReplaceAll(token, ":", "")
	lower := strings.ToLower(secret)
	for _, part := range []string{token, half, joined} {
		if part == "" {
			continue
		}
		long, short := sha256.Sum256([]byte(part)), sha1.Sum([]byte(part)) //nolint:gosec // compared, not relied on
		old := md5.Sum([]byte(part))                                       //nolint:gosec // as above
		for _, sum := range [][]byte{long[:], short[:], old[:]} {
			if lower == hex.EncodeToString(sum) {
				return true
			}
		}
		if secret == part || (len(part) >= 8 && strings.Contains(secret, part)) ||
			(len(secret) >= 8 && strings.Contains(part, secret)) {
			return true
		}
	}
	return false
}
