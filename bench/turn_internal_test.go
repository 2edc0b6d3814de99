package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCountSyncs_countsCallsThatBeganInTheMeasuredPart(t *testing.T) {
	const trace = `17  1796078923.085612 fsync(8)        = 0
17  1796078925.000000 fsync(8)        = 0 (DELAYED)
18  1796078925.500000 fdatasync(9 <unfinished ...>
17  1796078925.600000 fsync(8)        = 0
18  1796078925.700000 <... fdatasync resumed>) = 0
18  1796078925.800000 --- SIGURG {si_signo=SIGURG, si_code=SI_TKILL, si_pid=17, si_uid=0} ---
18  1796078926.000001 fdatasync(9)    = 0
17  1796078926.100000 +++ exited with 0 +++
`
	path := filepath.Join(t.TempDir(), "trace")
	if err := os.WriteFile(path, []byte(trace), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := countSyncs(path, 1796078925000000, 1796078926000000)
	if err != nil || got != 3 {
		t.Errorf("countSyncs() = %d, %v, want 3", got, err)
	}
}
