package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/internal/api"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/simulator/simulatortest"
	"github.com/chatgateway/gateway/simulator/telegram"
	"github.com/chatgateway/gateway/store/sqlite"
)

func freePort(t *testing.T) string {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// binary builds the program once for all tests that need a process.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "gateway-test-*")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "gateway")
	out, err := exec.Command("go", "build", "-o", path, "./cmd/gateway").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// process is the program in a process of its own.
type process struct {
	cmd    *exec.Cmd
	stderr *syncBuffer
}

func launch(t *testing.T, args ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	p := &process{cmd: exec.Command(path, args...), stderr: &syncBuffer{}}
	p.cmd.Stderr = p.stderr
	p.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "GATEWAY_") || strings.HasPrefix(e, "TELEGRAM_")
	}), "TZ=UTC")
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	return p
}

// client waits until the process answers on its socket.
func (p *process) client(t *testing.T, dir string) *http.Client {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		if c, ok := api.Client(t.Context(), dir); ok {
			t.Cleanup(c.CloseIdleConnections)
			return c
		}
		if time.Now().After(deadline) {
			t.Fatalf("the gateway does not answer:\n%s", p.stderr)
		}
		<-time.After(2 * time.Millisecond)
	}
}

func (p *process) wait(t *testing.T) int {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case <-done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("the process does not end:\n%s", p.stderr)
		return -1
	}
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestServe_stopsOnSIGTERM(t *testing.T) {
	sim := simulatortest.Start(t, simulatortest.Quiet())
	dir := t.TempDir()
	p := launch(t, "serve", "--config", writeConfig(t, configText(dir, sim.URL, "")))
	p.client(t, dir)
	if err := sim.Wait(within(t), func() bool { return sim.Stats().WaitingPolls > 0 }); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 0 {
		t.Errorf("exit code %d, want 0:\n%s", code, p.stderr)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the stop took %v during a long poll, want less than 5 s", took)
	}
}

// TestExitCodes holds what people meet first: one clear message each, and the
// exit code that says whose mistake it is.
func TestExitCodes(t *testing.T) {
	sim := simulatortest.Start(t, simulatortest.Quiet())
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	good := configText(t.TempDir(), sim.URL, "")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		config string
		cmds   []string
		code   int
		says   string
	}{
		{name: "an unknown key", config: good + "htp: {}\n", cmds: []string{"check", "serve"}, code: 2, says: "did you mean http"},
		{name: "bad YAML", config: "bots: [", cmds: []string{"check", "serve"}, code: 2, says: "line"},
		{name: "a bad number", config: strings.Replace(good, "data_dir", "rate_limit: {max_requests: many}, data_dir", 1), cmds: []string{"check", "serve"}, code: 2, says: "gateway.rate_limit.max_requests"},
		{name: "an unset variable", config: strings.Replace(good, telegram.DefaultToken, "${NOT_SET_ANYWHERE}", 1), cmds: []string{"check", "serve"}, code: 2, says: "NOT_SET_ANYWHERE"},
		{name: "no bots", config: "bots: {}\n", cmds: []string{"check", "serve"}, code: 2, says: "TELEGRAM_BOT_TOKEN"},
		{name: "a port that is taken", config: strings.Replace(good, "127.0.0.1:0", taken.Addr().String(), 1), cmds: []string{"serve"}, code: 1, says: "http.listen"},
		{name: "a data folder that is a file", config: configText(file, sim.URL, ""), cmds: []string{"serve"}, code: 1, says: file},
	}
	for _, tt := range tests {
		path := writeConfig(t, tt.config)
		for _, cmd := range tt.cmds {
			t.Run(cmd+" with "+tt.name, func(t *testing.T) {
				p := launch(t, cmd, "--config", path)
				if code := p.wait(t); code != tt.code {
					t.Errorf("exit code %d, want %d:\n%s", code, tt.code, p.stderr)
				}
				if !strings.Contains(p.stderr.String(), tt.says) {
					t.Errorf("stderr says %q, want %q in it", p.stderr, tt.says)
				}
			})
		}
	}
}

func TestCheck_failsForARefusedToken(t *testing.T) {
	sim := simulatortest.Start(t, simulatortest.Quiet())
	if _, err := sim.Fault(telegram.Fault{Kind: telegram.FaultStatus, Method: "*", Status: 401, Description: "Unauthorized", Count: telegram.Forever}); err != nil {
		t.Fatal(err)
	}
	p := launch(t, "check", "--config", writeConfig(t, configText(t.TempDir(), sim.URL, "")))
	if code := p.wait(t); code != 1 {
		t.Errorf("exit code %d, want 1:\n%s", code, p.stderr)
	}
}

