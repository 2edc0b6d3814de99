package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/chatgateway/gateway/internal/config"
)

// environment makes a Getenv of a fixed set of variables.
func environment(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	}
}

var noEnvironment = environment(nil)

// configs compares two configurations by their decoded values.
var configs = cmp.Options{
	cmpopts.IgnoreFields(config.Config{}, "File", "Warnings"),
	cmpopts.IgnoreTypes(config.Section{}),
	cmpopts.IgnoreUnexported(config.Config{}),
}

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(text), config.Options{Getenv: noEnvironment, HomeDir: "/home/ann"})
	if err != nil {
		t.Fatalf("Parse() = %v, want no error", err)
	}
	return c
}

func parseError(t *testing.T, text string, o config.Options) string {
	t.Helper()
	if o.Getenv == nil {
		o.Getenv = noEnvironment
	}
	c, err := config.Parse([]byte(text), o)
	if err == nil {
		t.Fatalf("Parse(%q) = nil, want an error", text)
	}
	if c != nil {
		t.Errorf("Parse(%q) gave a configuration with its error", text)
	}
	return err.Error()
}

func TestParse_emptyIsDefault(t *testing.T) {
	for _, text := range []string{"", "\uFEFF", "\n\n", "# nothing\n", "---\n", "{}\n", "---\n# x\n...\n"} {
		if diff := cmp.Diff(config.Default(), parse(t, text), configs); diff != "" {
			t.Errorf("Parse(%q) differs from the default (-want +got):\n%s", text, diff)
		}
	}
}

func TestParse_everyKey(t *testing.T) {
	got := parse(t, `
gateway:
  data_dir: ~/gw
  rate_limit: {max_requests: 10, window_seconds: 5m, lockout_seconds: 0.5, algorithm: sliding_log, scope: chat, on_error: allow, notice: ""}
  inbound_retention: 1h
  drain: {timeout_seconds: 0}
  admission: {max_concurrent: 8}
bots:
  support:
    platform: telegram
    handler: mine
    limits: {profile: preset, messages_per_second: 0.5, burst_size: 1, per_channel_delay: 0, scope: shared}
handlers:
  mine: {kind: echo}
delivery: {max_attempts: 1, dead_letter_min_age: 0, on_uncertain: hold, send_timeout: "300ms", max_pending: 1_000, retention: 2, dead_retention: 3h}
dead_targets: {ttl: 1h30m, probe_every: 60, max: 5}
store: {driver: sqlite, path: ~/x.db}
http: {listen: ""}
log: {level: debug, format: json}
`)
	rate, burst, delay, scope := 0.5, 1, time.Duration(0), "shared"
	want := config.Default()
	want.Gateway = config.Gateway{
		DataDir: "/home/ann/gw",
		RateLimit: config.RateLimit{
			Policy: config.SlidingWindow, MaxRequests: 10, Window: 5 * time.Minute, Lockout: 500 * time.Millisecond,
			Algorithm: "sliding_log", Scope: "chat", OnError: "allow",
		},
		InboundRetention: time.Hour,
		Admission:        config.Admission{MaxConcurrent: 8},
	}
	want.Bots["support"] = &config.Bot{Name: "support", Platform: "telegram", Handler: "mine", Limits: config.Limits{
		Profile: "preset", MessagesPerSecond: &rate, BurstSize: &burst, PerChannelDelay: &delay, Scope: &scope,
	}}
	want.Handlers["mine"] = &config.Handler{Name: "mine", Kind: "echo"}
	want.Delivery = config.Delivery{
		MaxAttempts: 1, OnUncertain: "hold", SendTimeout: 300 * time.Millisecond, MaxPending: 1000,
		Retention: 2 * time.Second, DeadRetention: 3 * time.Hour,
	}
	want.DeadTargets = config.DeadTargets{TTL: 90 * time.Minute, ProbeEvery: time.Minute, Max: 5}
	want.Store.Path = "/home/ann/x.db"
	want.HTTP.Listen = ""
	want.Log = config.Log{Level: "debug", Format: "json"}
	if diff := cmp.Diff(want, got, configs); diff != "" {
		t.Errorf("Parse() (-want +got):\n%s", diff)
	}
}

