// Package handlers holds the ready handlers: what a bot can answer with
// without a line of code.
package handlers

import (
	"context"
	"strings"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/inbound"
)

// Echo answers each message with its own text. It answers nothing to events
// without text, to edits and to button presses.
type Echo struct{}

var _ inbound.Handler = Echo{}

// Handle gives the text back.
func (Echo) Handle(_ context.Context, t inbound.Turn) ([]chat.Message, error) {
	if t.Event.Kind != chat.EventMessage || strings.TrimSpace(t.Event.Text) == "" {
		return nil, nil
	}
	return []chat.Message{{Text: t.Event.Text}}, nil
}
