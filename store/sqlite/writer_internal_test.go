package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/limiter"
	"github.com/chatgateway/gateway/outbox"
)

func openShort(t *testing.T, path string) *Store {
	t.Helper()
	s, err := openWith(t.Context(), path, 50*time.Millisecond)
	if err != nil {
		t.Fatalf("Open() failed: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close() failed: %v", err)
		}
	})
	return s
}

func batch(texts ...string) outbox.Batch {
	b := outbox.Batch{At: time.UnixMicro(1)}
	for _, text := range texts {
		b.New = append(b.New, outbox.Entry{
			Target: chat.Target{Bot: "support", Chat: "1"}, State: outbox.Queued, Priority: outbox.Bulk, Parts: []chat.Part{{Text: text}},
		})
	}
	return b
}

func count(t *testing.T, s *Store) int {
	t.Helper()
	var n int
	if err := s.read.QueryRowContext(t.Context(), `SELECT count(*) FROM entries`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// grouped makes the calls in one commit: they wait while another one runs.
func grouped(s *Store, calls ...func() error) []error {
	errs := make([]error, len(calls))
	var group sync.WaitGroup
	_ = s.write(func() error {
		for i, call := range calls {
			group.Go(func() {
				defer func() {
					if p := recover(); p != nil {
						errs[i] = p.(error) //nolint:forcetypeassert // these tests panic with errors
					}
				}()
				errs[i] = call()
			})
			for queued := false; !queued; {
				s.w.mu.Lock()
				queued = len(s.w.waiting) == i+1
				s.w.mu.Unlock()
			}
		}
		return nil
	})
	group.Wait()
	return errs
}

// changing is a call that runs a change of its own.
func changing(s *Store, run func() error) func() error {
	return func() error { return s.write(run) }
}

func insert(s *Store, name string) func() error {
	return changing(s, half(s, name))
}

func half(s *Store, name string) func() error {
	return func() error { return s.conn.exec(`INSERT INTO bots VALUES (?, 1, 0)`, text(name)) }
}

func bots(t *testing.T, s *Store) string {
	t.Helper()
	var names string
	if err := s.read.QueryRowContext(t.Context(), `SELECT coalesce(group_concat(name, ' '), '') FROM bots`).Scan(&names); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestWriter_leavesOutOnlyTheChangeThatFails(t *testing.T) {
	s := openShort(t, filepath.Join(t.TempDir(), "gateway.db"))
	broken, panicked := errors.New("broken"), errors.New("panicked")
	before := s.Commits()
	errs := grouped(
		s, insert(s, "a"),
		changing(s, func() error { return errors.Join(half(s, "half")(), broken) }),
		insert(s, "b"),
		changing(s, func() error {
			_ = half(s, "half")()
			panic(panicked)
		}),
		changing(s, func() error { return outbox.ErrNotOwner }),
		insert(s, "c"), insert(s, "c"),
	)
	for i, want := range []error{nil, broken, nil, panicked, outbox.ErrNotOwner, nil} {
		if !errors.Is(errs[i], want) {
			t.Errorf("change %d: %v, want %v", i, errs[i], want)
		}
	}
	if errs[6] == nil {
		t.Errorf("the second c was stored")
	}
	if got := bots(t, s); got != "a b c" {
		t.Errorf("stored is %q, want a b c", got)
	}
	if got := s.Commits() - before; got != 2 {
		t.Errorf("%d commits, want 2: the one that was waited for, and one for all others", got)
	}
	if _, err := s.Apply(t.Context(), batch("after")); err != nil {
		t.Errorf("Apply() afterwards = %v, want nil", err)
	}
}

func TestWriter_answersAllWhenTheCommitFails(t *testing.T) {
	s := openShort(t, filepath.Join(t.TempDir(), "gateway.db"))
	commit := s.stmt.commit
	bad, err := s.conn.prepare(`INSERT INTO bots VALUES ('bad', NULL, 0)`)
	if err != nil {
		t.Fatal(err)
	}
	defer bad.close()
	_ = s.write(func() error { return nil })
	s.stmt.commit = bad
	for i, err := range grouped(s, insert(s, "a"), insert(s, "b"), insert(s, "c")) {
		if err == nil || !strings.Contains(err.Error(), "commit: ") || !strings.Contains(err.Error(), s.path) {
			t.Errorf("change %d: %v, want the commit's error with the path", i, err)
		}
	}
	s.stmt.commit = commit
	if got := bots(t, s); got != "" {
		t.Errorf("stored is %q, want nothing", got)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping() = %v, want nil", err)
	}
	for i, err := range grouped(s, insert(s, "a"), insert(s, "b")) {
		if err != nil {
			t.Errorf("change %d afterwards: %v", i, err)
		}
	}
}

func TestWriter_doesOnceWhatACommitNeedsOnce(t *testing.T) {
	s := openShort(t, filepath.Join(t.TempDir(), "gateway.db"))
	o, err := s.Acquire(t.Context(), "support")
	if err != nil {
		t.Fatal(err)
	}
	at := time.UnixMicro(1_000_000)
	channel := func(name string, delay time.Duration) limiter.ChannelAnchor {
		return limiter.ChannelAnchor{Channel: name, DelayUntil: at.Add(delay)}
	}
	apply := func(o outbox.Owner, tokens float64, cleared bool, channels ...limiter.ChannelAnchor) func() error {
		return func() error {
			b := batch("x")
			b.Owner, b.Anchors = o, []limiter.Anchors{{Scope: "s", At: at, Tokens: tokens, Cleared: cleared, Channels: channels}}
			_, err := s.Apply(t.Context(), b)
			return err
		}
	}
	var next outbox.Owner
	errs := grouped(
		s, apply(o, 1, false, channel("1", 1), channel("2", 1)),
		apply(o, 2, true, channel("3", time.Minute), channel("4", time.Minute)),
		apply(o, 3, false, channel("3", time.Hour)),
		apply(outbox.Owner{Bot: "support", Epoch: 99}, 4, true),
		func() (err error) {
			next, err = s.Acquire(t.Context(), "support")
			return err
		},
		apply(o, 5, false),
	)
	for i, want := range []error{nil, nil, nil, outbox.ErrNotOwner, nil, outbox.ErrNotOwner} {
		if !errors.Is(errs[i], want) {
			t.Errorf("call %d: %v, want %v", i, errs[i], want)
		}
	}
	if err := apply(next, math.NaN(), false)(); err == nil {
		t.Errorf("anchors that are not a number were stored")
	}
	if n := count(t, s); n != 3 {
		t.Errorf("%d entries are stored, want 3", n)
	}
	b, err := s.Load(t.Context(), next)
	if err != nil || len(b.Anchors) != 1 || b.Anchors[0].Tokens != 3 {
		t.Fatalf("the anchors are %+v, %v, want the third call's", b.Anchors, err)
	}
	got := map[string]time.Duration{}
	for _, c := range b.Anchors[0].Channels {
		got[c.Channel] = c.DelayUntil.Sub(at)
	}
	if want := map[string]time.Duration{"3": time.Hour, "4": time.Minute}; !maps.Equal(got, want) {
		t.Errorf("the channels are %v, want %v", got, want)
	}
}

// lock takes the file's lock as another process would.
func lock(t *testing.T, path string) (release func()) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), `BEGIN EXCLUSIVE`); err != nil {
		t.Fatal(err)
	}
	return func() {
		_, err := conn.ExecContext(context.WithoutCancel(t.Context()), `ROLLBACK`)
		if err := errors.Join(err, conn.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestStore_saysThatAnotherProcessHoldsTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := openShort(t, path)
	release := lock(t, path)
	const callers = 64
	start := time.Now()
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			_, err := s.Apply(t.Context(), batch("x"))
			for _, w := range []string{path, "another program holds the database's lock"} {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("Apply() = %v, want it to say %q", err, w)
				}
			}
		})
	}
	group.Wait()
	if took := time.Since(start); took > callers*50*time.Millisecond/2 {
		t.Errorf("%d callers waited %v: each for itself", callers, took)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Errorf("Ping() = nil while the lock is held")
	}
	release()
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping() = %v, want nil", err)
	}
	if _, err := s.Apply(t.Context(), batch("x")); err != nil {
		t.Errorf("Apply() = %v, want nil", err)
	}
	if n := count(t, s); n != 1 {
		t.Errorf("%d entries are stored, want 1", n)
	}
}

