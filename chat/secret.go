package chat

import (
	"fmt"
	"log/slog"
	"strings"
)

// redacted stands wherever a secret would be printed.
const redacted = "[redacted]"

// Secret is a credential. It prints as [redacted] under every verb, in slog,
// JSON and YAML; only Reveal gives the value. Compare what Reveal gives.
type Secret struct {
	value *string // nil if empty; a pointer, since fmt looks into unexported fields without asking them
}

// NewSecret wraps a credential.
func NewSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{value: &value}
}

// Reveal gives the credential, for the one place that sends it.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// Empty reports whether there is no credential.
func (s Secret) Empty() bool { return s.value == nil }

// Format prints [redacted] under every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// String is [redacted].
func (s Secret) String() string { return redacted }

// GoString is [redacted].
func (s Secret) GoString() string { return redacted }

// LogValue is [redacted].
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText is [redacted], in JSON and YAML alike.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalText takes the credential from a configuration file.
func (s *Secret) UnmarshalText(b []byte) error {
	*s = NewSecret(string(b))
	return nil
}

// Redact replaces the credential wherever it stands in text.
func (s Secret) Redact(text string) string {
	if s.Empty() {
		return text
	}
	return strings.ReplaceAll(text, s.Reveal(), redacted)
}