func TestSend_withoutAServerIsSentAfterTheNextStart(t *testing.T) {
	sim := simulatortest.Start(t, simulatortest.Quiet())
	dir := t.TempDir()
	config := writeConfig(t, configText(dir, sim.URL, ""))
	if code := launch(t, "send", "--config", config, "telegram:77", "kept").wait(t); code != 0 {
		t.Fatalf("exit code %d, want 0", code)
	}
	launch(t, "serve", "--config", config)
	got, err := sim.WaitMessages(within(t), 77, 1)
	if err != nil || got[0].Text != "kept" {
		t.Errorf("messages = %v, %v, want the one that was kept", got, err)
	}
}

// crashRounds is how often the gateway is killed; GATEWAY_CRASH_ROUNDS asks
// for more.
func crashRounds() int {
	if n, err := strconv.Atoi(os.Getenv("GATEWAY_CRASH_ROUNDS")); err == nil {
		return n
	}
	if testing.Short() {
		return 3
	}
	return 20
}

// TestCrash kills the gateway at random moments while messages flow, proactive
// ones and answers, and checks that nothing accepted is lost, that order holds
// in each chat, and that copies are no more than the calls in flight, each
// marked as a possible repeat.
func TestCrash(t *testing.T) {
	sim := simulatortest.Start(t, simulatortest.Quiet())
	dir := t.TempDir()
	config := writeConfig(t, configText(dir, sim.URL, "")+"    limits: {messages_per_second: 2000, burst_size: 200, per_channel_delay: 0}\n")
	c := &crashTest{t: t, sim: sim, dir: dir, config: config, ids: map[string]string{}}
	rounds := crashRounds()
	for round := range rounds {
		c.round(round)
	}
	c.settle()
	c.check(rounds)
}

type crashTest struct {
	t      *testing.T
	sim    *simulatortest.Sim
	dir    string
	config string

	mu       sync.Mutex
	ids      map[string]string // id by text, of those accepted
	injected int
}

const (
	crashChats    = 10
	crashMessages = 200 // a round
)

// round lets messages flow and kills the gateway in their middle.
func (c *crashTest) round(round int) {
	p := launch(c.t, "serve", "--config", c.config)
	client := p.client(c.t, c.dir)
	ctx, cancel := context.WithCancel(c.t.Context())
	var group sync.WaitGroup
	for chat := range crashChats {
		group.Go(func() {
			for i := 0; i < crashMessages/crashChats && ctx.Err() == nil; i++ {
				if i%4 == 0 {
					c.inject(fmt.Sprintf("in %d %d %d", chat, round, i), chat)
				}
				c.send(ctx, client, fmt.Sprintf("out %d %d %d", chat, round, i), chat)
			}
		})
	}
	<-time.After(time.Duration(rand.IntN(150)) * time.Millisecond)
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	cancel()
	group.Wait()
	client.CloseIdleConnections()
}

func (c *crashTest) inject(text string, chat int) {
	if _, err := c.sim.Inject(telegram.Input{UserID: int64(500 + chat), Text: text}); err != nil {
		c.t.Error(err)
		return
	}
	c.mu.Lock()
	c.injected++
	c.mu.Unlock()
}

// send posts one message and remembers it if it was accepted.
func (c *crashTest) send(ctx context.Context, client *http.Client, text string, chat int) {
	body, err := json.Marshal(api.NewMessage{Target: fmt.Sprintf("support:%d", 100+chat), Text: text})
	if err != nil {
		c.t.Error(err)
		return
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway/api/messages", bytes.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		return // killed: not accepted, though it may be stored
	}
	defer resp.Body.Close()
	var a api.Accepted
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || resp.StatusCode != http.StatusAccepted {
		return
	}
	c.mu.Lock()
	c.ids[text] = a.ID
	c.mu.Unlock()
}

