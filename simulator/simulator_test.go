package simulator_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chatgateway/gateway/simulator"
	"github.com/chatgateway/gateway/simulator/simulatortest"
	"github.com/chatgateway/gateway/simulator/telegram"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask makes a request with Name: value headers and returns status and body.
func ask(t *testing.T, method, address, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
		if name == "Host" {
			req.Host = value
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, address, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func TestPage_isServedWithoutForeignAddresses(t *testing.T) {
	s := simulatortest.Start(t, simulator.Options{})
	foreign := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9.-]+\.[a-z]{2,}|@import|innerHTML|document\.write|\son[a-z]+=|<script>|style="`)
	for path, kind := range map[string]string{"/": "text/html", "/_sim/page.css": "text/css", "/_sim/page.js": "text/javascript"} {
		resp, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), kind) || len(body) < 1000 {
			t.Errorf("GET %s = %d, %s, %d bytes", path, resp.StatusCode, resp.Header.Get("Content-Type"), len(body))
		}
		if found := foreign.Find(body); found != nil {
			t.Errorf("%s contains %q", path, found)
		}
		if policy := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s has the policy %q", path, policy)
		}
	}
}

func TestControl_refusesOtherPages(t *testing.T) {
	s := simulatortest.Start(t, simulator.Options{Hosts: []string{"sim.example.org"}})
	tests := []struct {
		name    string
		headers []string
		want    int
	}{
		{"a program", nil, 200},
		{"the page itself", []string{"Origin: " + s.URL, "Sec-Fetch-Site: same-origin"}, 200},
		{"another origin", []string{"Origin: https://evil.example"}, 403},
		{"a null origin", []string{"Origin: null"}, 403},
		{"another site", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"a form's content type", []string{"Content-Type: text/plain"}, 415},
		{"a borrowed name", []string{"Host: evil.example"}, 403},
		{"a configured name", []string{"Host: sim.example.org"}, 200},
		{"a container's name", []string{"Host: sim:8080"}, 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, body := ask(t, "POST", s.URL+"/_sim/telegram/updates", `{"chat_id":5,"text":"a"}`, tt.headers...); got != tt.want {
				t.Errorf("status = %d %s, want %d", got, body, tt.want)
			}
		})
	}
	if n := s.Stats().PendingUpdates; n != 4 {
		t.Errorf("%d updates got in, want 4", n)
	}
}

func TestControl_doesWhatTheGoAPIDoes(t *testing.T) {
	s := simulatortest.Start(t, simulatortest.Quiet())
	base := s.URL + "/_sim/telegram"
	const token = "77:python-test"
	steps := []struct{ method, path, body, want string }{
		{"POST", base + "/bots", `{"token":"77:python-test","username":"py_bot"}`, `"id":77`},
		{"POST", base + "/updates", `{"bot":"py_bot","chat_id":5,"name":"Ada","text":"hi","thread_id":3}`, `"message_id":1`},
		{"POST", base + "/updates/batch", `[{"bot":"77","chat_id":5,"text":"a"},{"token":"77:python-test","user_id":6,"text":"b"}]`, `"message_id":2`},
		{"POST", base + "/updates", `{"bot":"77","update":{"poll":{"id":"1"}}}`, `"update_id"`},
		{"POST", base + "/updates", `{"bot":"nobody","chat_id":5,"text":"a"}`, `unknown bot`},
		{"POST", base + "/updates", `{"chat_id":"five"}`, `decode the body`},
		{"GET", s.URL + "/bot" + token + "/getUpdates", "", `"poll":{"id":"1"}`},
		{"POST", s.URL + "/bot" + token + "/sendMessage", `{"chat_id":5,"text":"yo","reply_markup":{"inline_keyboard":[[{"text":"A","callback_data":"x"}]]}}`, `"ok":true`},
		{"POST", base + "/press", `{"bot":"77","chat_id":5,"message_id":3}`, `"update_id"`},
		{"GET", base + "/messages?chat_id=5&at_least=1&timeout_ms=1000", "", `"text":"yo"`},
		{"GET", base + "/history?chat_id=5&bot=77&last=2", "", `"from_bot":false`},
		{"GET", base + "/chats?bot=77", "", `"name":"Ada"`},
		{"GET", base + "/calls", "", `"method":"sendMessage","chat_id":5,"status":200`},
		{"POST", base + "/faults", `{"kind":"hang","duration_ms":1500,"accept":true,"chat_id":6}`, `"duration_ms":1500`},
		{"POST", base + "/faults", `{"kind":"hang","duratoin_ms":1}`, `unknown field`},
		{"POST", base + "/faults", `{"kind":"down"}`, `"kind":"down"`},
		{"GET", base + "/faults", "", `"duration_ms":1500`},
		{"GET", s.URL + "/bot" + token + "/getMe", "", `<h1>502 Bad Gateway</h1>`},
		{"DELETE", base + "/faults/2", "", `"ok":true`},
		{"DELETE", base + "/faults/2", "", `no such fault`},
		{"DELETE", base + "/faults", "", `"ok":true`},
		{"POST", base + "/limits", `{"off":false,"private_burst":1,"private_every_ms":60000}`, `"private_burst":1`},
		{"POST", s.URL + "/bot" + token + "/sendMessage", `{"chat_id":9,"text":"1"}`, `"ok":true`},
		{"POST", s.URL + "/bot" + token + "/sendMessage", `{"chat_id":9,"text":"2"}`, `"retry_after":60`},
		{"POST", base + "/clock", `{"advance_ms":60000}`, `"now"`},
		{"POST", s.URL + "/bot" + token + "/sendMessage", `{"chat_id":9,"text":"2"}`, `"ok":true`},
		{"GET", base + "/stats", "", `"too_many":1`},
		{"POST", base + "/reset", ``, `"ok":true`},
		{"GET", base + "/messages", "", `[]`},
		{"GET", base + "/nonsense", "", `no such control endpoint`},
	}
	for _, step := range steps {
		if _, body := ask(t, step.method, step.path, step.body); !strings.Contains(body, step.want) {
			t.Errorf("%s %s %s = %s, want %s in it", step.method, step.path, step.body, body, step.want)
		}
	}
}

func TestEvents_tellThePage(t *testing.T) {
	s := simulatortest.Start(t, simulatortest.Quiet())
	resp, err := http.Get(s.URL + "/_sim/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Scan() // The first bytes say that the page is on the list.
	if _, err := s.Inject(telegram.Input{ChatID: 5, Text: "<script>"}); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e struct {
			Platform string
			Event    telegram.Event
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("event %s: %v", data, err)
		}
		if e.Event.Kind == "message" {
			if e.Platform != "telegram" || e.Event.Entry.Text != "<script>" || e.Event.ChatID != 5 {
				t.Errorf("event = %s", data)
			}
			return
		}
	}
	t.Error("the stream ended without the message")
}

func TestServe_stopsWithItsContext(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := simulator.New(simulatortest.Quiet())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	base := "http://" + ln.Addr().String()
	polled := make(chan int, 1)
	go func() {
		status, _ := ask(t, "GET", base+"/bot"+s.Telegram().Token()+"/getUpdates?timeout=50", "")
		polled <- status
	}()
	if err := s.Telegram().Wait(t.Context(), func() bool { return s.Telegram().Stats().WaitingPolls == 1 }); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Serve() = %v, want nil", err)
	}
	<-polled
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("stopping took %v", took)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestServe_reportsABrokenListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if err := simulator.New(simulator.Options{}).Serve(t.Context(), ln); err == nil {
		t.Error("Serve(closed listener) = nil, want an error")
	}
}
