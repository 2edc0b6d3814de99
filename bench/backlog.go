package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/store/sqlite"
)

const (
	firstSends = 20_000 // over which the rate is taken
	aMillion   = 1_000_000
)

// backlog is a database with messages that wait.
type backlog struct {
	name      string
	count     int
	penalised int
}

// compareDispatch lets waiting messages go after a start: as many as the
// outbox takes, a tenth of it, and as many of which a half waits behind chats
// that are closed.
func compareDispatch(p plan) error {
	cases := []backlog{
		{name: "1,000,000 wait", count: aMillion},
		{name: "100,000 wait", count: aMillion / 10},
		{name: "1,000,000 wait, the half in 5,000 closed chats", count: aMillion, penalised: 5000},
	}
	paths, remove, err := fill(p.dir, cases)
	defer remove()
	if err != nil {
		return err
	}
	names := make([]string, len(cases))
	for i, c := range cases {
		names[i] = c.name
	}
	rows, err := rounds(p.rounds, "dispatch", names, func(i, _ int) (order, tracing) {
		return order{What: "dispatch", Dir: p.dir, Count: cases[i].count, Penalised: cases[i].penalised, From: paths[i]}, tracing{}
	})
	if err != nil {
		return err
	}
	table("The first 20,000 sends after a start, 1,000 open lanes", rows, sendRate, loadTime)
	return nil
}

// measureMemory gives what waiting messages take in memory.
func measureMemory(p plan) error {
	cases := []backlog{{name: "1,000,000 wait in 1,000 lanes", count: aMillion}}
	paths, remove, err := fill(p.dir, cases)
	defer remove()
	if err != nil {
		return err
	}
	rows, err := rounds(p.rounds, "memory", []string{cases[0].name}, func(int, int) (order, tracing) {
		return order{What: "memory", Dir: p.dir, Count: aMillion, From: paths[0]}, tracing{}
	})
	if err != nil {
		return err
	}
	table("Messages that wait", rows, heapEach, rssEach, loadTime)
	return nil
}

// fill makes the databases once; each turn starts from a copy.
func fill(dir string, cases []backlog) (paths []string, remove func(), err error) {
	folder, err := os.MkdirTemp(dir, "gateway-peers-")
	remove = func() { os.RemoveAll(folder) }
	if err != nil {
		return nil, remove, err
	}
	for i, c := range cases {
		path := filepath.Join(folder, strconv.Itoa(i), "gateway.db")
		if _, err := turn(order{What: "fill", Dir: dir, Count: c.count, Penalised: c.penalised, From: path}, tracing{}); err != nil {
			return nil, remove, err
		}
		paths = append(paths, path)
	}
	return paths, remove, nil
}

// fillStore makes a database in which messages wait, in turns for all chats.
func fillStore(ctx context.Context, o order, _ string) (r result, err error) {
	s, err := sqlite.Open(ctx, o.From)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	open, closed := targets(ourChats), closedTargets(o.Penalised)
	e := outbox.Entry{State: outbox.Queued, Priority: outbox.Proactive, Parts: []chat.Part{{Text: payload}}}
	entries := slices.Repeat([]outbox.Entry{e}, o.Count)
	for i := range entries {
		if t := &entries[i].Target; len(closed) > 0 && i%2 == 0 {
			*t = closed[i/2%len(closed)]
		} else {
			*t = open[i/(1+min(len(closed), 1))%len(open)]
		}
	}
	for chunk := range slices.Chunk(entries, 10_000) {
		if _, err := s.Apply(ctx, outbox.Batch{At: time.Now(), New: chunk}); err != nil {
			return result{}, err
		}
	}
	return result{}, nil
}

func closedTargets(n int) []chat.Target {
	all := targets(n + ourChats)
	return all[ourChats:]
}

// measureDispatch starts over a copy of the database and takes the time of the
// first sends.
func measureDispatch(ctx context.Context, o order, dir string) (result, error) {
	l, err := unlimited()
	if err != nil {
		return result{}, err
	}
	for _, t := range closedTargets(o.Penalised) {
		l.PenaliseAt(time.Now(), limiter.Bucket{Channel: string(t.Chat)}, 12*time.Hour)
	}
	if err := copyFile(filepath.Join(dir, "gateway.db"), o.From); err != nil {
		return result{}, err
	}
	var sends atomic.Int64
	var first atomic.Int64 // Unix nanoseconds
	enough := make(chan time.Time, 1)
	called := func() {
		switch sends.Add(1) {
		case 1:
			first.Store(time.Now().UnixNano())
		case firstSends:
			enough <- time.Now()
		}
	}
	begin := time.Now()
	e, err := startOurs(ctx, dir, &noop{limiter: l, called: called}, func(int) {})
	if err != nil {
		return result{}, err
	}
	loaded := time.Now()
	end := <-enough
	return result{Values: map[string]float64{
		sendRate: (firstSends - 1) / end.Sub(time.Unix(0, first.Load())).Seconds(),
		loadTime: loaded.Sub(begin).Seconds(),
	}}, e.close()
}

// measureBacklog loads what waits while the bot is closed, so that nothing is
// sent, and gives what that takes in memory.
func measureBacklog(ctx context.Context, o order, dir string) (result, error) {
	l, err := unlimited()
	if err != nil {
		return result{}, err
	}
	l.PenaliseAt(time.Now(), limiter.Bucket{}, 12*time.Hour)
	if err := copyFile(filepath.Join(dir, "gateway.db"), o.From); err != nil {
		return result{}, err
	}
	heapBefore, rssBefore := heap(), resident()
	begin := time.Now()
	e, err := startOurs(ctx, dir, &noop{limiter: l, called: func() {}}, func(int) {})
	if err != nil {
		return result{}, err
	}
	took := time.Since(begin)
	heapAfter, rssAfter := heap(), resident()
	waiting := e.router.Status(ourBot)
	runtime.KeepAlive(e)
	if waiting.Pending != o.Count {
		return result{}, errors.Join(fmt.Errorf("%d messages wait, want %d", waiting.Pending, o.Count), e.close())
	}
	each := func(before, after uint64) float64 { return (float64(after) - float64(before)) / float64(o.Count) }
	return result{Values: map[string]float64{
		heapEach: each(heapBefore, heapAfter),
		rssEach:  each(rssBefore, rssAfter),
		loadTime: took.Seconds(),
	}}, e.close()
}

// resident is the process's memory, in bytes, as the system counts it.
func resident() uint64 {
	b, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(b))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(fields[1], 10, 64)
	return pages * uint64(os.Getpagesize()) // a page has a positive size
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