// settle runs the gateway until nothing waits any more, and reads every story.
func (c *crashTest) settle() {
	p := launch(c.t, "serve", "--config", c.config)
	client := p.client(c.t, c.dir)
	defer client.CloseIdleConnections()
	store, err := sqlite.Open(c.t.Context(), filepath.Join(c.dir, "gateway.db"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer store.Close()
	idle := 0
	for deadline := time.Now().Add(patience); idle < 3; {
		var h api.Health
		resp, err := client.Get("http://gateway/readyz")
		if err != nil {
			c.t.Fatal(err)
		}
		_ = json.NewDecoder(bufio.NewReader(resp.Body)).Decode(&h)
		resp.Body.Close()
		idle++
		if h.Bots["support"].Pending > 0 || c.sim.Stats().PendingUpdates > 0 || len(c.echoes())+len(c.deadLetters(store, "in ")) < c.injected {
			idle = 0
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("still waiting: %+v, %d updates, %d of %d echoes\n%s", h, c.sim.Stats().PendingUpdates, len(c.echoes()), c.injected, p.stderr)
		}
		<-time.After(50 * time.Millisecond)
	}
	arrived := map[string]int{}
	for _, m := range c.sim.Messages(0) {
		arrived[m.Text]++
	}
	letters := c.deadLetters(store, "")
	c.t.Logf("%d dead letters of two interrupted calls each", len(letters))
	for text, id := range c.ids {
		resp, err := client.Get("http://gateway/api/messages/" + id)
		if err != nil {
			c.t.Fatal(err)
		}
		var m api.Message
		_ = json.NewDecoder(resp.Body).Decode(&m)
		resp.Body.Close()
		if copies := arrived[text]; copies == 0 && !letters[text] {
			c.t.Errorf("%q was accepted as %s and never arrived: %s (%s)", text, m.ID, m.State, m.Reason)
		} else if copies > 1 && !m.MayBeDuplicate {
			c.t.Errorf("%q arrived %d times and is not marked", text, copies)
		}
	}
	c.checkMarks(client, arrived, len(letters))
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.wait(c.t); code != 0 {
		c.t.Errorf("exit code %d, want 0", code)
	}
}

// deadLetters gives the texts of dead letters, which must be of messages that
// two kills have hit during a call: after the second nobody knows whether they
// arrived, so a person is to decide.
func (c *crashTest) deadLetters(store *sqlite.Store, prefix string) map[string]bool {
	letters, err := store.List(c.t.Context(), outbox.Filter{States: []outbox.State{outbox.Dead}, Limit: 1000})
	if err != nil {
		c.t.Fatal(err)
	}
	texts := map[string]bool{}
	for _, e := range letters {
		interrupted := 0
		for _, a := range e.Log {
			if a.Kind == chat.Uncertain.String() {
				interrupted++
			}
		}
		if interrupted < 2 || !e.MayBeDuplicate {
			c.t.Errorf("%q is a dead letter: %s; %+v", e.Parts[0].Text, e.Reason, e.Log)
		}
		if strings.HasPrefix(e.Parts[0].Text, prefix) {
			texts[e.Parts[0].Text] = true
		}
	}
	return texts
}

// checkMarks goes through the whole outbox, answers included, and finds each
// entry's text by the receipt of what arrived last.
func (c *crashTest) checkMarks(client *http.Client, arrived map[string]int, dead int) {
	texts := map[string]string{}
	for _, m := range c.sim.Messages(0) {
		texts[fmt.Sprintf("support:%d %d", m.ChatID, m.MessageID)] = m.Text
	}
	seen := 0
	for id := 1; ; id++ {
		resp, err := client.Get("http://gateway/api/messages/" + strconv.Itoa(id))
		if err != nil {
			c.t.Fatal(err)
		}
		var m api.Message
		_ = json.NewDecoder(resp.Body).Decode(&m)
		resp.Body.Close()
		if resp.StatusCode == http.StatusNotFound {
			break
		}
		if len(m.Parts) != 1 || m.Parts[0].Receipt == "" {
			continue
		}
		seen++
		text := texts[m.Target+" "+m.Parts[0].Receipt]
		if arrived[text] > 1 && !m.MayBeDuplicate {
			c.t.Errorf("entry %d, %q, arrived %d times and is not marked", id, text, arrived[text])
		}
	}
	if seen < len(c.ids)+c.injected-dead {
		c.t.Errorf("%d entries have a receipt, want at least %d", seen, len(c.ids)+c.injected-dead)
	}
}

func (c *crashTest) echoes() map[string]int {
	seen := map[string]int{}
	for _, m := range c.sim.Messages(0) {
		if strings.HasPrefix(m.Text, "in ") {
			seen[m.Text]++
		}
	}
	return seen
}

func (c *crashTest) check(rounds int) {
	last := map[int64]map[string][2]int{}
	seen := map[string]bool{}
	copies := 0
	for _, m := range c.sim.Messages(0) {
		if seen[m.Text] {
			copies++
			continue // a repeat comes after what it repeats
		}
		seen[m.Text] = true
		kind, rest, _ := strings.Cut(m.Text, " ")
		var chat, round, i int
		if _, err := fmt.Sscanf(rest, "%d %d %d", &chat, &round, &i); err != nil {
			c.t.Fatalf("odd message %q", m.Text)
		}
		if last[m.ChatID] == nil {
			last[m.ChatID] = map[string][2]int{}
		}
		now := [2]int{round, i}
		if before := last[m.ChatID][kind]; slices.Compare(now[:], before[:]) < 0 {
			c.t.Errorf("chat %d: %q came after round %d, message %d", m.ChatID, m.Text, before[0], before[1])
		}
		last[m.ChatID][kind] = now
	}
	if most := 2 * crashChats * rounds; copies > most { // one call in flight in each chat at each kill
		c.t.Errorf("%d copies, want at most %d", copies, most)
	}
	c.t.Logf("%d rounds: %d accepted, %d injected, %d arrived, %d copies", rounds, len(c.ids), c.injected, len(seen), copies)
}