func TestOpen_saysThatAnotherProcessHoldsTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.db")
	release := lock(t, path) // of a database that has no schema yet
	s, err := openWith(t.Context(), path, 50*time.Millisecond)
	if err == nil {
		s.Close()
	}
	release()
	for _, w := range []string{path, "another program holds the database's lock"} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("Open() = %v, want it to say %q", err, w)
		}
	}
	openShort(t, path)
}

func TestPing_believesAfterAFailureOnlyAWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := openShort(t, path)
	size := func() int64 {
		info, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := size()
	if err := s.Ping(t.Context()); err != nil || size() != before {
		t.Errorf("Ping() = %v and wrote %d bytes, want nil and 0", err, size()-before)
	}
	_ = s.write(func() error { return errors.New("broken") })
	_ = s.write(func() error { return outbox.ErrNotOwner }) // proves nothing
	if err := s.Ping(t.Context()); err != nil || size() == before {
		t.Errorf("Ping() after a failure = %v and wrote nothing, want a write", err)
	}
	before = size()
	if err := s.Ping(t.Context()); err != nil || size() != before {
		t.Errorf("Ping() = %v and wrote %d bytes, want nil and 0", err, size()-before)
	}
}

// pragma asks the writing connection.
func (s *Store) pragma(name string) (got string, err error) {
	st, err := s.conn.prepare("PRAGMA " + name)
	if err != nil {
		return "", err
	}
	err = st.each(func() error {
		got = st.text(0)
		return nil
	})
	return got, errors.Join(err, st.close())
}

