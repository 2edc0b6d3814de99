package sqlite_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs a child of the tests with processes where the environment asks for it.
func TestMain(m *testing.M) {
	if path := os.Getenv(crashVariable); path != "" {
		crashChild(path)
	}
	if path := os.Getenv(limitsVariable); path != "" {
		limitsChild(path)
	}
	goleak.VerifyTestMain(m)
}
