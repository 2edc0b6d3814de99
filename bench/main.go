// Command bench measures the gateway's delivery engine and its limiter beside
// their peers, in one interleaved run, and prints the figures and their ratios
// as Markdown. README.md says what each row means.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// plan is what the command line asks for.
type plan struct {
	what      []string
	peers     []string
	producers []int
	dir       string
	rounds    int
	time      time.Duration
	delay     time.Duration // added to each sync
	syncs     bool          // they are counted
	channels  int
	profile   string
}

func main() {
	var p plan
	var what, peers, producers string
	child := flag.String("child", "", "what a child measures; the command starts its children by itself")
	flag.StringVar(&what, "what", "queue", "what to measure: queue, limiter, dispatch, memory")
	flag.StringVar(&peers, "peers", "ours,goqite,river,rivermany,asynq", "the queues; riverpg is there too, for which BENCH_POSTGRES names a database")
	flag.StringVar(&producers, "producers", "1,8,64", "how many hand messages in at once")
	flag.StringVar(&p.dir, "dir", memory(), "the folder, and so the medium, to work in")
	flag.IntVar(&p.rounds, "rounds", 5, "rounds in which each peer has its turn")
	flag.DurationVar(&p.time, "time", 2*time.Second, "how long messages are handed in, each turn")
	flag.DurationVar(&p.delay, "sync-delay", 0, "added to each fsync and fdatasync; needs strace")
	flag.BoolVar(&p.syncs, "syncs", true, "count syncs in a round of its own; needs strace")
	flag.IntVar(&p.channels, "channels", 100_000, "of the limiter's crowd")
	flag.StringVar(&p.profile, "profile", "", "a folder for profiles of the last turn of ours")
	flag.Parse()
	if err := start(p, *child, what, peers, producers); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func start(p plan, child, what, peers, producers string) error {
	if child != "" {
		return runChild(child)
	}
	p.what, p.peers = strings.Split(what, ","), strings.Split(peers, ",")
	for s := range strings.SplitSeq(producers, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("-producers: %q is no number of producers", s)
		}
		p.producers = append(p.producers, n)
	}
	if err := p.check(); err != nil {
		return err
	}
	describe(p)
	for _, what := range p.what {
		if err := subjects()[what](p); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// subjects are what can be measured.
func subjects() map[string]func(plan) error {
	return map[string]func(plan) error{
		"queue": compareQueues, "limiter": compareLimiters, "dispatch": compareDispatch, "memory": measureMemory,
	}
}

// check finds mistakes before minutes are spent.
func (p *plan) check() error {
	for _, what := range p.what {
		if subjects()[what] == nil {
			return fmt.Errorf("-what: %q is not there", what)
		}
	}
	for _, peer := range p.peers {
		if engines()[peer] == nil {
			return fmt.Errorf("-peers: %q is not there", peer)
		}
	}
	if p.rounds < 1 {
		return fmt.Errorf("-rounds: %d is too few", p.rounds)
	}
	if _, err := exec.LookPath("strace"); err != nil {
		if p.delay > 0 {
			return fmt.Errorf("-sync-delay: %w", err)
		}
		p.syncs = false
	}
	if _, err := exec.LookPath("redis-server"); err != nil && slices.Contains(p.peers, "asynq") {
		fmt.Println("asynq is left out:", err)
		p.peers = slices.DeleteFunc(p.peers, func(s string) bool { return s == "asynq" })
	}
	return nil
}

// memory is a folder in memory where the system has one.
func memory() string {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err == nil && info.IsDir() {
		return shm
	}
	return os.TempDir()
}
