package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver registers itself as "sqlite"
)

// payload is what each message carries: 200 bytes of plain text.
var payload = strings.Repeat("x", 200)

// engine is one of the queues that are compared, open and with its workers
// running. send may be called by all producers at once.
type engine interface {
	// send hands in batch messages and returns when they are on disk.
	send(ctx context.Context, producer int) error

	// batch is how many messages one call of send hands in.
	batch() int

	// servers are the ids of the processes that do a part of the work.
	servers() []int

	close() error
}

// hooks are what an engine tells while it works.
type hooks struct {
	called  func()      // a worker has a message and is about to handle it
	settled func(n int) // the end of n messages is on disk
}

// engines lists the queues by the names that -peers takes.
func engines() map[string]func(ctx context.Context, dir string, h hooks) (engine, error) {
	return map[string]func(context.Context, string, hooks) (engine, error){
		"ours":      openOurs,
		"goqite":    openGoqite,
		"river":     openRiver(1),
		"rivermany": openRiver(riverBatch),
		"riverpg":   openRiverPostgres(1),
		"asynq":     openAsynq,
	}
}

// openSQLite opens a database of a peer with the durability of our own store:
// WAL and synchronous=FULL.
func openSQLite(dir string, conns int) (*sql.DB, error) {
	path := filepath.Join(dir, "peer.db")
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"+
		"&_pragma=foreign_keys(1)&_pragma=temp_store(MEMORY)&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// idle is an engine's part for those without servers of their own.
type idle struct{}

func (idle) servers() []int { return nil }

// pause between two looks of a peer that can only poll.
const pause = time.Millisecond
