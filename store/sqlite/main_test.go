package sqlite_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the child of the crash test where the environment asks for it.
func TestMain(m *testing.M) {
	if path := os.Getenv(crashVariable); path != "" {
		crashChild(path)
	}
	goleak.VerifyTestMain(m)
}
