// Package simulatortest starts a simulator for a test.
package simulatortest

import (
	"net/http/httptest"
	"testing"

	"github.com/chatgateway/gateway/simulator"
	"github.com/chatgateway/gateway/simulator/telegram"
)

// Sim is a simulator that listens on a loopback port until its test ends.
type Sim struct {
	*telegram.Server
	Simulator *simulator.Simulator
	URL       string // such as http://127.0.0.1:12345
}

// Start runs a simulator, webhooks included. It is stopped, and its goroutines are waited for, when the test ends.
func Start(tb testing.TB, o simulator.Options) *Sim {
	tb.Helper()
	s := simulator.New(o)
	server := httptest.NewServer(s)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := s.Run(tb.Context()); err != nil {
			tb.Errorf("Run() = %v, want nil", err)
		}
	}()
	tb.Cleanup(func() {
		s.Close()
		<-stopped
		server.Close()
	})
	return &Sim{Server: s.Telegram(), Simulator: s, URL: server.URL}
}

// Quiet returns options without limits, for tests that are about something else.
func Quiet() simulator.Options {
	return simulator.Options{Telegram: telegram.Options{Limits: &telegram.Limits{Off: true}}}
}
