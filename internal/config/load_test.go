package config_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/internal/config"
)

func load(t *testing.T, o config.Options) *config.Config {
	t.Helper()
	if o.Getenv == nil {
		o.Getenv = noEnvironment
	}
	c, err := config.Load(o)
	if err != nil {
		t.Fatalf("Load() = %v, want no error", err)
	}
	return c
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLoad_findsTheFile(t *testing.T) {
	t.Chdir(t.TempDir())
	if c := load(t, config.Options{}); c.File != "" {
		t.Errorf("File = %q without a file, want none", c.File)
	}
	writeFile(t, "gateway.yaml", "log: {level: warn}")
	if c := load(t, config.Options{}); c.File != "gateway.yaml" || c.Log.Level != "warn" {
		t.Errorf("File = %q, level %q, want gateway.yaml and warn", c.File, c.Log.Level)
	}
	writeFile(t, "other.yaml", "log: {level: error}")
	if c := load(t, config.Options{Path: "other.yaml"}); c.File != "other.yaml" || c.Log.Level != "error" {
		t.Errorf("File = %q, level %q, want other.yaml and error", c.File, c.Log.Level)
	}
	if _, err := config.Load(config.Options{Path: "none.yaml"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load() of a missing file = %v, want ErrNotExist", err)
	}
	if _, err := config.Load(config.Options{Path: "."}); err == nil {
		t.Error("Load() of a folder = nil, want an error")
	}
	writeFile(t, "huge.yaml", strings.Repeat("#", 256<<10+1))
	if _, err := config.Load(config.Options{Path: "huge.yaml"}); err == nil {
		t.Error("Load() of a huge file = nil, want an error")
	}
}

func TestLoad_botFromEnvironment(t *testing.T) {
	t.Chdir(t.TempDir())
	token := environment(map[string]string{"TELEGRAM_BOT_TOKEN": "11:pa${X}a\n"})
	check := func(t *testing.T, c *config.Config) {
		t.Helper()
		var own struct {
			Token hidden `yaml:"token"`
		}
		b := c.Bots["telegram"]
		if b == nil || b.Platform != "telegram" || b.Handler != "default" || b.Limits.Profile != "standard" {
			t.Fatalf("Bots = %+v, want one for telegram", c.Bots)
		}
		if err := b.Decode(&own); err != nil || own.Token != "11:pa${X}a" {
			t.Errorf("Decode() = %q, %v, want the token", own.Token, err)
		}
		if err := b.Errorf("token", "is refused"); err.Error() != "bots.telegram.token: is refused" {
			t.Errorf("Errorf() = %v, want no place", err)
		}
		if err := c.RequireBots(); err != nil {
			t.Errorf("RequireBots() = %v, want nil", err)
		}
	}
	check(t, load(t, config.Options{Getenv: token}))
	writeFile(t, "gateway.yaml", "bots: {}")
	check(t, load(t, config.Options{Getenv: token}))

	if c := load(t, config.Options{Getenv: token, Platforms: []string{"discord"}}); len(c.Bots) != 0 {
		t.Errorf("Bots = %v on another platform, want none", c.Bots)
	}
	writeFile(t, "gateway.yaml", "bots: {support: {platform: telegram}}")
	if c := load(t, config.Options{Getenv: token}); len(c.Bots) != 1 || c.Bots["support"] == nil {
		t.Errorf("Bots = %v, want the file's alone", c.Bots)
	}
	for _, none := range []map[string]string{nil, {"TELEGRAM_BOT_TOKEN": ""}, {"TELEGRAM_BOT_TOKEN": " "}} {
		c := load(t, config.Options{Path: os.DevNull, Getenv: environment(none)})
		if err := c.RequireBots(); !errors.Is(err, config.ErrNoBots) {
			t.Errorf("RequireBots() with %v = %v, want ErrNoBots", none, err)
		}
	}
}

func TestLoad_layers(t *testing.T) {
	name := filepath.Join(t.TempDir(), "c.yaml")
	writeFile(t, name, "gateway: {data_dir: file, drain: {timeout_seconds: 1}}\nlog: {level: warn}\nhttp: {listen: \"file:1\"}\n")
	variables := environment(map[string]string{
		"GATEWAY_DATA_DIR": "~/env", "GATEWAY_DRAIN_TIMEOUT_SECONDS": "2.5", "GATEWAY_HTTP_LISTEN": "",
		"GATEWAY_LOG_LEVEL": "", "GATEWAY_LOG_FORMAT": "json", "GATEWAY_STORE_PATH": "/env.db",
	})
	o := config.Options{Path: name, Getenv: variables, HomeDir: "/home/ann", Flags: map[string]string{"log.format": "text", "http.listen": ":9"}}
	c := load(t, o)
	if c.Gateway.DataDir != "/home/ann/env" || c.Gateway.Drain.Timeout != 2500*time.Millisecond || c.Store.Path != "/env.db" {
		t.Errorf("Gateway = %+v, store %q, want the environment's", c.Gateway, c.Store.Path)
	}
	if c.Log.Format != "text" || c.HTTP.Listen != ":9" {
		t.Errorf("Log = %+v, listen %q, want the flags'", c.Log, c.HTTP.Listen)
	}
	if c.Log.Level != "warn" || c.Log.Slog() != slog.LevelWarn {
		t.Errorf("Level = %q, want the file's, since the variable is empty", c.Log.Level)
	}
	o.Flags = nil
	if c := load(t, o); c.HTTP.Listen != "" || c.Log.Format != "json" {
		t.Errorf("listen %q, format %q, want none and json, the environment's", c.HTTP.Listen, c.Log.Format)
	}
	o.Getenv = noEnvironment
	if c := load(t, o); c.HTTP.Listen != "file:1" || c.Gateway.DataDir != "file" || c.Log.Format != "auto" {
		t.Errorf("listen %q, data %q, want the file's; format %q, want the default", c.HTTP.Listen, c.Gateway.DataDir, c.Log.Format)
	}
}

func TestLoad_usesTheProcessEnvironment(t *testing.T) {
	t.Setenv("GATEWAY_LOG_LEVEL", "debug")
	t.Setenv("HOME", "/home/bob")
	c, err := config.Parse([]byte("gateway: {data_dir: ~}\nstore: {path: '~/x'}"), config.Options{})
	if err != nil || c.Log.Level != "debug" || c.Store.Path != "/home/bob/x" {
		t.Errorf("Parse() = %+v, %v, want the environment's level and home", c, err)
	}
}

func TestParse_wrongLayers(t *testing.T) {
	got := parseError(t, "http: {listen: 'a:1'}", config.Options{
		Getenv: environment(map[string]string{
			"GATEWAY_LOG_LEVEL": "wran", "GATEWAY_DRAIN_TIMEOUT_SECONDS": "-1", "GATEWAY_HTTP_LISTEN": "8080", "GATEWAY_LOG_FORMAT": "xml",
		}),
		Flags: map[string]string{"gateway.data_dir": "", "log.format": "x", "log.levle": "info", "delivery.max_attempts": "1"},
	})
	want := []string{
		"delivery.max_attempts: can't be set by a flag",
		"log.levle: can't be set by a flag; did you mean log.level?",
		"GATEWAY_DRAIN_TIMEOUT_SECONDS: must not be negative",
		"GATEWAY_LOG_LEVEL: must be debug, info, warn or error; did you mean warn?",
		"flag for log.format: must be auto, text or json",
		"GATEWAY_HTTP_LISTEN: must be an address with a port, such as 127.0.0.1:8080, or empty for off",
		"flag for gateway.data_dir: must name a folder",
	}
	if diff := cmp.Diff(want, strings.Split(got, "\n")); diff != "" {
		t.Errorf("Parse() (-want +got):\n%s", diff)
	}
}

func TestParse_expandsVariables(t *testing.T) {
	variables := map[string]string{
		"HOME": "/root", "X": "x", "EMPTY": "", "YAML": "a: b\nadmin: true", "NESTED": "${X}", "QUOTE": `"`, "TILDE": "~",
	}
	cases := []struct{ text, want, mistake string }{
		{text: "pa$$word$1x", want: "pa$$word$1x"},
		{text: "a${HOME}b", want: "a/rootb"},
		{text: "$${X}", want: "${X}"},
		{text: "$$${X}", want: "$${X}"},
		{text: "a$${X}b${X}c", want: "a${X}bxc"},
		{text: "$X $(X) $", want: "$X $(X) $"},
		{text: "'${X}'", want: "x"},
		{text: `"${X}${X}"`, want: "xx"},
		{text: "|\n      ${X}\n      y", want: "x\ny\n"},
		{text: "${YAML}", want: "a: b\nadmin: true"},
		{text: "${NESTED}", want: "${X}"},
		{text: "${QUOTE}", want: `"`},
		{text: "${TILDE}", want: "~"},
		{text: "${EMPTY}", want: ""},
		{text: "${EMPTY:-d}", want: "d"},
		{text: "${UNSET:-}", want: ""},
		{text: "${UNSET:-a b:c}", want: "a b:c"},
		{text: "${X:-d}", want: "x"},
		{text: "${UNSET}", mistake: "the environment variable UNSET is not set"},
		{text: "a ${X} ${UNSET_2}", mistake: "the environment variable UNSET_2 is not set"},
		{text: "${X", mistake: "${ must be ${NAME} or ${NAME:-default}; write $${ for the two characters themselves"},
		{text: "${}", mistake: "${ must be"},
		{text: "${1X}", mistake: "${ must be"},
		{text: "${X:?no}", mistake: "${ must be"},
		{text: "${X-d}", mistake: "${ must be"},
	}
	for _, c := range cases {
		t.Run(c.text, func(t *testing.T) {
			var got struct {
				Text string `yaml:"text"`
			}
			err := decodeBot(t, "text: "+c.text, config.Options{Getenv: environment(variables)}, &got)
			if c.mistake == "" {
				if err != nil || got.Text != c.want {
					t.Errorf("Decode() = %q, %v, want %q", got.Text, err, c.want)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), "bots.support.text: "+c.mistake) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Decode() = %v, want %q alone", err, c.mistake)
			}
		})
	}
}

func TestParse_warnings(t *testing.T) {
	c := parse(t, "gateway:\nbots:\nlog: {level: ~}\nhandlers: {own: {kind: echo}}\n")
	want := []*config.KeyError{
		{Path: "gateway", Line: 1, Column: 9, Msg: "has no value and is left out"},
		{Path: "bots", Line: 2, Column: 6, Msg: "has no value and is left out"},
		{Path: "log.level", Line: 3, Column: 14, Msg: "has no value and is left out"},
	}
	if diff := cmp.Diff(want, c.Warnings); diff != "" {
		t.Errorf("Warnings (-want +got):\n%s", diff)
	}
	c = parse(t, "bots: {a: {platform: x}, b: {platform: x, handler: own}}\nhandlers: {own: {kind: echo}}\n")
	if len(c.Warnings) != 1 || c.Warnings[0].Path != "bots.a.handler" {
		t.Errorf("Warnings = %v, want one about bots.a.handler", c.Warnings)
	}
}

func TestParse_anchors(t *testing.T) {
	c := parse(t, `
bots:
  a: &a {platform: telegram, limits: &l {burst_size: 3}}
  b: *a
  c: {<<: *a, platform: other}
  d: {platform: x, limits: {<<: [*l, {burst_size: 9, profile: preset}]}}
`)
	for name, want := range map[string]string{"a": "telegram", "b": "telegram", "c": "other", "d": "x"} {
		b := c.Bots[name]
		if b.Name != name || b.Platform != want || b.Limits.BurstSize == nil || *b.Limits.BurstSize != 3 {
			t.Errorf("Bots[%s] = %+v, want platform %s and burst 3", name, b, want)
		}
	}
	if got := c.Bots["d"].Limits.Profile; got != "preset" {
		t.Errorf("profile = %q, want the merged one", got)
	}
}

func TestParse_lineEndsOfWindows(t *testing.T) {
	c := parse(t, "log:\r\n  level: warn\r\ngateway:\r\n  rate_limit:\r\n    notice: |\r\n      a\r\n      b\r\n")
	if c.Log.Level != "warn" || c.Gateway.RateLimit.Notice != "a\nb\n" {
		t.Errorf("level %q, notice %q, want warn and two lines", c.Log.Level, c.Gateway.RateLimit.Notice)
	}
}

func TestParse_tabsInText(t *testing.T) {
	for text, want := range map[string]string{
		"| # a comment\n      \ta\n":        "\ta\n",
		">-\n      a\n      \tb\n":          "a\n\tb",
		"\"a\tb\"\t# a tab before comments": "a\tb",
	} {
		c := parse(t, "gateway:\n  rate_limit:\n    # x\n    notice: "+text+"\n")
		if got := c.Gateway.RateLimit.Notice; got != want {
			t.Errorf("notice of %q = %q, want %q", text, got, want)
		}
	}
}

func TestParse_listsNoMoreThanReadable(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		text.WriteString("x" + strings.Repeat("y", i%50) + strings.Repeat("z", i/50) + ": 1\n")
	}
	got := parseError(t, text.String(), config.Options{})
	if lines := strings.Split(got, "\n"); len(lines) != 101 || lines[100] != "and 900 more mistakes" {
		t.Errorf("Parse() lists %d lines, last %q", len(lines), lines[len(lines)-1])
	}
}

