package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// BenchmarkDelivery is the life of a message under load: one batch stores it as
// sending, with the limiter's anchors, and another one settles it.
func BenchmarkDelivery(b *testing.B) {
	for _, where := range []struct{ name, dir string }{{"memory", "/dev/shm"}, {"disk", ""}} {
		for _, producers := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/producers=%d", where.name, producers), func(b *testing.B) {
				if _, err := os.Stat(where.dir); err != nil && where.dir != "" {
					b.Skipf("%s is not there", where.dir)
				}
				benchmarkDelivery(b, where.dir, producers)
			})
		}
	}
}

func benchmarkDelivery(b *testing.B, dir string, producers int) {
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
	before := s.Commits()
	b.ReportAllocs()
	b.ResetTimer()
	var messages atomic.Int64
	var group sync.WaitGroup
	for i := range producers {
		group.Go(func() {
			e := entry(chat.ChatID(strconv.Itoa(100_000_000+i)), strings.Repeat("x", 200))
			e.State = outbox.Sending
			fresh, settled, anchors := []outbox.Entry{e}, make([]outbox.Settlement, 1), make([]limiter.Anchors, 1)
			for messages.Add(1) <= int64(b.N) {
				now := time.Now()
				anchors[0] = limiter.Anchors{Scope: "s", At: now}
				a, err := s.Apply(b.Context(), outbox.Batch{Owner: o, At: now, New: fresh, Anchors: anchors})
				if err != nil {
					b.Error(err)
					return
				}
				settled[0] = outbox.Settlement{
					ID: a.New[0].ID, State: outbox.Sent, Delivered: true, Receipt: "12345", Log: outbox.Attempt{At: now, Kind: "sent"},
				}
				if _, err := s.Apply(b.Context(), outbox.Batch{Owner: o, At: now, Settled: settled}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
	b.ReportMetric(float64(s.Commits()-before)/float64(b.N), "commits/op")
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
