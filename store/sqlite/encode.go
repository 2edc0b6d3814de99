package sqlite

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

// appendText appends s as a JSON string. As encoding/json does, it replaces what
// is not UTF-8.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	done := 0 // so much of s is in b
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r >= ' ' && r != '"' && r != '\\' && (r != utf8.RuneError || size > 1) {
			i += size
			continue
		}
		b = append(b, s[done:i]...)
		switch r {
		case '"', '\\':
			b = append(b, '\\', byte(r))
		case '\n':
			b = append(b, `\n`...)
		case utf8.RuneError:
			b = append(b, `\ufffd`...)
		default:
			const hex = "0123456789abcdef"
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&0xf])
		}
		i += size
		done = i
	}
	return append(append(b, s[done:]...), '"')
}

// appendParts appends parts as encoding/json would.
func appendParts(b []byte, parts []chat.Part) ([]byte, error) {
	if len(parts) != 1 || parts[0].Markup != "" || parts[0].Fallback != "" || parts[0].ReplyTo != "" || parts[0].Attachment != nil {
		all, err := json.Marshal(parts)
		return append(b, all...), err
	}
	b = appendText(append(b, `[{"text":`...), parts[0].Text) // nearly every message
	if parts[0].Silent {
		b = append(b, `,"silent":true`...)
	}
	return append(b, `}]`...), nil
}

// appendAttempt appends a line of a time line as encoding/json would.
func appendAttempt(b []byte, a *outbox.Attempt) ([]byte, error) {
	b = append(b, `{"at":"`...)
	b, err := a.At.AppendText(b)
	if err != nil {
		return b, err
	}
	b = strconv.AppendInt(append(b, `","part":`...), int64(a.Part), 10)
	b = appendText(append(b, `,"kind":`...), a.Kind)
	if a.Code != "" {
		b = appendText(append(b, `,"code":`...), a.Code)
	}
	if a.RetryAfter != 0 {
		b = strconv.AppendInt(append(b, `,"retry_after":`...), int64(a.RetryAfter), 10)
	}
	if a.Detail != "" {
		b = appendText(append(b, `,"detail":`...), a.Detail)
	}
	return append(b, "}\n"...), nil
}

// appendReceipts appends each receipt as a line.
func appendReceipts(b []byte, receipts []chat.Receipt) []byte {
	for _, r := range receipts {
		b = append(appendText(b, string(r)), '\n')
	}
	return b
}

// jsonLine encodes one of our own plain values.
func jsonLine(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("sqlite: encode a line: " + err.Error())
	}
	return string(b)
}

// optional encodes a message that may be nil.
func optional(m *chat.Message) string {
	if m == nil {
		return ""
	}
	return jsonLine(m)
}

// jsonLines decodes a column of one value a line.
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
