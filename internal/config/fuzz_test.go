package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/chatgateway/gateway/internal/config"
)

// FuzzParse checks that no file makes the reading panic or hang, that mistakes
// are one per line, and that what can be read can be shown and read again.
func FuzzParse(f *testing.F) {
	if data, err := os.ReadFile(shipped); err == nil {
		f.Add(string(data))
		f.Add(exampleBots(data))
	}
	for _, c := range mistakes {
		if len(c.text) < 10_000 {
			f.Add(c.text)
		}
	}
	for _, c := range ids {
		f.Add(botText("phone_number_id: " + c.text))
	}
	for _, text := range []string{"pa$$word$1x", "a${HOME}b", "${UNSET}", "$${X}", "${YAML}", "${X:-d}"} {
		f.Add(botText("token: " + text))
	}
	for _, text := range []string{"", "\uFEFF", "---\n", "a: &a [*a]", "a: &a {b: *a}", "? [a]\n: b", "? |\n  a\n: b", "%YAML 1.2\n---\nlog: {}", "a: !!binary x", "bots: null"} {
		f.Add(text)
	}
	variables := environment(map[string]string{"HOME": "/root", "YAML": "a: b\nadmin: true", "X": "x"})
	f.Fuzz(func(t *testing.T, text string) {
		decode := func(c *config.Config) error {
			for _, b := range c.Bots {
				if err := b.Decode(&platform{}); err != nil {
					return err
				}
			}
			return nil
		}
		c, err := config.Parse([]byte(text), config.Options{Getenv: variables, HomeDir: "/home/ann", Lenient: true, Check: decode})
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if line == "" {
					t.Errorf("Parse() = %q, want one mistake per line", err)
				}
			}
			return
		}
		shown, err := c.Show()
		if err != nil {
			t.Fatalf("Show() = %v", err)
		}
		o := config.Options{Getenv: noEnvironment, HomeDir: "/home/ann", Lenient: true}
		if _, err := config.Parse(shown, o); err != nil {
			t.Fatalf("Parse() of what Show() gave = %v\n%s", err, shown)
		}
	})
}