func TestStore_setsItsPragmasOnEveryConnection(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "gateway.db"))
	if err != nil {
		t.Fatal(err)
	}
	conns := map[string]*sql.Conn{"writing": nil}
	for _, name := range []string{"first reading", "second reading"} {
		if conns[name], err = s.read.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for name, conn := range conns {
		for pragma, want := range map[string]string{
			"journal_mode": "wal", "synchronous": "2", "busy_timeout": "5000", "foreign_keys": "1", "temp_store": "2",
			"journal_size_limit": "67108864", "wal_autocheckpoint": "1000",
			"query_only": map[bool]string{true: "0", false: "1"}[conn == nil],
		} {
			var got string
			if conn != nil {
				err = conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got)
			} else {
				got, err = s.pragma(pragma)
			}
			if err != nil || got != want {
				t.Errorf("%s connection: %s is %q, %v, want %q", name, pragma, got, err, want)
			}
		}
		if conn != nil {
			conn.Close()
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// While a reader holds an old state the WAL can only grow. No call of the
// store leaves a reader open, so it grows for one query at most, and is used
// anew, not lengthened, after that.
func TestStore_usesTheWALAnewAfterALongReader(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := openShort(t, path)
	size := func() int64 {
		info, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	write := func() {
		for range 60 {
			if _, err := s.Apply(t.Context(), batch(strings.Repeat("x", 100_000))); err != nil {
				t.Fatal(err)
			}
		}
	}
	write()
	free := size()
	if free > 5<<20 {
		t.Errorf("the WAL has %d bytes with nobody reading, want about 4 MiB", free)
	}
	tx, err := s.read.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRowContext(t.Context(), `SELECT count(*) FROM entries`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	write()
	held := size()
	if held < free+(1<<20) {
		t.Errorf("the WAL has %d bytes beside a long reader and %d without: the test shows nothing", held, free)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	write()
	write()
	if got := size(); got > held+(1<<20) {
		t.Errorf("the WAL grew on from %d to %d bytes after the reader had ended", held, got)
	}
	for range 20 {
		if _, err := s.Load(t.Context(), outbox.Owner{Bot: "support"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.read.Stats().InUse; got != 0 {
		t.Errorf("%d readers are left open", got)
	}
}
