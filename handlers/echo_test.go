package handlers_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/handlers"
	"github.com/chatgateway/gateway/inbound"
)

func TestEcho(t *testing.T) {
	tests := []struct {
		name  string
		event chat.Event
		want  []chat.Message
	}{
		{name: "a message", event: chat.Event{Kind: chat.EventMessage, Text: " Hi *there*\n"}, want: []chat.Message{{Text: " Hi *there*\n"}}},
		{name: "a message without text", event: chat.Event{Kind: chat.EventMessage, Text: " \n"}},
		{name: "an edit", event: chat.Event{Kind: chat.EventEdited, Text: "hi"}},
		{name: "a button", event: chat.Event{Kind: chat.EventButton, Text: "hi", Data: "x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := handlers.Echo{}.Handle(t.Context(), inbound.Turn{Event: tt.event})
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("Handle() = %v, -want +got:\n%s", err, diff)
			}
		})
	}
}
