package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/internal/config"
)

func show(t *testing.T, c *config.Config) string {
	t.Helper()
	text, err := c.Show()
	if err != nil {
		t.Fatalf("Show() = %v", err)
	}
	return string(text)
}

func TestConfig_Show_default(t *testing.T) {
	const want = `gateway:
  data_dir: ./data
  rate_limit:
    policy: sliding_window
    max_requests: 0
    window_seconds: 60
    lockout_seconds: 0
    algorithm: window
    scope: bot
    on_error: deny
    notice: "Too many messages. Please try again in {retry_after}."
  inbound_retention: 168h
  drain:
    timeout_seconds: 15
  admission:
    max_concurrent: 0
bots: {}
handlers:
  default:
    kind: echo
delivery:
  max_attempts: 5
  dead_letter_min_age: 6h
  on_uncertain: resend
  send_timeout: 30s
  max_pending: 1000000
  retention: 168h
  dead_retention: 720h
dead_targets:
  ttl: 720h
  probe_every: 1h
  max: 10000
store:
  driver: sqlite
  path: ""
http:
  listen: "127.0.0.1:8080"
log:
  level: info
  format: auto
`
	if diff := cmp.Diff(want, show(t, config.Default())); diff != "" {
		t.Errorf("Show() (-want +got):\n%s", diff)
	}
}

func TestConfig_Show_redacts(t *testing.T) {
	text := botText(`token: s3cret
app_token: ${T}
apiKey: s3cret
secrets: [s3cret]
signing_secret: {a: s3cret}
headers: {Authorization: Bearer s3cret, Accept: text}
password: s3cret
named: before ${MY_TOKEN} after
listed: [x, "${MY_TOKEN}"]
proxy: http://ann:s3cret@proxy:1/x
proxies: [{url: "socks5://ann:s3cret@proxy:1"}]
token_file: ~/token
number: 0123
other: ${PLAIN}
empty_token: ""
no_token:
limits: {messages_per_second: 0.5, per_channel_delay: 0.05}
`) + "gateway: {rate_limit: {policy: tenant, plan_secret: s3cret, plan: gold, notice: '${MY_TOKEN}'}}\n"
	variables := environment(map[string]string{"T": "s3cret", "MY_TOKEN": "s3cret", "PLAIN": "yes ${X}", "GATEWAY_LOG_LEVEL": "warn"})
	c, err := config.Parse([]byte(text), config.Options{Getenv: variables})
	if err != nil {
		t.Fatal(err)
	}
	got := show(t, c)
	if strings.Contains(got, "s3cret") {
		t.Errorf("Show() tells a secret:\n%s", got)
	}
	const want = `bots:
  support:
    platform: telegram
    handler: default
    limits:
      profile: standard
      messages_per_second: 0.5
      per_channel_delay: 50ms
    token: "[redacted]"
    app_token: "[redacted]"
    apiKey: "[redacted]"
    secrets: "[redacted]"
    signing_secret: "[redacted]"
    headers:
      Authorization: "[redacted]"
      Accept: text
    password: "[redacted]"
    named: "[redacted]"
    listed:
      - x
      - "[redacted]"
    proxy: "http://ann:[redacted]@proxy:1/x"
    proxies:
      -
        url: "socks5://ann:[redacted]@proxy:1"
    token_file: "~/token"
    number: 0123
    other: "yes $${X}"
    empty_token: ""
    no_token: null
`
	if _, bots, _ := strings.Cut(got, "bots:\n"); !strings.HasPrefix("bots:\n"+bots, want) {
		t.Errorf("Show() (-want +got):\n%s", cmp.Diff(want, got))
	}
	for _, part := range []string{"policy: tenant\n", "plan: gold\n", "level: warn\n"} {
		if !strings.Contains(got, part) {
			t.Errorf("Show() lacks %q:\n%s", part, got)
		}
	}
	if strings.Contains(got, "max_requests") {
		t.Errorf("Show() has keys of a policy that is not in use:\n%s", got)
	}
}

func TestConfig_Show_canBeReadAgain(t *testing.T) {
	for _, text := range []string{
		"",
		"gateway: {rate_limit: {notice: \"a: b # \\\"c\\\" $${X}\\n\\u2028 \\u00e9 ${W}\", lockout_seconds: 0.25}, data_dir: '~'}",
		"gateway:\n  rate_limit:\n    policy: own\n    a: [[1], {b: 0x1F}, [], {}, -]\n    c: ['true', true, '12', 1e3, -.5, .5x, +1, ~, ':', 'a: b']\n    g: |2\n       x\n      y\n",
		"gateway: {rate_limit: {notice: 'no'}, inbound_retention: 90.5, drain: {timeout_seconds: 3m}}",
		"delivery: {retention: 1h1s, send_timeout: 10m, dead_retention: 20s, dead_letter_min_age: 1ns}\nhttp: {listen: ''}",
	} {
		first, err := config.Parse([]byte(text), config.Options{Getenv: environment(map[string]string{"W": "'w${"})})
		if err != nil {
			t.Errorf("Parse(%q) = %v", text, err)
			continue
		}
		shown := show(t, first)
		second, err := config.Parse([]byte(shown), config.Options{Getenv: noEnvironment})
		if err != nil {
			t.Errorf("Parse() of what Show() gave = %v\n%s", err, shown)
			continue
		}
		if diff := cmp.Diff(first, second, configs); diff != "" {
			t.Errorf("read again, %q differs (-first +second):\n%s", text, diff)
		}
		if again := show(t, second); again != shown {
			t.Errorf("Show() of %q is not stable:\n%s", text, cmp.Diff(shown, again))
		}
	}
}
