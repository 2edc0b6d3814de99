package config_test

import (
	"encoding"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/internal/config"
)

// hidden is a text that a platform would keep secret; it refuses short ones and,
// like a careless type, repeats them in its error.
type hidden string

var _ encoding.TextUnmarshaler = (*hidden)(nil)

func (h *hidden) UnmarshalText(text []byte) error {
	if len(text) < 4 {
		return fmt.Errorf("too short: %s", text)
	}
	*h = hidden(text)
	return nil
}

type common struct {
	APIBase string `yaml:"api_base"`
}

type platform struct {
	common `yaml:",inline"`

	Token   hidden                 `yaml:"token"`
	File    config.Path            `yaml:"token_file"`
	Mode    string                 `yaml:"mode" oneof:"polling|webhook"`
	Wait    time.Duration          `yaml:"wait"`
	Number  config.ID              `yaml:"phone_number_id"`
	Allow   []config.ID            `yaml:"allow"`
	Names   map[config.ID]string   `yaml:"names"`
	Proxy   *proxy                 `yaml:"proxy"`
	Proxies map[string]*proxy      `yaml:"proxies"`
	Groups  []proxy                `yaml:"groups"`
	Debug   bool                   `yaml:"debug"`
	Small   int8                   `yaml:"small" min:"1"`
	Port    uint16                 `yaml:"port"`
	Ratio   float64                `yaml:"ratio" min:">0"`
	Net     netip.Prefix           `yaml:"net"`
	Any     any                    `yaml:"any"`
	Left    string                 // no tag: not a key
	Extra   map[string]config.Path `yaml:"extra"`
}

type proxy struct {
	URL  string `yaml:"url"`
	Port int    `yaml:"port"`
}

// decodeBot decodes the keys of one bot, written in block style without indentation.
func decodeBot(t *testing.T, keys string, o config.Options, into any) error {
	t.Helper()
	var decoded error
	o.Check = func(c *config.Config) error {
		decoded = c.Bots["support"].Decode(into)
		return decoded
	}
	if o.Getenv == nil {
		o.Getenv = noEnvironment
	}
	o.HomeDir = "/home/ann"
	_, err := config.Parse([]byte(botText(keys)), o)
	return err
}

func botText(keys string) string {
	indented := strings.ReplaceAll(strings.TrimSuffix(keys, "\n"), "\n", "\n    ")
	return "bots:\n  support:\n    platform: telegram\n    " + indented + "\n"
}

