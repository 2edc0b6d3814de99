package telegram_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatgateway/gateway/adapters/telegram"
	"github.com/chatgateway/gateway/chat"
)

func TestConfig_setsDefaults(t *testing.T) {
	c := telegram.Config{Token: chat.NewSecret(token)}
	if err := c.Validate(); err != nil {
		t.Fatalf("Validate() = %v, want nil", err)
	}
	if c.APIBase != "https://api.telegram.org" || c.Mode != telegram.Polling || c.PollTimeout != 50*time.Second {
		t.Errorf("config = %+v, want the defaults", c)
	}
}

func TestConfig_readsTheTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := telegram.Config{TokenFile: path}
	for range 2 {
		if err := c.Validate(); err != nil || c.Token.Reveal() != token {
			t.Fatalf("Validate() = %v, want the token read", err)
		}
	}
	if err := os.WriteFile(path, []byte("not a "+tokenHalf), 0o600); err != nil {
		t.Fatal(err)
	}
	c = telegram.Config{TokenFile: path}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "token_file: ") || strings.Contains(err.Error(), tokenHalf) {
		t.Errorf("Validate() = %v, want an error that doesn't show what is in the file", err)
	}
}

func TestConfig_namesEachMistake(t *testing.T) {
	sum := sha256.Sum256([]byte(token))
	hook := func(secret string) telegram.Config {
		return telegram.Config{
			Token: chat.NewSecret(token), Mode: telegram.Webhook,
			WebhookURL: "https://gateway.example/hook", WebhookSecret: chat.NewSecret(secret),
		}
	}
	base := func(s string) telegram.Config { return telegram.Config{Token: chat.NewSecret(token), APIBase: s} }
	for _, c := range []struct {
		name string
		cfg  telegram.Config
		want []string // beginnings of lines; none means that it is fine
	}{
		{"nothing", telegram.Config{}, []string{"token: missing"}},
		{"a token with a blank", telegram.Config{Token: chat.NewSecret(token + " ")}, []string{"token: malformed"}},
		{"a token in quotes", telegram.Config{Token: chat.NewSecret(`"` + token + `"`)}, []string{"token: malformed"}},
		{"a token with a line break", telegram.Config{Token: chat.NewSecret(token + "\n")}, []string{"token: malformed"}},
		{"a token without its number", telegram.Config{Token: chat.NewSecret(tokenHalf)}, []string{"token: malformed"}},
		{"a token with a path in it", telegram.Config{Token: chat.NewSecret("1:a/../b")}, []string{"token: malformed"}},
		{"another server's token", telegram.Config{Token: chat.NewSecret("sampleToken"), APIBase: "http://localhost:9000"}, nil},
		{"another server's token with a path in it", telegram.Config{Token: chat.NewSecret("a/../b"), APIBase: "http://localhost:9000"}, []string{"token: malformed"}},
		{"two tokens", telegram.Config{Token: chat.NewSecret(token), TokenFile: "x"}, []string{"token_file: set either"}},
		{"no such file", telegram.Config{TokenFile: "/nonexistent/token"}, []string{"token_file: /nonexistent/token: no such file"}},
		{"a token as a file", telegram.Config{TokenFile: token}, []string{"token_file: holds a token, not a file's name; put it under token"}},
		{"a token as a file, with its path", telegram.Config{TokenFile: " ~/bot" + token}, []string{"token_file: holds a token"}},
		{"a token as a mode", telegram.Config{Token: chat.NewSecret(token), Mode: telegram.Mode(token)}, []string{"mode: "}},
		{"half a token as a mode", telegram.Config{Token: chat.NewSecret(token), Mode: tokenHalf}, []string{"mode: "}},
		{"no scheme", base("api.telegram.org"), []string{"api_base: is no address"}},
		{"another scheme", base("ftp://x"), []string{"api_base: is no address"}},
		{"a query", base("https://x/?a=b"), []string{"api_base: has a query"}},
		{"a password", base("https://user:" + tokenHalf + "@[::1"), []string{"api_base: is no address"}},
		{"plain http with a path and a slash", base("http://localhost:8081/tg/"), nil},
		{"an unknown mode", telegram.Config{Token: chat.NewSecret(token), Mode: "push"}, []string{`mode: "push"`}},
		{"a webhook without anything", telegram.Config{Token: chat.NewSecret(token), Mode: telegram.Webhook}, []string{"webhook_url: missing", "webhook_secret: missing"}},
		{"a webhook", hook(hookSecret), nil},
		{"a long secret", hook(strings.Repeat("x", 256)), nil},
		{"too long a secret", hook(strings.Repeat("x", 257)), []string{"webhook_secret: takes 1 to 256"}},
		{"a secret with other characters", hook("sécret"), []string{"webhook_secret: takes 1 to 256"}},
		{"the token as a secret", hook(strings.ReplaceAll(token, ":", "")), []string{"webhook_secret: is made from the token"}},
		{"half the token as a secret", hook(tokenHalf), []string{"webhook_secret: is made from the token"}},
		{"a piece of the token as a secret", hook(tokenHalf[:12]), []string{"webhook_secret: is made from the token"}},
		{"a secret around the token", hook("x" + tokenHalf), []string{"webhook_secret: is made from the token"}},
		{"a digest of the token as a secret", hook(strings.ToUpper(hex.EncodeToString(sum[:]))), []string{"webhook_secret: is made from the token"}},
		{"too long a poll", telegram.Config{Token: chat.NewSecret(token), PollTimeout: time.Minute}, []string{"poll_timeout: "}},
		{
			"all at once",
			telegram.Config{Token: chat.NewSecret("x y"), APIBase: "x", Mode: "push", PollTimeout: -1},
			[]string{"token: ", "api_base: ", "mode: ", "poll_timeout: "},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.cfg.Validate()
			if err == nil {
				if len(c.want) > 0 {
					t.Errorf("Validate() = nil, want %q", c.want)
				}
				return
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.want) {
				t.Fatalf("Validate() = %q, want %q", lines, c.want)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("mistake %d = %q, want %q", i, lines[i], want)
				}
			}
			if strings.Contains(err.Error(), tokenHalf[:12]) || strings.Contains(err.Error(), "x y") {
				t.Errorf("Validate() shows a credential: %q", err)
			}
		})
	}
}
