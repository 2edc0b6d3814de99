package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// command runs the program in a folder of its own.
func command(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(stdin), &out, &errOut)
	return code, out.String(), errOut.String()
}

const configText = `
gateway: {data_dir: %DIR%}
bots:
  support:
    platform: telegram
    token: 123456:half-of-it-is-secret
`

func configFile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "gateway.yaml")
	text := strings.ReplaceAll(configText, "%DIR%", filepath.Join(dir, "data"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommandLine(t *testing.T) {
	t.Chdir(t.TempDir()) // where there is no gateway.yaml
	t.Setenv("TELEGRAM_BOT_TOKEN", "")
	file := configFile(t)
	tests := []struct {
		name string
		args []string
		code int
		out  string // in stdout
		err  string // in stderr
	}{
		{name: "no command", args: nil, code: 0, out: "Usage:"},
		{name: "help", args: []string{"serve", "--help"}, code: 0, out: "--sim"},
		{name: "an unknown command", args: []string{"serv"}, code: 2, err: `"serv"; did you mean send or serve`},
		{name: "an unknown flag", args: []string{"serve", "--smi"}, code: 2, err: "--smi"},
		{name: "a missing argument", args: []string{"send", "support:7"}, code: 2, err: "accepts 2 arg"},
		{name: "an argument too many", args: []string{"version", "now"}, code: 2, err: "unknown"},
		{name: "a missing file", args: []string{"check", "--config", "nowhere.yaml"}, code: 2, err: "nowhere.yaml"},
		{name: "no bots", args: []string{"serve"}, code: 2, err: "TELEGRAM_BOT_TOKEN"},
		{name: "a bad flag value", args: []string{"config", "show", "--log-level", "loud"}, code: 2, err: "log.level"},
		{name: "the version", args: []string{"version"}, code: 0, out: "gateway "},
		{name: "the configuration", args: []string{"config", "show", "--config", file}, code: 0, out: "max_attempts: 5"},
		{name: "a check without the platform", args: []string{"check", "--offline", "--config", file}, code: 0, out: "right"},
		{name: "a bad target", args: []string{"send", "--config", file, "support", "hi"}, code: 2, err: "bot:chat"},
		{name: "an unknown bot", args: []string{"send", "--config", file, "nobody:7", "hi"}, code: 2, err: "nobody"},
		{name: "an empty text", args: []string{"send", "--config", file, "support:7", " "}, code: 2, err: "text"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errOut := command(t, "", tt.args...)
			if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errOut, tt.err) {
				t.Errorf("gateway %q = %d\nstdout: %s\nstderr: %s\nwant %d, %q and %q", tt.args, code, out, errOut, tt.code, tt.out, tt.err)
			}
			if strings.Contains(out+errOut, "half-of-it") {
				t.Error("the token is printed")
			}
		})
	}
}

func TestSend_storesWhatStandardInputHolds(t *testing.T) {
	file := configFile(t)
	code, out, errOut := command(t, "a text\nof two lines\n", "send", "--config", file, "--key", "k", "--json", "telegram:7", "-")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	var a struct {
		ID        string
		Duplicate bool
	}
	if err := json.Unmarshal([]byte(out), &a); err != nil || a.ID == "" || a.Duplicate {
		t.Errorf("stdout %q, want an id", out)
	}
	code, out, errOut = command(t, "a text\nof two lines\n", "send", "--config", file, "--key", "k", "support:7", "-")
	if code != 0 || strings.TrimSpace(out) != a.ID || !strings.Contains(errOut, "key was known") {
		t.Errorf("the same key again = %d, %q, %q, want the same id", code, out, errOut)
	}
	if code, _, errOut = command(t, "another", "send", "--config", file, "--key", "k", "support:7", "-"); code != 2 {
		t.Errorf("the key for another text = %d, %q, want 2", code, errOut)
	}
}