const shipped = "../../gateway.yaml"

func TestShippedFile_isTheDefault(t *testing.T) {
	c := load(t, config.Options{Path: shipped, Platforms: []string{"telegram"}, Kinds: []string{"echo"}})
	if diff := cmp.Diff(config.Default(), c, configs); diff != "" {
		t.Errorf("gateway.yaml differs from the defaults (-want +got):\n%s", diff)
	}
	if len(c.Warnings) > 0 {
		t.Errorf("Warnings = %v, want none", c.Warnings)
	}
}

func TestShippedFile_hasEveryKey(t *testing.T) {
	data, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(data, &values); err != nil {
		t.Fatal(err)
	}
	var example map[string]any
	if err := yaml.Unmarshal([]byte(exampleBots(data)), &example); err != nil {
		t.Fatal(err)
	}
	values["bots"] = example["bots"]
	keys := config.Keys()
	if len(keys) < 30 {
		t.Fatalf("Keys() = %v, want all keys", keys)
	}
	for _, key := range keys {
		if !hasKey(values, strings.Split(key, ".")) {
			t.Errorf("gateway.yaml lacks %s", key)
		}
	}
	for number, line := range strings.Split(string(data), "\n") {
		if strings.Contains(line, ": ") && !strings.Contains(line, "#") {
			t.Errorf("gateway.yaml: line %d has no comment: %s", number+1, line)
		}
	}
}

