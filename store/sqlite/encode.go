package sqlite

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/chatgateway/gateway/chat"
)

// jsonLine encodes one line of a column that grows by appending.
func jsonLine(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("sqlite: encode a line: " + err.Error()) // only our own plain structs come here
	}
	return string(b) + "\n"
}

// manyLines encodes a column of several lines.
func manyLines(receipts []chat.Receipt) string {
	var text strings.Builder
	for _, r := range receipts {
		text.WriteString(jsonLine(r))
	}
	return text.String()
}

// jsonLines decodes what jsonLine appended.
func jsonLines[T any](text []byte) ([]T, error) {
	var all []T
	for line := range bytes.Lines(text) {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, fmt.Errorf("decode %.40q: %w", line, err)
		}
		all = append(all, v)
	}
	return all, nil
}

// optional encodes a message that may be nil.
func optional(m *chat.Message) string {
	if m == nil {
		return ""
	}
	return jsonLine(m)
}
