package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/chatgateway/gateway/limiter"
)

// kept is how many channels our limiter remembers at the least while all are
// busy. What a channel costs is measured with so many.
const kept = 65_536

// compareLimiters measures one bucket and one channel, then a crowd of
// channels, from one goroutine and from eight.
func compareLimiters(p plan) error {
	single, crowd := []string{"ours", "x/time/rate"}, []string{"ours", "map of x/time/rate"}
	if _, err := exec.LookPath("redis-server"); err == nil {
		single = append(single, "redis_rate")
	}
	for _, goroutines := range []int{1, 8} {
		title := fmt.Sprintf("A bucket and a channel, goroutines: %d", goroutines)
		if err := limiterRounds(p, title, single, 1, goroutines); err != nil {
			return err
		}
	}
	for _, goroutines := range []int{1, 8} {
		title := fmt.Sprintf("%d busy channels, goroutines: %d", p.channels, goroutines)
		if err := limiterRounds(p, title, crowd, p.channels, goroutines); err != nil {
			return err
		}
	}
	n := min(p.channels, kept)
	title := fmt.Sprintf("What %d busy channels take", n)
	rows, err := rounds(p.rounds, title, crowd, func(i, _ int) (order, tracing) {
		return order{What: "channels", Peer: crowd[i], Dir: p.dir, Count: n}, tracing{}
	})
	if err != nil {
		return err
	}
	table(title, rows, perChan)
	return nil
}

func limiterRounds(p plan, title string, names []string, channels, goroutines int) error {
	rows, err := rounds(p.rounds, title, names, func(i, _ int) (order, tracing) {
		return order{
			What: "limiter", Peer: names[i], Dir: p.dir, Count: channels, Producers: goroutines, Time: min(p.time, time.Second),
		}, tracing{}
	})
	if err != nil {
		return err
	}
	table(title, rows, perCall, refusedPart, callAlloc)
	return nil
}

// allow takes a slot for a channel.
type allow func(channel string) bool

// openLimiter makes the limiter of that name; with a crowd, every channel stays
// busy: its rule gives a slot a second and holds a million, so that nothing can
// be forgotten. Channels for which ours has no room share one such bucket, which
// ends up refusing.
func openLimiter(ctx context.Context, name string, crowd bool, dir string) (allow, func() error, error) {
	none := func() error { return nil }
	switch name {
	case "ours":
		l, err := ourLimiter(crowd)
		if err != nil {
			return nil, nil, err
		}
		return func(channel string) bool {
			_, _, ok := l.TryReserve(time.Now(), limiter.Call{Channel: channel})
			return ok
		}, none, nil
	case "x/time/rate":
		l := rate.NewLimiter(1e9, 1_000_000)
		return func(string) bool { return l.Allow() }, none, nil
	case "map of x/time/rate":
		return new(limiterMap).allow, none, nil
	case "redis_rate":
		return openRedisRate(ctx, dir)
	}
	return nil, nil, fmt.Errorf("no limiter %q", name)
}

func ourLimiter(crowd bool) (*limiter.RateLimiter, error) {
	cfg := limiter.Config{MessagesPerSecond: 1e9, BurstSize: 1_000_000, PerChannelDelay: time.Nanosecond}
	if !crowd {
		return limiter.New(cfg)
	}
	cfg.PerChannelDelay = 0
	rule := limiter.Rule{Every: time.Second, Burst: 1_000_000}
	return limiter.New(cfg, limiter.WithChannelRules(limiter.ChannelRules{Chat: rule, Group: rule}))
}

// limiterMap is what a program has that needs a bucket for each chat and takes
// golang.org/x/time/rate: a map under a mutex, and the bot's own bucket.
type limiterMap struct {
	mu   sync.Mutex
	all  *rate.Limiter
	each map[string]*rate.Limiter
}

func (m *limiterMap) allow(channel string) bool {
	m.mu.Lock()
	if m.each == nil {
		m.all, m.each = rate.NewLimiter(1e9, 1_000_000), map[string]*rate.Limiter{}
	}
	l, ok := m.each[channel]
	if !ok {
		l = rate.NewLimiter(1, 1_000_000)
		m.each[strings.Clone(channel)] = l
	}
	m.mu.Unlock()
	return m.all.Allow() && l.Allow()
}

// openRedisRate is redis_rate over a Redis of its own that keeps nothing: a
// limiter that processes share.
func openRedisRate(ctx context.Context, dir string) (allow, func() error, error) {
	r, err := startRedis(ctx, dir, "no")
	if err != nil {
		return nil, nil, err
	}
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: r.socket})
	l := redis_rate.NewLimiter(c)
	limit := redis_rate.Limit{Rate: 1_000_000_000, Burst: 1_000_000_000, Period: time.Second}
	return func(channel string) bool {
			got, err := l.Allow(ctx, channel, limit)
			return err == nil && got.Allowed > 0
		}, func() error {
			return errors.Join(c.Close(), r.close())
		}, nil
}

// names are those of so many channels, as long as real ones.
func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = "-100" + strconv.Itoa(1_000_000_000+i)
	}
	rand.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// measureLimiter calls from so many goroutines, each going through all
// channels from a place of its own, or with a single channel, each with its
// own.
func measureLimiter(ctx context.Context, o order, dir string) (result, error) {
	ask, end, err := openLimiter(ctx, o.Peer, o.Count > 1, dir)
	if err != nil {
		return result{}, err
	}
	all := names(max(o.Count, o.Producers))
	for _, name := range all {
		ask(name)
	}
	calls := make([]int, o.Producers)
	refused := make([]int, o.Producers)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := time.Now()
	var group sync.WaitGroup
	for g := range o.Producers {
		group.Go(func() {
			at, step := g*len(all)/o.Producers, min(o.Count-1, 1)
			n, no := 0, 0
			for n%64 != 0 || time.Since(begin) < o.Time {
				if !ask(all[at]) {
					no++
				}
				if at += step; at == len(all) {
					at = 0
				}
				n++
			}
			calls[g], refused[g] = n, no
		})
	}
	group.Wait()
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	n, no := 0, 0
	for g := range calls {
		n, no = n+calls[g], no+refused[g]
	}
	return result{Values: map[string]float64{
		refusedPart: float64(no) / float64(n),
		perCall:     took.Seconds() / float64(n),
		callAlloc:   float64(after.Mallocs-before.Mallocs) / float64(n),
	}}, end()
}

// measureChannels gives the heap that busy channels take.
func measureChannels(ctx context.Context, o order, dir string) (result, error) {
	ask, end, err := openLimiter(ctx, o.Peer, true, dir)
	if err != nil {
		return result{}, err
	}
	all := names(o.Count)
	before := heap()
	for _, name := range all {
		ask(name)
	}
	used := float64(heap()) - float64(before)
	runtime.KeepAlive(all)
	runtime.KeepAlive(ask)
	return result{Values: map[string]float64{perChan: used / float64(o.Count)}}, end()
}

// heap is what is in use after a collection, in bytes.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one let finalisers free
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
