package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	riverBatch   = 1000 // jobs of one InsertMany
	riverWorkers = 1000 // so many jobs are fetched at once
)

// riverArgs is a job with a payload.
type riverArgs struct {
	Text string `json:"text"`
}

// Kind names the job.
func (riverArgs) Kind() string { return "bench" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]

	called func()
}

// Work does nothing.
func (w *riverWorker) Work(context.Context, *river.Job[riverArgs]) error {
	w.called()
	return nil
}

// riverQueue is River over one of its drivers.
type riverQueue[Tx any] struct {
	idle

	size   int
	client *river.Client[Tx]
	done   chan struct{} // closed when the last event is counted
	end    func() error  // closes the database
}

func openRiver(size int) func(context.Context, string, hooks) (engine, error) {
	return func(ctx context.Context, dir string, h hooks) (engine, error) {
		db, err := openSQLite(dir, 1)
		if err != nil {
			return nil, err
		}
		return startRiver[*sql.Tx](ctx, riversqlite.New(db), size, h, db.Close)
	}
}

// openRiverPostgres is River where it is at home. The database is named by
// BENCH_POSTGRES, and what it holds of River's is dropped first.
func openRiverPostgres(size int) func(context.Context, string, hooks) (engine, error) {
	return func(ctx context.Context, _ string, h hooks) (engine, error) {
		pool, err := pgxpool.New(ctx, os.Getenv("BENCH_POSTGRES"))
		if err != nil {
			return nil, fmt.Errorf("open BENCH_POSTGRES: %w", err)
		}
		end := func() error { pool.Close(); return nil }
		driver := riverpgxv5.New(pool)
		m, err := rivermigrate.New(driver, nil)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		if _, err := m.Migrate(ctx, rivermigrate.DirectionDown, &rivermigrate.MigrateOpts{TargetVersion: -1}); err != nil {
			return nil, errors.Join(fmt.Errorf("drop river's tables: %w", err), end())
		}
		return startRiver(ctx, driver, size, h, end)
	}
}

func startRiver[Tx any](ctx context.Context, driver riverdriver.Driver[Tx], size int, h hooks, end func() error) (engine, error) {
	m, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, errors.Join(err, end())
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("make river's tables: %w", err), end())
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{called: h.called})
	client, err := river.NewClient(driver, &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Workers:           workers,
		FetchCooldown:     river.FetchCooldownMin,
		FetchPollInterval: riverPoll,
		PollOnly:          true,
		Logger:            slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, errors.Join(err, end())
	}
	events, _ := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: 1_000_000, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	q := &riverQueue[Tx]{size: size, client: client, done: make(chan struct{}), end: end}
	go func() {
		defer close(q.done)
		for range events {
			h.settled(1)
		}
	}()
	if err := client.Start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start river: %w", err), end())
	}
	return q, nil
}

// riverPoll is how often River looks for jobs.
const riverPoll = 5 * time.Millisecond

func (q *riverQueue[Tx]) batch() int { return q.size }

func (q *riverQueue[Tx]) send(ctx context.Context, _ int) error {
	if q.size == 1 {
		_, err := q.client.Insert(ctx, riverArgs{payload}, nil)
		return err
	}
	many := make([]river.InsertManyParams, q.size)
	for i := range many {
		many[i].Args = riverArgs{payload}
	}
	_, err := q.client.InsertManyFast(ctx, many)
	return err
}

func (q *riverQueue[Tx]) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := q.client.Stop(ctx)
	<-q.done
	return errors.Join(err, q.end())
}
