package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/store/sqlite"
)

// BenchmarkApply is the life of a message under load: one batch stores an entry
// as sending, settles the one before it, and carries the limiter's anchors.
func BenchmarkApply(b *testing.B) {
	for _, where := range []struct{ name, dir string }{{"memory", "/dev/shm"}, {"disk", ""}} {
		for _, producers := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/producers=%d", where.name, producers), func(b *testing.B) {
				if _, err := os.Stat(where.dir); err != nil && where.dir != "" {
					b.Skipf("%s is not there", where.dir)
				}
				benchmarkApply(b, where.dir, producers)
			})
		}
	}
}

func benchmarkApply(b *testing.B, dir string, producers int) {
	b.Helper()
	if dir == "" {
		dir = b.TempDir()
	} else {
		var err error
		if dir, err = os.MkdirTemp(dir, "gateway-bench-"); err != nil { //nolint:usetesting // in memory
			b.Fatal(err)
		}
		b.Cleanup(func() { os.RemoveAll(dir) })
	}
	s := open(b, filepath.Join(dir, "gateway.db"))
	o, err := s.Acquire(b.Context(), "support")
	if err != nil {
		b.Fatal(err)
	}
	e := entry("1", strings.Repeat("x", 200))
	e.State = outbox.Sending
	before := s.Commits()
	b.ReportAllocs()
	b.ResetTimer()
	var calls atomic.Int64
	var group sync.WaitGroup
	for range producers {
		group.Go(func() {
			var settled []outbox.Settlement
			for calls.Add(1) <= int64(b.N) {
				now := time.Now()
				a, err := s.Apply(b.Context(), outbox.Batch{
					Owner: o, At: now, New: []outbox.Entry{e}, Settled: settled,
					Anchors: []limiter.Anchors{{Scope: "s", At: now, Channels: []limiter.ChannelAnchor{{Channel: "1", DelayUntil: now}}}},
				})
				if err != nil {
					b.Error(err)
					return
				}
				settled = []outbox.Settlement{{
					ID: a.New[0].ID, State: outbox.Sent, Delivered: true, Receipt: "12345", Log: outbox.Attempt{At: now, Kind: "sent"},
				}}
			}
		})
	}
	group.Wait()
	b.StopTimer()
	b.ReportMetric(float64(s.Commits()-before)/float64(b.N), "commits/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// backlog stores so many pending entries, ten for a chat.
func backlog(b *testing.B, s *sqlite.Store, n int) {
	b.Helper()
	entries := slices.Repeat([]outbox.Entry{entry("1", strings.Repeat("x", 200))}, n)
	for i := range entries {
		entries[i].Target.Chat = chat.ChatID(fmt.Sprint(i % (n / 10)))
	}
	for chunk := range slices.Chunk(entries, 10_000) {
		if _, err := s.Apply(b.Context(), outbox.Batch{New: chunk}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBacklog(b *testing.B) {
	const pending = 200_000
	path := newPath(b)
	s := open(b, path)
	backlog(b, s, pending)
	o, err := s.Acquire(b.Context(), "support")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("heads", func(b *testing.B) {
		for b.Loop() {
			if got := heads(b, s, o); len(got) < pending/2 {
				b.Fatalf("%d heads", len(got))
			}
		}
	})
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if err := open(b, path).Ping(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := s.Read(b.Context(), outbox.ID(1+i%pending)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("end", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			ending := outbox.Ending{State: outbox.Dead, Reason: "gone"}
			for n := range 10 {
				ending.IDs = append(ending.IDs, outbox.ID(1+(i+n*pending/10)%pending))
			}
			if _, err := s.Apply(b.Context(), outbox.Batch{Owner: o, Ended: []outbox.Ending{ending}}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("prune", func(b *testing.B) {
		for b.Loop() {
			if err := s.Prune(b.Context(), retention, time.Now()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