func TestSection_Decode(t *testing.T) {
	got := platform{Mode: "polling", Left: "kept", Ratio: 1, common: common{APIBase: "default"}}
	err := decodeBot(t, `handler: default
token: pa$$word$1x
token_file: ~/token
wait: 1.5
phone_number_id: 0123
allow: [-1001234567890, C0ABC123, "7"]
names: {0x1F: hex, MyBot: case}
proxy: {url: "http://a", port: 1}
proxies:
  a: {port: 2}
groups:
  - port: 3
  - {url: 007}
debug: true
small: 127
port: 65535
ratio: 2e-1
net: 10.0.0.0/8
any: {a: [1, 2.5, true, x, null], b: "1"}
extra: {a: ~, b: "~", c: ~/x, d: a/~}
`, config.Options{}, &got)
	if err != nil {
		t.Fatalf("Decode() = %v, want no error", err)
	}
	want := platform{
		common: common{APIBase: "default"}, Token: "pa$$word$1x", File: "/home/ann/token", Mode: "polling", Wait: 1500 * time.Millisecond,
		Number: "0123", Allow: []config.ID{"-1001234567890", "C0ABC123", "7"}, Names: map[config.ID]string{"0x1F": "hex", "MyBot": "case"},
		Proxy: &proxy{URL: "http://a", Port: 1}, Proxies: map[string]*proxy{"a": {Port: 2}}, Groups: []proxy{{Port: 3}, {URL: "007"}},
		Debug: true, Small: 127, Port: 65535, Ratio: 0.2, Net: netip.MustParsePrefix("10.0.0.0/8"),
		Any:   map[string]any{"a": []any{int64(1), 2.5, true, "x", nil}, "b": "1"},
		Left:  "kept",
		Extra: map[string]config.Path{"a": "", "b": "/home/ann", "c": "/home/ann/x", "d": "a/~"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(platform{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("Decode() (-want +got):\n%s", diff)
	}
}

func TestSection_Decode_listsMistakes(t *testing.T) {
	err := decodeBot(t, `tokn: abcdef
token: abc
mode: webhok
wait: soon
phone_number_id: 12.5
allow: [1, 1e3, 0]
names: {0: zero}
proxy: {uri: x, port: "1"}
groups: [{port: 1.5}]
debug: yes
small: 300
port: -1
ratio: .nan
net: 10.0.0.0/99
platfor: x
any: ${UNSET_A}
`, config.Options{}, &platform{})
	want := []string{
		"bots.support.tokn: unknown key (line 4, column 5); did you mean token?",
		"bots.support.token: is not a valid hidden (line 5, column 12)",
		`bots.support.mode: must be polling or webhook, not "webhok" (line 6, column 11); did you mean webhook?`,
		`bots.support.wait: must be a number of seconds or a duration such as 30s or 6h, not "soon" (line 7, column 11)`,
		`bots.support.phone_number_id: must be an id, not a number with a fraction or an exponent, not "12.5" (line 8, column 22)`,
		`bots.support.allow[1]: must be an id, not a number with a fraction or an exponent, not "1e3" (line 9, column 16)`,
		`bots.support.allow[2]: must not be zero, not "0" (line 9, column 21)`,
		`bots.support.names.0: the key must not be zero (line 10, column 13)`,
		"bots.support.proxy.uri: unknown key (line 11, column 13); did you mean url?",
		`bots.support.proxy.port: must be a whole number, not "1" (line 11, column 27)`,
		`bots.support.groups[0].port: must be a whole number, not "1.5" (line 12, column 21)`,
		`bots.support.debug: must be true or false, not "yes" (line 13, column 12)`,
		`bots.support.small: is too large or too small, not "300" (line 14, column 12)`,
		`bots.support.port: is too large or too small, not "-1" (line 15, column 11)`,
		`bots.support.ratio: must be a finite number, not ".nan" (line 16, column 12)`,
		"bots.support.net: is not a valid Prefix (line 17, column 10)",
		"bots.support.platfor: unknown key (line 18, column 5); did you mean platform?",
		"bots.support.any: the environment variable UNSET_A is not set (line 19, column 10)",
	}
	if err == nil {
		t.Fatal("Decode() = nil, want an error")
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("Decode() (-want +got):\n%s", diff)
	}
	if e, ok := errors.AsType[*config.KeyError](err); !ok || e.Path != "bots.support.tokn" || e.Line != 4 || e.Column != 5 {
		t.Errorf("AsType() = %+v, %v, want the first mistake", e, ok)
	}
}

func TestSection_Decode_lenient(t *testing.T) {
	var warnings []*config.KeyError
	check := func(c *config.Config) error {
		for range 2 { // decoding again doesn't warn again
			if err := c.Bots["support"].Decode(&proxy{}); err != nil {
				return err
			}
		}
		warnings = c.Warnings
		return nil
	}
	o := config.Options{Getenv: noEnvironment, Lenient: true, Check: check}
	if _, err := config.Parse([]byte(botText("ulr: x\nport:\n")+"htpp: {}\n"), o); err != nil {
		t.Fatalf("Parse() = %v, want no error", err)
	}
	want := []*config.KeyError{
		{Path: "htpp", Line: 6, Column: 1, Msg: "unknown key", Hint: "did you mean http?"},
		{Path: "bots.support.ulr", Line: 4, Column: 5, Msg: "unknown key", Hint: "did you mean url?"},
		{Path: "bots.support.port", Line: 5, Column: 10, Msg: "has no value and is left out"},
	}
	sortByPath := func(list []*config.KeyError) map[string]config.KeyError {
		m := make(map[string]config.KeyError)
		for _, e := range list {
			m[e.Path] = *e
		}
		return m
	}
	if diff := cmp.Diff(sortByPath(want), sortByPath(warnings)); diff != "" || len(warnings) != len(want) {
		t.Errorf("Warnings (-want +got):\n%s", diff)
	}
	// Lenient is about unknown keys only.
	if got := parseError(t, "log: {level: x}", config.Options{Lenient: true}); !strings.HasPrefix(got, "log.level: must be") {
		t.Errorf("Parse() = %s, want an error about log.level", got)
	}
}

// ids are the values of a key that is an id, and what becomes of them.
var ids = []struct{ text, want, mistake string }{
	{text: "0123", want: "0123"},
	{text: "089", want: "089"},
	{text: "0x1F # a comment", want: "0x1F"},
	{text: "+15550001111", want: "+15550001111"},
	{text: "1_000", want: "1_000"},
	{text: "-1001234567890", want: "-1001234567890"},
	{text: `"-1001234567890"`, want: "-1001234567890"},
	{text: "18446744073709551615", want: "18446744073709551615"},
	{text: "0o17", want: "0o17"},
	{text: "0b11", want: "0b11"},
	{text: "C0ABC123", want: "C0ABC123"},
	{text: `"@channel"`, want: "@channel"},
	{text: "!!str 42", want: "42"},
	{text: "120363000000000000@g.us", want: "120363000000000000@g.us"},
	{text: "2001-01-01", want: "2001-01-01"},
	{text: "${ID}", want: "0042"},
	{text: "1e3", mistake: "must be an id, not a number with a fraction or an exponent"},
	{text: `"1e3"`, mistake: "must be an id, not a number with a fraction or an exponent"},
	{text: "1E+3", mistake: "must be an id, not a number with a fraction or an exponent"},
	{text: "12.5", mistake: "must be an id, not a number with a fraction or an exponent"},
	{text: "1.", mistake: "must be an id, not a number with a fraction or an exponent"},
	{text: `" 123 "`, mistake: "must not hold spaces or invisible characters"},
	{text: `"1\u200b"`, mistake: "must not hold spaces or invisible characters"},
	{text: "12 34", mistake: "must not hold spaces or invisible characters"},
	{text: "0", mistake: "must not be zero"},
	{text: "-0", mistake: "must not be zero"},
	{text: "000", mistake: "must not be zero"},
	{text: "٣", mistake: "must use the digits 0 to 9"},
	{text: "1234567890123456789012345678901234567890", mistake: "has too many digits for an id"},
	{text: `""`, mistake: "must not be empty"},
	{text: `"-"`, mistake: "must not be empty"},
	{text: "true", mistake: "must be an id: put it in quotes if it is one"},
	{text: ".inf", mistake: "must be an id: put it in quotes if it is one"},
	{text: "[1]", mistake: "must be a single value, not a list"},
	{text: "{a: 1}", mistake: "must be a single value, not keys and values"},
	{text: "${EMPTY}", mistake: "must not be empty"},
	{text: "${SPACE}", mistake: "must not hold spaces or invisible characters"},
}

func TestSection_Decode_ids(t *testing.T) {
	o := config.Options{Getenv: environment(map[string]string{"ID": "0042", "EMPTY": "", "SPACE": "1 2"})}
	for _, c := range ids {
		t.Run(c.text, func(t *testing.T) {
			var got struct {
				ID config.ID `yaml:"phone_number_id"`
			}
			err := decodeBot(t, "phone_number_id: "+c.text, o, &got)
			if c.mistake == "" {
				if err != nil || string(got.ID) != c.want {
					t.Errorf("Decode() = %q, %v, want %q", got.ID, err, c.want)
				}
				return
			}
			if want := "bots.support.phone_number_id: " + c.mistake; err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("Decode() = %v, want %q", err, want)
			}
		})
	}
}

func TestSection_Decode_durations(t *testing.T) {
	cases := []struct {
		text, mistake string
		want          time.Duration
	}{
		{text: "0", want: 0},
		{text: "30", want: 30 * time.Second},
		{text: "0.9", want: 900 * time.Millisecond},
		{text: "0.001", want: time.Millisecond},
		{text: "1e-12", want: 1},
		{text: "1e3", want: 1000 * time.Second},
		{text: "1_000", want: 1000 * time.Second},
		{text: "6h", want: 6 * time.Hour},
		{text: `"300ms"`, want: 300 * time.Millisecond},
		{text: "1h30m", want: 90 * time.Minute},
		{text: "${SECONDS}", want: 5 * time.Second},
		{text: "${MINUTES}", want: 5 * time.Minute},
		{text: "-1", mistake: "must not be negative"},
		{text: "-5m", mistake: "must not be negative"},
		{text: ".nan", mistake: "must be a finite number"},
		{text: ".inf", mistake: "must be a finite number"},
		{text: "-.inf", mistake: "must be a finite number"},
		{text: "1e999", mistake: "is too large or too small"},
		{text: "9223372037", mistake: "is too long a time"},
		{text: "1e300", mistake: "is too long a time"},
		{text: "9999999999h", mistake: "is too long a time"},
		{text: `"30"`, mistake: `needs a unit, as in "30s"`},
		{text: "30d", mistake: "must be a number of seconds or a duration"},
		{text: "0x10", mistake: "must be a number of seconds or a duration"},
		{text: "true", mistake: "must be a number of seconds or a duration"},
		{text: `""`, mistake: "must be a number of seconds or a duration"},
	}
	o := config.Options{Getenv: environment(map[string]string{"SECONDS": "5", "MINUTES": "5m"})}
	for _, c := range cases {
		t.Run(c.text, func(t *testing.T) {
			var got struct {
				Wait time.Duration `yaml:"wait"`
			}
			err := decodeBot(t, "wait: "+c.text, o, &got)
			if c.mistake == "" {
				if err != nil || got.Wait != c.want {
					t.Errorf("Decode() = %v, %v, want %v", got.Wait, err, c.want)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), "bots.support.wait: "+c.mistake) {
				t.Errorf("Decode() = %v, want %q", err, c.mistake)
			}
		})
	}
}

func TestSection_Decode_wholeNumbers(t *testing.T) {
	for text, ok := range map[string]bool{
		"1": true, "+1": true, "1_000": true, "-1": true, "${N}": true, `"${N}"`: true,
		"1.0": false, "1e3": false, `"1"`: false, "010": false, "0x10": false, "0o17": false, "99999999999999999999": false, "one": false, "true": false,
		"[]": false, "${WORD}": false, "1__0": false,
	} {
		var got struct {
			N int `yaml:"n"`
		}
		o := config.Options{Getenv: environment(map[string]string{"N": "12", "WORD": "s3cret"})}
		err := decodeBot(t, "n: "+text, o, &got)
		if (err == nil) != ok {
			t.Errorf("Decode(n: %s) = %d, %v, want ok %v", text, got.N, err, ok)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("Decode(n: %s) = %v, which tells the variable's value", text, err)
		}
	}
}

func TestSection_Decode_tellsNoSecret(t *testing.T) {
	var into struct {
		Token  []string `yaml:"token"`
		Secret int      `yaml:"webhook_secret"`
		Key    bool     `yaml:"key"`
		Other  hidden   `yaml:"other"`
		Nested struct {
			N int `yaml:"n"`
		} `yaml:"api_keys"`
	}
	err := decodeBot(t, "token: s3c\nwebhook_secret: s3c\nkey: s3c\nother: s3c\napi_keys: {n: s3c}\n", config.Options{}, &into)
	if err == nil || strings.Count(err.Error(), "\n") != 4 || strings.Contains(err.Error(), "s3c ") || strings.Contains(err.Error(), `s3c"`) {
		t.Errorf("Decode() = %v, want five mistakes without the values", err)
	}
}

func TestSection_Secret(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) config.Path {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return config.Path(path)
	}
	cases := []struct {
		name, text, want, mistake string
		file                      config.Path
	}{
		{name: "neither"},
		{name: "text", text: "abc", want: "abc"},
		{name: "a file with a line end", file: write("a", "abc\r\n"), want: "abc"},
		{name: "both", text: "abc", file: write("b", "abc"), mistake: "token is set as well: keep one of the two"},
		{name: "no such file", file: config.Path(dir + "/none"), mistake: "the file can't be read: no such file or directory"},
		{name: "a folder", file: config.Path(dir), mistake: "the file can't be read: is a directory"},
		{name: "an empty file", file: write("c", "\n"), mistake: "the file is empty"},
		{name: "a huge file", file: write("d", strings.Repeat("x", 70_000)), mistake: "the file is too large"},
	}
	c := parse(t, botText("token_file: x"))
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got, err := c.Bots["support"].Secret("token", tc.text, tc.file)
			if tc.mistake == "" {
				if err != nil || got != tc.want {
					t.Errorf("Secret() = %q, %v, want %q", got, err, tc.want)
				}
				return
			}
			if want := "bots.support.token_file: " + tc.mistake + " (line 4, column 5)"; err == nil || err.Error() != want {
				t.Errorf("Secret() = %q, %v, want %q", got, err, want)
			}
		})
	}
}