// mistakes are wrong files, with everything that the error must say.
var mistakes = []struct {
	name, text string
	want       []string
}{
	{
		"a misspelt key", "gateway:\n  data_dir: x\n  rate_limit:\n    requsts: 60\n",
		[]string{"gateway.rate_limit.requsts: unknown key (line 4, column 5); did you mean max_requests?"},
	},
	{
		"a misspelt key in braces", "gateway: {rate_limit: {requsts: 60}}",
		[]string{"gateway.rate_limit.requsts: unknown key (line 1, column 24); did you mean max_requests?"},
	},
	{
		"a key on the wrong level", "gateway:\n  max_requests: 60\n",
		[]string{"gateway.max_requests: unknown key (line 2, column 3); did you mean gateway.rate_limit.max_requests?"},
	},
	{
		"an entry that is not indented", "bots:\nsupport:\n  platform: telegram\n",
		[]string{"support: unknown key (line 2, column 1); indent it if it belongs to bots"},
	},
	{
		"case matters", "Log: {level: info}\n",
		[]string{"Log: unknown key (line 1, column 1); did you mean log?"},
	},
	{
		"a key that comes later", "redis: {url: x}\ngateway: {sessions: {}}\nidentities: []\n",
		[]string{"redis: unknown key", "gateway.sessions: unknown key", "identities: unknown key"},
	},
	{
		"a duplicate key, and more", "log: {level: info}\nhttp: {}\nlog: {level: debug}\nhtttp: {}\n",
		[]string{"log: the key is given twice (line 3, column 1)", "htttp: unknown key (line 4, column 1); did you mean http?"},
	},
	{
		"a duplicate key that is written differently", "log: {level: info, \"level\": debug}\n",
		[]string{"log.level: the key is given twice (line 1, column 20)"},
	},
	{
		"two documents", "log: {level: info}\n---\nhttp: {listen: \"\"}\n",
		[]string{"a second document (---) is not allowed: use one file with one document (line 2, column 1)"},
	},
	{
		"a tab", "gateway:\n\tdata_dir: x\n",
		[]string{"a tab is used for indentation: YAML wants spaces (line 2, column 1)"},
	},
	{
		"a tab after spaces", "gateway:\n  \tdata_dir: x\n",
		[]string{"a tab is used for indentation: YAML wants spaces (line 2, column 3)"},
	},
	{"an open brace", "log: {level: info\n", []string{"not valid YAML: ", "(line 1, column "}},
	{"an open quote", "log:\n  level: 'info\n", []string{"not valid YAML: ", "(line 2, column "}},
	{"wrong indentation", "log:\n  level: info\n    format: auto\n", []string{"not valid YAML: ", "(line 2, column "}},
	{"an unquoted variable in braces", "http: {listen: ${X}}\n", []string{"line 1", `inside { } and [ ] write "${NAME}" with quotes`}},
	{"not a mapping", "- a\n- b\n", []string{"the file must hold keys and values", "line 1, column 1"}},
	{"a word", "hello\n", []string{"the file must hold keys and values"}},
	{"UTF-16", "\xff\xfea\x00", []string{"the file is UTF-16"}},
	{"not UTF-8", "log:\n  level: \xff\n", []string{"the line is not valid UTF-8 (line 2, column 1)"}},
	{"a control character", "log:\n  level: \x00\n", []string{"control characters are not allowed (line 2, column 10)"}},
	{"a tag", "log: !!map {level: info}\n", []string{"tags are not supported (line 1, column 6)"}},
	{"an unknown anchor", "log: *x\n", []string{"there is no such anchor before this alias"}},
	{"merging a number", "log: {<<: 1}\n", []string{"<< must name a mapping"}},
	{"deep nesting in braces", strings.Repeat("[", 20_000), []string{"nested too deeply"}},
	{"deep nesting in dashes", "a: \n" + strings.Repeat("- ", 20_000), []string{"nested too deeply"}},
	{"deep nesting by indentation", nested(80), []string{"nested too deeply"}},
	{"aliases that multiply", laughs(), []string{"too many values"}},
	{"a handler's name with a line end", "handlers: {\"a\\nb\": {kind: echo}}\nbots: {x: {platform: y, handler: \"a\\nB\"}}\n", []string{"bots.x.handler: there is no handler \"a\\nB\" under handlers: (line 2, column 34); did you mean \"a\\nb\"?", "handlers.\"a\\nb\": a name must start"}},
	{"thousands of keys", strings.Repeat("a: 1\n", 30_000), []string{"too many values"}},
	{"thousands of blank lines", "log:\n  level: |" + strings.Repeat("\n", 10_000), []string{"too many blank lines (line 503, column 1)"}},
	{"a huge file", strings.Repeat("# 0123456789\n", 100_000), []string{"the file has 1300000 bytes"}},
	{
		"a list for keys", "log: [info]\nbots: [a]\nhttp: on\n",
		[]string{
			"log: must be keys and values, not a list (line 1, column 6)", "bots: must be keys and values, not a list",
			"http: must be keys and values, not a single value",
		},
	},
	{"keys for a value", "log: {level: {a: 1}}\n", []string{"log.level: must be a single value, not keys and values (line 1, column 14)"}},
	{
		"wrong words", "log: {level: inof, format: xml}\ndelivery: {on_uncertain: drop}\n",
		[]string{
			`log.level: must be debug, info, warn or error, not "inof" (line 1, column 14); did you mean info?`,
			`log.format: must be auto, text or json, not "xml"`,
			`delivery.on_uncertain: must be resend, label or hold, not "drop"`,
		},
	},
	{
		"wrong limits", "gateway: {rate_limit: {max_requests: -1, window_seconds: 0, lockout_seconds: -1, algorithm: leaky, scope: all, on_error: x}}",
		[]string{
			"gateway.rate_limit.max_requests: must be 0 or more (line 1, column 38)", "gateway.rate_limit.window_seconds: must be more than 0",
			`gateway.rate_limit.lockout_seconds: must not be negative, not "-1"`, "gateway.rate_limit.algorithm: must be window or sliding_log",
			"gateway.rate_limit.scope: must be bot, chat, platform or gateway", "gateway.rate_limit.on_error: must be deny or allow",
		},
	},
	{
		"numbers below the least", "delivery: {max_attempts: 0, send_timeout: 0, max_pending: 0}\ndead_targets: {max: 0}\ngateway: {admission: {max_concurrent: -1}}\n",
		[]string{
			"delivery.max_attempts: must be 1 or more", "delivery.send_timeout: must be more than 0", "delivery.max_pending: must be 1 or more",
			"dead_targets.max: must be 1 or more", "gateway.admission.max_concurrent: must be 0 or more",
		},
	},
	{"an empty policy", "gateway: {rate_limit: {policy: \"\"}}\n", []string{"gateway.rate_limit.policy: is missing: name the policy"}},
	{"an empty folder", "gateway: {data_dir: \"\"}\n", []string{"gateway.data_dir: must name a folder (line 1, column 21)"}},
	{"postgres", "store:\n  driver: postgres\n", []string{"store.driver: postgres comes in a later version: use sqlite (line 2, column 11)"}},
	{"another driver", "store: {driver: sqlit}\n", []string{"store.driver: must be sqlite (line 1, column 17); did you mean sqlite?"}},
	{"a port alone", "http: {listen: 8080}\n", []string{"http.listen: must be an address with a port, such as 127.0.0.1:8080, or empty for off"}},
	{"a port that is none", "http: {listen: \"localhost:99999\"}\n", []string{"http.listen: must be an address with a port"}},
	{"a boolean for text", "http: {listen: true}\n", []string{"http.listen: must be text: put it in quotes"}},
	{
		"a bot without a platform", "bots:\n  a: {}\n  b:\n  c: {platform: x, handler: defalt}\n  D: {platform: x}\n",
		[]string{
			"bots.a.platform: is missing: name the platform (line 2, column 6)", "bots.b.platform: is missing: name the platform (line 3, column",
			`bots.c.handler: there is no handler "defalt" under handlers: (line 4, column 29); did you mean default?`,
			"bots.D: a name must start with a letter a to z",
		},
	},
	{
		"wrong outbound limits", "bots:\n  a:\n    platform: x\n    limits: {profile: fast, messages_per_second: 0, burst_size: 0, per_channel_delay: -1, scope: \"\", burst: 1}\n",
		[]string{
			"bots.a.limits.profile: must be preset, standard or platform", "bots.a.limits.messages_per_second: must be more than 0",
			"bots.a.limits.burst_size: must be 1 or more", "bots.a.limits.per_channel_delay: must not be negative",
			"bots.a.limits.scope: must not be empty", "bots.a.limits.burst: unknown key (line 4, column 102); did you mean burst_size?",
		},
	},
	{
		"handlers", "handlers:\n  a: {}\n  B: {kind: echo}\n  c: {kind: echo, prefix: x}\n",
		[]string{"handlers.a.kind: is missing: name the kind", "handlers.B: a name must start", "handlers.c.prefix: unknown key (line 4, column 19)"},
	},
}

func nested(levels int) string {
	var b strings.Builder
	for i := range levels {
		fmt.Fprintf(&b, "%sa:\n", strings.Repeat(" ", i))
	}
	return b.String()
}

func laughs() string {
	b := strings.Builder{}
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		alias := strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10)
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(alias, ", "))
	}
	return b.String()
}

func TestParse_listsMistakes(t *testing.T) {
	for _, c := range mistakes {
		t.Run(c.name, func(t *testing.T) {
			got := parseError(t, c.text, config.Options{})
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("Parse() = %s\nwant it to contain %q", got, want)
				}
			}
			if lines := strings.Count(got, "\n") + 1; lines != len(c.want) && strings.Contains(c.want[0], ": must") {
				t.Errorf("Parse() lists %d mistakes, want %d:\n%s", lines, len(c.want), got)
			}
		})
	}
}
