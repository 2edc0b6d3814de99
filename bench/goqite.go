package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"maragu.dev/goqite"
)

// goqiteQueue is maragu.dev/goqite with receivers that delete what they got.
type goqiteQueue struct {
	idle

	db    *sql.DB
	queue *goqite.Queue
	stop  context.CancelFunc
	group sync.WaitGroup
}

func openGoqite(ctx context.Context, dir string, h hooks) (engine, error) {
	db, err := openSQLite(dir, 1)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, goqiteSchema); err != nil {
		return nil, errors.Join(fmt.Errorf("make goqite's table: %w", err), db.Close())
	}
	q := &goqiteQueue{db: db, queue: goqite.New(goqite.NewOpts{DB: db, Name: "bench", Timeout: time.Minute})}
	ctx, q.stop = context.WithCancel(ctx)
	for range goqiteReceivers {
		q.group.Go(func() { q.receive(ctx, h) })
	}
	return q, nil
}

func (q *goqiteQueue) receive(ctx context.Context, h hooks) {
	for {
		m, err := q.queue.ReceiveAndWait(ctx, pause)
		if err != nil {
			return
		}
		h.called()
		if err := q.queue.Delete(context.WithoutCancel(ctx), m.ID); err != nil {
			fmt.Fprintln(os.Stderr, "goqite: delete:", err)
			return
		}
		h.settled(1)
	}
}

func (q *goqiteQueue) batch() int { return 1 }

func (q *goqiteQueue) send(ctx context.Context, _ int) error {
	return q.queue.Send(ctx, goqite.Message{Body: []byte(payload)})
}

func (q *goqiteQueue) close() error {
	q.stop()
	q.group.Wait()
	return q.db.Close()
}

// goqiteReceivers is the number that served goqite best.
const goqiteReceivers = 1

// goqiteSchema is schema_sqlite.sql of goqite 0.4.0, which gives no way to
// read it from the module.
const goqiteSchema = `
create table goqite (
  id text primary key default ('m_' || lower(hex(randomblob(16)))),
  created text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
  updated text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
  queue text not null,
  body blob not null,
  timeout text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
  received integer not null default 0,
  priority integer not null default 0
) strict;

create trigger goqite_updated_timestamp after update on goqite begin
  update goqite set updated = strftime('%Y-%m-%dT%H:%M:%fZ') where id = old.id;
end;

create index goqite_queue_priority_created_idx on goqite (queue, priority desc, created);`
