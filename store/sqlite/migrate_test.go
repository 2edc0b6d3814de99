package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pressly/goose/v3"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/store/sqlite"
)

// schemaOne makes a store as the first version of the schema had it, with an
// entry in each state and whatever statements say.
func schemaOne(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p, err := goose.NewProvider(goose.DialectSQLite3, db, os.DirFS("migrations"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for state := outbox.Queued; state <= outbox.Cancelled; state++ {
		ended, key := 0, any(nil)
		if !state.Pending() {
			ended = 7_000_000
		}
		if state == outbox.Sent {
			key = "key"
		}
		_, err := db.ExecContext(t.Context(), `INSERT INTO entries VALUES (?, 'support', '-100', 't', ?, 3, ?, x'0102', 1000000, 2000000,
			3000000, 4, 1, 1, 1, 5000000, ?, 'reason', ?, ?, ?)`, 10*int(state), int(state), key, ended,
			"\"r1\"\n\"r\\n2\"\n", `{"at":"2026-11-30T12:00:00Z","part":0,"kind":"sent"}`+"\n",
			`[{"text":"<b>one</b>","markup":"HTML","fallback":"one"},{"text":"two"},{"text":"three"}]`)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range statements {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

func TestOpen_bringsTheFirstSchemaUpToDate(t *testing.T) {
	path := newPath(t)
	schemaOne(
		t, path, `INSERT INTO bots VALUES ('support', 5, 1)`,
		`INSERT INTO dead_targets VALUES ('support', '1', 'blocked', '403', 1, 2, 3, 4)`,
		`INSERT INTO events (bot, event_id, state, received_at, body) VALUES ('support', 'e', 1, 1, '{"id":"e"}')`,
	)
	s := open(t, path)
	for state := outbox.Queued; state <= outbox.Cancelled; state++ {
		want := outbox.Entry{
			ID: outbox.ID(10 * state), Target: chat.Target{Bot: "support", Chat: "-100", Thread: "t"}, State: state, Priority: outbox.Reply,
			Fingerprint: []byte{1, 2}, NotBefore: time.Unix(1, 0), ExpiresAt: time.Unix(2, 0), Due: time.Unix(3, 0),
			Attempts: 4, Uncertain: 1, Degraded: true, MayBeDuplicate: true, CreatedAt: time.Unix(5, 0), Reason: "reason",
			Receipts: []chat.Receipt{"r1", "r\n2"}, Log: []outbox.Attempt{{At: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Kind: "sent"}},
			Parts: []chat.Part{{Text: "<b>one</b>", Markup: "HTML", Fallback: "one"}, {Text: "two"}, {Text: "three"}},
		}
		if !state.Pending() {
			want.EndedAt = time.Unix(7, 0)
		}
		if state == outbox.Sent {
			want.Key = "key"
		}
		entries, err := s.Read(t.Context(), want.ID)
		if err != nil || len(entries) != 1 {
			t.Fatalf("Read(%d) = %v, %v", want.ID, entries, err)
		}
		if diff := cmp.Diff(want, entries[0]); diff != "" {
			t.Errorf("the %v entry differs (-want +got):\n%s", state, diff)
		}
	}
	o, err := s.Acquire(t.Context(), "support")
	if err != nil || o.Epoch != 6 {
		t.Errorf("Acquire() = %v, %v, want epoch 6", o, err)
	}
	if got, err := s.Heads(t.Context(), o, 0); err != nil || len(got) != 3 || !got[0].Begun {
		t.Errorf("Heads() = %v, %v, want the three pending ones, all known to the owner", got, err)
	}
	if n, err := s.Count(t.Context(), outbox.Filter{Untold: true, Open: true}); err != nil || n != 1 {
		t.Errorf("Count() = %d, %v, want the dead letter", n, err)
	}
	a, err := s.Apply(t.Context(), outbox.Batch{Owner: o, New: []outbox.Entry{{
		Target: chat.Target{Bot: "support", Chat: "1"}, State: outbox.Queued, Key: "key", Fingerprint: []byte{1, 2},
	}, entry("1", "x")}})
	if err != nil || a.New[0] != (outbox.Stored{ID: 40, Duplicate: true}) || a.New[1].ID != 71 {
		t.Errorf("Apply() = %v, %v, want the known key's entry, and the next id", a, err)
	}
	if b, err := s.Load(t.Context(), o); err != nil || len(b.Dead) != 1 {
		t.Errorf("Load() = %v, %v, want the dead target", b, err)
	}
	if got := query(t, path, `PRAGMA integrity_check`); got != "ok" {
		t.Errorf("integrity_check says %q", got)
	}
}

func TestOpen_leavesTheFileAloneWhenAMigrationFails(t *testing.T) {
	path := newPath(t)
	schemaOne(t, path, `CREATE TABLE entries_untold (a)`) // in the way of the migration's last steps
	refused(t, path, "bring the schema up to date", "entries_untold")
	const want = "10/1 20/2 30/3 40/4 50/5 60/6 70/7, schema 1"
	got := query(t, path, `SELECT group_concat(id || '/' || state, ' ') || ', schema ' || (SELECT max(version_id) FROM goose_db_version) FROM entries`)
	if got != want {
		t.Errorf("the file holds %q, want %q", got, want)
	}
	query(t, path, `DROP TABLE entries_untold`)
	s := open(t, path)
	if n, err := s.Count(t.Context(), outbox.Filter{}); err != nil || n != 7 {
		t.Errorf("Count() = %d, %v, want 7 once nothing stands in the way", n, err)
	}
}

func TestOpen_givesUpAMigrationWithItsContext(t *testing.T) {
	path := newPath(t)
	schemaOne(t, path)
	before := contents(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, err := sqlite.Open(ctx, path)
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Open() = %v, want context.Canceled", err)
	}
	if !bytes.Equal(before, contents(t, path)) {
		t.Errorf("the file was changed")
	}
}
