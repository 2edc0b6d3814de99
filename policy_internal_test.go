package gateway

import (
	"log/slog"
	"testing"

	"github.com/chatgateway/gateway/policy"
)

func TestPipelineOptions_guardThePolicy(t *testing.T) {
	tests := []struct {
		name    string
		text    string
		guarded bool
	}{
		{name: "off", text: "gateway: {rate_limit: {max_requests: 0}}"},
		{name: "on", text: "gateway: {rate_limit: {max_requests: 5, on_error: allow}}", guarded: true},
		{name: "with a lock-out", text: "gateway: {rate_limit: {max_requests: 5, lockout_seconds: 600}}", guarded: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := ParseConfig([]byte(tt.text+"\nbots: {a: {platform: telegram, token: \"1:x\"}}\n"), LoadOptions{})
			if err != nil {
				t.Fatalf("ParseConfig() = %v", err)
			}
			o, err := pipelineOptions(cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatalf("pipelineOptions() = %v", err)
			}
			if _, ok := o.Policy.(*policy.Guard); ok != tt.guarded || (o.Notices != nil) != tt.guarded {
				t.Errorf("policy %T and notices %v, want them guarded: %v", o.Policy, o.Notices, tt.guarded)
			}
		})
	}
}