func hasKey(value any, keys []string) bool {
	if len(keys) == 0 {
		return true
	}
	m, _ := value.(map[string]any)
	for key, below := range m {
		if (keys[0] == "*" || keys[0] == key) && hasKey(below, keys[1:]) {
			return true
		}
	}
	return false
}

// exampleBots is the commented example of the shipped file with every comment sign
// in front of a key taken away.
func exampleBots(data []byte) string {
	block := regexp.MustCompile(`(?m)^# bots:\n(# .*\n)+`).FindString(string(data))
	block = regexp.MustCompile(`(?m)^# `).ReplaceAllString(block, "")
	return regexp.MustCompile(`(?m)^( +)# `).ReplaceAllString(block, "$1")
}

func TestShippedFile_exampleBotIsRight(t *testing.T) {
	data, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	variables := environment(map[string]string{"TELEGRAM_BOT_TOKEN": "1:abcdef", "TELEGRAM_WEBHOOK_SECRET": "hush"})
	c, err := config.Parse([]byte(exampleBots(data)), config.Options{Getenv: variables, HomeDir: "/home/ann", Platforms: []string{"telegram"}})
	if err != nil {
		t.Fatalf("Parse() of the example = %v", err)
	}
	want := []string{"token", "token_file", "api_base", "mode", "webhook_url", "webhook_secret"}
	if diff := cmp.Diff(want, c.Bots["support"].Keys()); diff != "" {
		t.Errorf("Keys() (-want +got):\n%s", diff)
	}
	if l := c.Bots["support"].Limits; l.MessagesPerSecond == nil || *l.MessagesPerSecond != 25 || *l.PerChannelDelay != 50*time.Millisecond {
		t.Errorf("Limits = %+v, want telegram's numbers", l)
	}
}
