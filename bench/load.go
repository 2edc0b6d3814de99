package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	window = 5_000 // messages that have not ended: who hands in more waits
	probes = 40    // single calls through an idle engine
)

// children are what a child can measure, in a folder that is removed after it.
func children() map[string]func(ctx context.Context, o order, dir string) (result, error) {
	return map[string]func(context.Context, order, string) (result, error){
		"queue":    measureQueue,
		"limiter":  measureLimiter,
		"channels": measureChannels,
		"fill":     fillStore,
		"dispatch": measureDispatch,
		"memory":   measureBacklog,
	}
}

// runChild measures what the order says and writes the result.
func runChild(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	dir, err := os.MkdirTemp(o.Dir, "gateway-peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r, err := children()[o.What](context.Background(), o, dir)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// load drives one engine.
type load struct {
	engine  engine
	room    *semaphore.Weighted
	called  chan struct{} // holds a token after a worker was called, while probing
	probing atomic.Bool

	mu    sync.Mutex
	waits []time.Duration // of the calls of send
}

func measureQueue(ctx context.Context, o order, dir string) (result, error) {
	l := &load{room: semaphore.NewWeighted(window), called: make(chan struct{}, 1)}
	e, err := engines()[o.Peer](ctx, dir, hooks{
		called: func() {
			if l.probing.Load() {
				l.called <- struct{}{}
			}
		},
		settled: func(n int) { l.room.Release(int64(n)) },
	})
	if err != nil {
		return result{}, err
	}
	l.engine = e
	r, err := l.measure(ctx, o)
	return r, errors.Join(err, e.close())
}

func (l *load) measure(ctx context.Context, o order) (result, error) {
	if _, err := l.run(ctx, o.Producers, 300*time.Millisecond); err != nil { // warms up
		return result{}, err
	}
	stop, err := startProfile(o.Profile)
	if err != nil {
		return result{}, err
	}
	l.waits = nil
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := usedCPU(l.engine.servers())
	begin := time.Now()
	n, err := l.run(ctx, o.Producers, o.Time)
	if err != nil {
		return result{}, err
	}
	end := time.Now()
	cpu = usedCPU(l.engine.servers()) - cpu
	runtime.ReadMemStats(&after)
	if err := stop(); err != nil {
		return result{}, err
	}
	latency, err := l.probe(ctx)
	if err != nil {
		return result{}, err
	}
	each := func(v float64) float64 { return v / float64(n) }
	return result{
		Begin: begin.UnixMicro(), End: end.UnixMicro(),
		Values: map[string]float64{
			messages:  float64(n),
			perSecond: float64(n) / end.Sub(begin).Seconds(),
			acceptP50: seconds(l.waits, 0.50),
			acceptP99: seconds(l.waits, 0.99),
			toWireP50: seconds(latency, 0.50),
			allocs:    each(float64(after.Mallocs - before.Mallocs)),
			bytes:     each(float64(after.TotalAlloc - before.TotalAlloc)),
			cpuTime:   each(cpu.Seconds()),
		},
	}, nil
}

// run hands in messages for so long, waits until all have ended, and says how
// many there were.
func (l *load) run(ctx context.Context, producers int, d time.Duration) (int, error) {
	var total atomic.Int64
	var failed atomic.Pointer[error]
	var group sync.WaitGroup
	end := time.Now().Add(d)
	size := l.engine.batch()
	for p := range producers {
		group.Go(func() {
			var waits []time.Duration
			for l.room.Acquire(ctx, int64(size)) == nil {
				begin := time.Now()
				if begin.After(end) {
					l.room.Release(int64(size))
					break
				}
				if err := l.engine.send(ctx, p); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				waits = append(waits, time.Since(begin))
				total.Add(int64(size))
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.waits = append(l.waits, waits...)
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return 0, fmt.Errorf("hand in: %w", *err)
	}
	return int(total.Load()), l.drain(ctx)
}

// drain waits until everything has ended.
func (l *load) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := l.room.Acquire(ctx, window); err != nil {
		return fmt.Errorf("wait for the last message: %w", err)
	}
	l.room.Release(window)
	return nil
}

// probe sends single messages through the idle engine and gives the times from
// the begin of the call to the worker.
func (l *load) probe(ctx context.Context) ([]time.Duration, error) {
	l.probing.Store(true)
	var latency []time.Duration
	size := l.engine.batch()
	for range probes / min(size, 8) { // a call with a thousand takes long to end
		time.Sleep(5*time.Millisecond + rand.N(10*time.Millisecond)) // out of step with who polls
		if err := l.room.Acquire(ctx, int64(size)); err != nil {
			return nil, err
		}
		sent := make(chan error, 1)
		begin := time.Now()
		go func() { sent <- l.engine.send(ctx, 0) }()
		<-l.called
		latency = append(latency, time.Since(begin))
		for range size - 1 {
			<-l.called
		}
		if err := <-sent; err != nil {
			return nil, err
		}
		if err := l.drain(ctx); err != nil {
			return nil, err
		}
	}
	return latency, nil
}

// seconds gives a quantile.
func seconds(ds []time.Duration, q float64) float64 {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	return ds[min(int(q*float64(len(ds))), len(ds)-1)].Seconds()
}

// startProfile profiles the processor until stop, which writes the memory's
// profile too.
func startProfile(dir string) (stop func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}
	cpu, err := os.Create(filepath.Join(dir, "cpu.pprof"))
	if err != nil {
		return nil, err
	}
	mem, err := os.Create(filepath.Join(dir, "mem.pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		err := pprof.Lookup("allocs").WriteTo(mem, 0)
		return errors.Join(err, cpu.Close(), mem.Close())
	}, nil
}
