package clienttest_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chatgateway/gateway/simulator"
	"github.com/chatgateway/gateway/simulator/simulatortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// missing skips the test, except in CI, where every client has to be there.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}

func TestClients_grammY(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		missing(t, "node is not installed")
	}
	if _, err := os.Stat("grammy/node_modules/grammy/package.json"); err != nil {
		missing(t, "grammY is not installed; run: npm ci --prefix simulator/clienttest/grammy")
	}
	s := simulatortest.Start(t, simulator.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "check.mjs")
	cmd.Dir = "grammy"
	cmd.Env = append(os.Environ(), "SIMULATOR_URL="+s.URL)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("check.mjs: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}
