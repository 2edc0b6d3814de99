package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

const (
	// walBound is several times what the WAL has when nobody stands in the way:
	// it is used anew after each 1,000 pages.
	walBound = 32 << 20 // bytes

	measureEvery = 16          // commits
	tendEvery    = time.Second // while the WAL is too large
	afterFailure = time.Minute // before Tend tries again
	usualPages   = 1000        // in the WAL, before a commit writes them to the database
)

// measure tells Tend, from time to time, that the WAL is too large. The caller
// has the pen.
func (s *Store) measure(commits uint64) {
	if commits%measureEvery != 0 || s.walSize() <= s.walBound {
		return
	}
	select {
	case s.swollen <- struct{}{}:
	default:
	}
}

// walSize is 0 for a WAL that is not there.
func (s *Store) walSize() int64 {
	info, err := os.Stat(s.path + "-wal")
	if err != nil {
		return 0
	}
	return info.Size()
}

// Tend keeps the WAL small until ctx ends. A program that reads the file for
// long makes it grow with every commit: Tend warns of that once, and cuts it
// back within seconds after the reader has let go. While the WAL is small, it
// only waits.
func (s *Store) Tend(ctx context.Context, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.swollen:
			warned, err := s.cutBack(ctx, log)
			switch {
			case ctx.Err() != nil:
			case err != nil:
				log.WarnContext(ctx, "the WAL of the database could not be cut back", "path", s.path, "size", s.walSize(), "err", err)
				rest(ctx, afterFailure)
			case warned:
				log.InfoContext(ctx, "the WAL of the database was cut back", "path", s.path)
			}
		}
	}
}

func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// cutBack works until the WAL is empty, or ctx has ended. Meanwhile commits
// leave its pages to a connection of its own, beside which they go on: a commit
// that finds a large WAL free would else write it all to the database while
// everybody waits.
func (s *Store) cutBack(ctx context.Context, log *slog.Logger) (warned bool, err error) {
	c, err := connect(s.path, 0)
	if err != nil {
		return false, fmt.Errorf("control store %s: %w", s.path, explain(err))
	}
	defer func() { err = errors.Join(err, c.close(), s.checkpointAfter(usualPages)) }()
	if err := s.checkpointAfter(0); err != nil {
		return false, err
	}
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		if done, err := s.emptyWAL(c); err != nil || done {
			return warned, err
		}
		if n == 1 { // the first time it may have been one of our own short reads
			warned = true
			log.WarnContext(ctx, "another program has been reading the database for long: the WAL grows with every commit until it lets go",
				"path", s.path, "size", s.walSize())
		}
		select {
		case <-ctx.Done():
			return warned, nil
		case <-tick.C:
		}
	}
}

// checkpointAfter sets with how many pages in the WAL a commit writes them to
// the database; 0 for never.
func (s *Store) checkpointAfter(pages int32) error {
	return s.withPen(func() error {
		return s.conn.check(sqlite3.Xsqlite3_wal_autocheckpoint(s.conn.tls, s.conn.db, pages))
	})
}

// emptyWAL writes the WAL's pages to the database as far as readers let it, and
// cuts the file back if that was all.
func (s *Store) emptyWAL(c *connection) (done bool, err error) {
	if all, err := c.checkpoint("PASSIVE"); err != nil || !all {
		return false, err
	}
	err = s.withPen(func() (err error) { // what came meanwhile is little
		s.conn.patience(0)
		defer s.conn.patience(s.busy)
		done, err = s.conn.checkpoint("TRUNCATE")
		return err
	})
	return done, err
}

// checkpoint reports whether all pages of the WAL have come into the database,
// and, with TRUNCATE, that it is empty now.
func (c *connection) checkpoint(mode string) (all bool, err error) {
	st, err := c.prepare("PRAGMA wal_checkpoint(" + mode + ")")
	if err != nil {
		return false, err
	}
	err = st.each(func() error {
		busy, pages, written := st.integer(0), st.integer(1), st.integer(2)
		all = busy == 0 && pages == written
		return nil
	})
	return all, errors.Join(err, st.close())
}
