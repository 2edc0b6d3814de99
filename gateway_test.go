package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chatgateway/gateway"
	"github.com/chatgateway/gateway/internal/api"
	"github.com/chatgateway/gateway/simulator/simulatortest"
	"github.com/chatgateway/gateway/simulator/telegram"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// running is a gateway in this process, on a simulator.
type running struct {
	t      *testing.T
	g      *gateway.Gateway
	dir    string
	stop   context.CancelFunc
	done   chan error
	client *http.Client
	logs   *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// configText is a configuration with one bot on the simulator.
func configText(dir, url, more string) string {
	return fmt.Sprintf(`
gateway: {data_dir: %q%s}
http: {listen: "127.0.0.1:0"}
bots:
  support:
    platform: telegram
    token: %q
    api_base: %q
`, dir, more, telegram.DefaultToken, url)
}

func start(t *testing.T, text string, opts ...gateway.Option) *running {
	t.Helper()
	cfg, err := gateway.ParseConfig([]byte(text), gateway.LoadOptions{})
	if err != nil {
		t.Fatalf("ParseConfig() = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, dir: string(cfg.Gateway.DataDir), stop: cancel, done: make(chan error, 1), logs: &syncBuffer{}}
	log := slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.g, err = gateway.New(ctx, cfg, append([]gateway.Option{gateway.WithLogger(log)}, opts...)...)
	if err != nil {
		cancel()
		t.Fatalf("New() = %v", err)
	}
	go func() { r.done <- r.g.Run(ctx) }()
	t.Cleanup(func() { r.end(); r.client.CloseIdleConnections() })
	r.client, _ = api.Client(t.Context(), r.dir)
	if r.client == nil {
		t.Fatal("the control socket does not answer")
	}
	return r
}

// end stops the gateway and checks that it stops well. It may be called twice.
func (r *running) end() {
	r.t.Helper()
	r.stop()
	select {
	case err, ok := <-r.done:
		if ok && err != nil {
			r.t.Errorf("Run() = %v, want nil", err)
		}
		if ok {
			close(r.done)
		}
	case <-time.After(patience):
		r.t.Fatal("the gateway did not stop")
	}
}

func (r *running) post(m api.NewMessage) (api.Accepted, int) {
	r.t.Helper()
	body, err := json.Marshal(m)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.client.Post("http://gateway/api/messages", "application/json", bytes.NewReader(body))
	if err != nil {
		r.t.Fatalf("POST /api/messages: %v", err)
	}
	defer resp.Body.Close()
	var a api.Accepted
	if resp.StatusCode == http.StatusAccepted {
		if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
			r.t.Fatal(err)
		}
	}
	return a, resp.StatusCode
}

func (r *running) message(id string) api.Message {
	r.t.Helper()
	var m api.Message
	r.get("/api/messages/"+id, &m)
	return m
}

func (r *running) get(path string, into any) int {
	r.t.Helper()
	resp, err := r.client.Get("http://gateway" + path)
	if err != nil {
		r.t.Fatalf("GET %s: %v", path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		r.t.Fatalf("GET %s = %s: %v", path, b, err)
	}
	return resp.StatusCode
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestGateway_answersAMessageOnce(t *testing.T) {
	sim := simulatortest.Start(t, simulatortest.Quiet())
	r := start(t, configText(t.TempDir(), sim.URL, ""))
	if _, err := sim.Inject(telegram.Input{UserID: 5, Text: "hello"}); err != nil {
		t.Fatal(err)
	}
	got, err := sim.WaitMessages(within(t), 5, 1)
	if err != nil {
		t.Fatalf("no echo: %v\n%s", err, r.logs)
	}
	r.end()
	if all := sim.Messages(5); len(all) != 1 || got[0].Text != "hello" {
		t.Errorf("messages = %v, want one hello", all)
	}
	if strings.Contains(r.logs.String(), telegram.DefaultToken) {
		t.Error("the token stands in the log")
	}
}

func TestGateway_keepsOrderInEachChat(t *testing.T) {
	const chats, each = 50, 10
	sim := simulatortest.Start(t, simulatortest.Quiet())
	start(t, configText(t.TempDir(), sim.URL, "")+"    limits: {messages_per_second: 10000, burst_size: 1000, per_channel_delay: 0}\n")
	var inputs []telegram.Input
	for i := range each {
		for c := range chats {
			inputs = append(inputs, telegram.Input{UserID: int64(100 + c), Text: strconv.Itoa(i)})
		}
	}
	if _, err := sim.InjectAll(inputs); err != nil {
		t.Fatal(err)
	}
	if _, err := sim.WaitMessages(within(t), 0, chats*each); err != nil {
		t.Fatal(err)
	}
	for c := range chats {
		got := sim.Messages(int64(100 + c))
		if len(got) != each {
			t.Fatalf("chat %d has %d echoes, want %d", c, len(got), each)
		}
		for i, m := range got {
			if m.Text != strconv.Itoa(i) {
				t.Fatalf("chat %d: echo %d is %q", c, i, m.Text)
			}
		}
	}
}

func TestGateway_tellsTheStoryOfAMessage(t *testing.T) {
	sim := simulatortest.Start(t, simulatortest.Quiet())
	r := start(t, configText(t.TempDir(), sim.URL, ""))
	a, status := r.post(api.NewMessage{Target: "telegram:7", Text: "ping", IdempotencyKey: "k1"})
	if status != http.StatusAccepted || a.Duplicate {
		t.Fatalf("POST = %d %+v, want 202 and no duplicate", status, a)
	}
	if _, err := sim.WaitMessages(within(t), 7, 1); err != nil {
		t.Fatal(err)
	}
	if again, status := r.post(api.NewMessage{Target: "support:7", Text: "ping", IdempotencyKey: "k1"}); status != http.StatusAccepted || !again.Duplicate || again.ID != a.ID {
		t.Errorf("the same key again = %d %+v, want 202, a duplicate of %s", status, again, a.ID)
	}
	if _, status := r.post(api.NewMessage{Target: "support:7", Text: "pong", IdempotencyKey: "k1"}); status != http.StatusUnprocessableEntity {
		t.Errorf("the same key for another text = %d, want 422", status)
	}
	m := r.waitState(a.ID, "sent")
	if m.Target != "support:7" || len(m.Parts) != 1 || m.Parts[0].Receipt == "" || len(m.Attempts) != 1 || m.Attempts[0].Kind != "sent" {
		t.Errorf("message = %+v, want one sent part with its receipt and one attempt", m)
	}
	for text, want := range map[string]int{
		"nobody:7": http.StatusUnprocessableEntity, "support": http.StatusUnprocessableEntity, "support:": http.StatusUnprocessableEntity,
	} {
		if _, status := r.post(api.NewMessage{Target: text, Text: "x"}); status != want {
			t.Errorf("POST to %q = %d, want %d", text, status, want)
		}
	}
}

// waitState reads a message until it is in the state; the simulator has
// answered already, so that it is a matter of one commit.
func (r *running) waitState(id, state string) api.Message {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		m := r.message(id)
		if m.State == state {
			return m
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("message %s is %s (%s), want %s", id, m.State, m.Reason, state)
		}
		select {
		case <-r.t.Context().Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestGateway_refusesADeadTargetUntilItWrites(t *testing.T) {
	sim := simulatortest.Start(t, simulatortest.Quiet())
	r := start(t, configText(t.TempDir(), sim.URL, ""))
	id, err := sim.Fault(telegram.Fault{Kind: telegram.FaultBlocked, ChatID: 9})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := r.post(api.NewMessage{Target: "support:9", Text: "one"})
	if m := r.waitState(a.ID, "dead"); !strings.Contains(m.Reason, "blocked") {
		t.Errorf("reason = %q, want the platform's", m.Reason)
	}
	calls := len(sim.Calls())
	if _, status := r.post(api.NewMessage{Target: "support:9", Text: "two"}); status != http.StatusConflict {
		t.Errorf("POST to a dead target = %d, want 409", status)
	}
	if sent := countSends(sim.Calls()[calls:]); sent != 0 {
		t.Errorf("a refused message cost %d calls", sent)
	}
	sim.ClearFault(id)
	if _, err := sim.Inject(telegram.Input{UserID: 9, Text: "I am back"}); err != nil {
		t.Fatal(err)
	}
	if _, err := sim.WaitMessages(within(t), 9, 1); err != nil {
		t.Fatal(err)
	}
	if _, status := r.post(api.NewMessage{Target: "support:9", Text: "three"}); status != http.StatusAccepted {
		t.Errorf("POST after the chat wrote = %d, want 202", status)
	}
}

func countSends(calls []telegram.Call) int {
	n := 0
	for _, c := range calls {
		if c.Method == "sendMessage" {
			n++
		}
	}
	return n
}

func TestGateway_showsARefusedBotAndTriesItAgain(t *testing.T) {
	sim := simulatortest.Start(t, simulatortest.Quiet())
	id, err := sim.Fault(telegram.Fault{Kind: telegram.FaultStatus, Method: "*", Status: 401, Description: "Unauthorized", Count: telegram.Forever})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, configText(t.TempDir(), sim.URL, ""))
	if err := sim.Wait(within(t), func() bool { return sim.Stats().Calls["getMe"] > 0 }); err != nil {
		t.Fatal(err)
	}
	var h api.Health
	for h.Bots["support"].State != "refused" {
		if status := r.get("/readyz", &h); status != http.StatusOK {
			t.Fatalf("/readyz = %d, want 200: one bad bot is not the gateway's end", status)
		}
		<-time.After(5 * time.Millisecond)
	}
	sim.ClearFault(id)
	if _, err := sim.Inject(telegram.Input{UserID: 5, Text: "hello"}); err != nil {
		t.Fatal(err)
	}
	if _, err := sim.WaitMessages(within(t), 5, 1); err != nil {
		t.Fatalf("the bot is not tried again: %v", err)
	}
}

func TestGateway_deniesAFloodAndSaysSoOnce(t *testing.T) {
	sim := simulatortest.Start(t, simulatortest.Quiet())
	r := start(t, configText(t.TempDir(), sim.URL, ", rate_limit: {max_requests: 2, window_seconds: 3600}"))
	var inputs []telegram.Input
	for i := range 6 {
		inputs = append(inputs, telegram.Input{UserID: 5, Text: strconv.Itoa(i)})
	}
	inputs = append(inputs, telegram.Input{UserID: 6, Text: "other"})
	if _, err := sim.InjectAll(inputs); err != nil {
		t.Fatal(err)
	}
	if _, err := sim.WaitMessages(within(t), 6, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := sim.WaitMessages(within(t), 5, 3); err != nil {
		t.Fatal(err)
	}
	r.end()
	texts := map[string]int{}
	for _, m := range sim.Messages(5) {
		texts[m.Text]++
	}
	if len(texts) != 3 || texts["0"] != 1 || texts["1"] != 1 {
		t.Errorf("answers = %v, want two echoes and one notice", texts)
	}
}

func TestGateway_takesWebhooks(t *testing.T) {
	sim := simulatortest.Start(t, simulatortest.Quiet())
	dir := t.TempDir()
	const secret = "a-secret-of-its-own"
	ln := freePort(t)
	r := start(t, fmt.Sprintf(`
gateway: {data_dir: %q}
http: {listen: %q}
bots:
  support: {platform: telegram, token: %q, api_base: %q, mode: webhook, webhook_url: "http://%s/hooks/support", webhook_secret: %q}
`, dir, ln, telegram.DefaultToken, sim.URL, ln, secret))
	if err := sim.Wait(within(t), func() bool { return sim.Stats().Calls["setWebhook"] > 0 }); err != nil {
		t.Fatal(err)
	}
	if _, err := sim.Inject(telegram.Input{UserID: 5, Text: "pushed"}); err != nil {
		t.Fatal(err)
	}
	if _, err := sim.WaitMessages(within(t), 5, 1); err != nil {
		t.Fatalf("%v\n%s", err, r.logs)
	}
	resp, err := http.Post("http://"+ln+"/hooks/support", "application/json", strings.NewReader(`{"update_id":1}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a push without the secret = %d, want 401", resp.StatusCode)
	}
}

func TestNew_refusesAFolderInUse(t *testing.T) {
	sim := simulatortest.Start(t, simulatortest.Quiet())
	dir := t.TempDir()
	start(t, configText(dir, sim.URL, ""))
	cfg, err := gateway.ParseConfig([]byte(configText(dir, sim.URL, "")), gateway.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gateway.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "another gateway is running") {
		t.Errorf("New() = %v, want that another gateway is running", err)
	}
}

func TestNew_refusesAFolderWhoseSocketIsGone(t *testing.T) {
	sim := simulatortest.Start(t, simulatortest.Quiet())
	dir := t.TempDir()
	start(t, configText(dir, sim.URL, ""))
	if err := os.Remove(filepath.Join(dir, api.SocketName)); err != nil {
		t.Fatal(err)
	}
	cfg, err := gateway.ParseConfig([]byte(configText(dir, sim.URL, "")), gateway.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gateway.New(t.Context(), cfg); !errors.Is(err, api.ErrInUse) {
		t.Errorf("New() = %v, want ErrInUse", err)
	}
	if a, err := gateway.Enqueue(t.Context(), cfg, api.NewMessage{Target: "support:1", Text: "x"}); err == nil {
		t.Errorf("Enqueue() = %+v beside a running gateway, which would not know of it", a)
	}
}

func TestNew_worksInADeepFolder(t *testing.T) {
	sim := simulatortest.Start(t, simulatortest.Quiet())
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	r := start(t, configText(dir, sim.URL, ""))
	if a, status := r.post(api.NewMessage{Target: "support:1", Text: "x"}); status != http.StatusAccepted || a.ID == "" {
		t.Errorf("POST = %d, want 202", status)
	}
	if info, err := os.Stat(filepath.Join(dir, "gateway.sock")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket = %v, %v, want one for its owner only", info, err)
	}
}