func TestSection_Errorf(t *testing.T) {
	b := parse(t, botText("token: x")).Bots["support"]
	for key, want := range map[string]string{
		"token": "bots.support.token: is wrong (line 4, column 5)",
		"mode":  "bots.support.mode: is wrong (line 3, column 5)",
		"":      "bots.support: is wrong (line 3, column 5)",
	} {
		if got := b.Errorf(key, "is %s", "wrong").Error(); got != want {
			t.Errorf("Errorf(%q) = %q, want %q", key, got, want)
		}
	}
	if !b.Has("token") || b.Has("platform") || b.Has("mode") || b.Path() != "bots.support" {
		t.Error("Has() or Path() is wrong")
	}
	if diff := cmp.Diff([]string{"token"}, b.Keys()); diff != "" {
		t.Errorf("Keys() (-want +got):\n%s", diff)
	}
}

func TestRateLimit_Decode(t *testing.T) {
	const text = "gateway:\n  rate_limit: {policy: tenant, max_requests: many, plan: gold, scope: chat}\n"
	c := parse(t, text)
	var own struct {
		Max  string `yaml:"max_requests"`
		Plan string `yaml:"plan"`
	}
	r := &c.Gateway.RateLimit
	if err := r.Decode(&own); err != nil || own.Max != "many" || own.Plan != "gold" {
		t.Errorf("Decode() = %+v, %v, want the policy's own keys", own, err)
	}
	if r.Policy != "tenant" || r.Scope != "chat" || r.MaxRequests != 0 || r.Window != time.Minute {
		t.Errorf("RateLimit = %+v, want the common keys and the other defaults", r)
	}
	err := r.Decode(&struct {
		Plan string `yaml:"plan"`
	}{})
	if want := "gateway.rate_limit.max_requests: unknown key (line 2, column 32)"; err == nil || err.Error() != want {
		t.Errorf("Decode() = %v, want %q", err, want)
	}
	got := parseError(t, text, config.Options{Policies: []string{"tenants"}})
	if want := `gateway.rate_limit.policy: there is no policy "tenant"; known: sliding_window or tenants (line 2, column 24); did you mean tenants?`; got != want {
		t.Errorf("Parse() = %q, want %q", got, want)
	}
	if err := config.Default().Gateway.RateLimit.Decode(&own); err != nil {
		t.Errorf("Decode() of the default = %v, want nil", err)
	}
}

func TestParse_checksKnownNames(t *testing.T) {
	got := parseError(t, "bots:\n  a: {platform: telegramm}\nhandlers:\n  b: {kind: ehco}\n", config.Options{
		Platforms: []string{"telegram", "discord"}, Kinds: []string{"echo"},
	})
	want := `bots.a.platform: there is no platform "telegramm"; known: telegram or discord (line 2, column 17); did you mean telegram?` + "\n" +
		`handlers.b.kind: there is no kind "ehco"; known: echo (line 4, column 13); did you mean echo?`
	if got != want {
		t.Errorf("Parse() = %s\nwant %s", got, want)
	}
}
