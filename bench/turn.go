package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// order is what a child measures.
type order struct {
	What      string // a key of children
	Peer      string
	Dir       string // the medium; the child works in a folder of its own
	Producers int
	Time      time.Duration // how long it is measured
	Count     int           // messages that wait, or channels
	Penalised int           // chats that are closed, with a half of the messages
	From      string        // a database to start from
	Profile   string        // a folder for profiles; empty for none
}

// result is what a child measured, by the names of figures.go.
type result struct {
	Values     map[string]float64
	Begin, End int64 // of the measured part, in Unix microseconds
}

// tracing is what strace does to a child.
type tracing struct {
	count bool          // the syncs of the measured part are counted
	delay time.Duration // after each sync
}

// turn runs a child: this binary again, so that its memory, its processor time
// and what the garbage collector does are its own.
func turn(o order, t tracing) (map[string]float64, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	args := []string{self, "-child", string(text)}
	trace := ""
	if t.count || t.delay > 0 {
		f, err := os.CreateTemp("", "gateway-peers-*.strace")
		if err != nil {
			return nil, err
		}
		defer os.Remove(f.Name())
		defer f.Close()
		trace = f.Name()
		args = append(t.strace(trace), args...)
	}
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // it ends by itself
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s with %d producers: %w", o.What, o.Peer, o.Producers, err)
	}
	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, fmt.Errorf("read what %s %s measured: %w", o.What, o.Peer, err)
	}
	if trace != "" {
		n, err := countSyncs(trace, r.Begin, r.End)
		if err != nil {
			return nil, err
		}
		r.Values[syncsEach] = float64(n) / r.Values[messages]
	}
	return r.Values, nil
}

// rounds gives each name its turn in each round, so that a machine that is busy
// with other work for a while disturbs all of them alike.
func rounds(n int, title string, names []string, one func(i, round int) (order, tracing)) ([]row, error) {
	rows := make([]row, len(names))
	for round := range n {
		for i, name := range names {
			o, t := one(i, round)
			values, err := turn(o, t)
			if err != nil {
				return nil, err
			}
			rows[i].name = name
			rows[i].rounds = append(rows[i].rounds, values)
		}
		fmt.Fprintf(os.Stderr, "%s: round %d of %d\n", title, round+1, n)
	}
	return rows, nil
}

// strace stops the child, and the servers that it starts, at nothing but a
// sync: a filter in the kernel lets all other calls pass at full speed.
func (t tracing) strace(out string) []string {
	args := []string{"strace", "-f", "--seccomp-bpf", "-qq", "-ttt", "-o", out, "-e", "trace=fsync,fdatasync"}
	if t.delay > 0 {
		args = append(args, "-e", fmt.Sprintf("inject=fsync,fdatasync:delay_exit=%d", t.delay.Microseconds()))
	}
	return append(args, "--")
}

// countSyncs counts the syncs that began within the measured part.
func countSyncs(path string, begin, end int64) (int, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n := 0
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text()) // thread, time, call
		if len(fields) < 3 || !strings.HasPrefix(fields[2], "fsync(") && !strings.HasPrefix(fields[2], "fdatasync(") {
			continue
		}
		at, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			return 0, fmt.Errorf("read what strace wrote: %w", err)
		}
		if us := int64(at * 1e6); us >= begin && us <= end {
			n++
		}
	}
	return n, lines.Err()
}
