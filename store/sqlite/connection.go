package sqlite

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// connection speaks to SQLite itself, below database/sql, whose every call
// costs a dozen allocations: the writing connection makes several for each
// message. One goroutine uses it at a time; whoever holds the pen does.
type connection struct {
	tls  *libc.TLS
	db   uintptr
	cell uintptr // where SQLite puts a pointer that it gives
	args memory  // the arguments of the statement that runs
}

// failure is what SQLite says of a call that failed.
type failure struct {
	code int // extended
	text string
}

func (f *failure) Error() string { return fmt.Sprintf("%s (%d)", f.text, f.code) }

// Code is SQLite's extended code, as the driver's errors have it.
func (f *failure) Code() int { return f.code }

// connect opens the file, which must be there. It waits so long for locks.
func connect(path string, busy time.Duration) (*connection, error) {
	c := &connection{tls: libc.NewTLS()}
	if err := c.open(path); err != nil {
		return nil, errors.Join(err, c.close())
	}
	sqlite3.Xsqlite3_extended_result_codes(c.tls, c.db, 1)
	c.patience(busy)
	return c, nil
}

func (c *connection) open(path string) error {
	name, err := libc.CString(path)
	if err != nil {
		return err
	}
	defer libc.Xfree(c.tls, name)
	if c.cell = libc.Xcalloc(c.tls, 1, libc.Tsize_t(unsafe.Sizeof(c.cell))); c.cell == 0 {
		return errNoMemory
	}
	// Without a mutex of its own: the pen is one.
	const flags = sqlite3.SQLITE_OPEN_READWRITE | sqlite3.SQLITE_OPEN_NOMUTEX
	rc := sqlite3.Xsqlite3_open_v2(c.tls, name, c.cell, flags, 0)
	c.db = *at[uintptr](c.cell)
	return c.check(rc)
}

// patience sets how long locks are waited for.
func (c *connection) patience(busy time.Duration) {
	sqlite3.Xsqlite3_busy_timeout(c.tls, c.db, int32(busy.Milliseconds())) //nolint:gosec // some seconds
}

// check gives the failure of a call that did not answer with OK.
func (c *connection) check(rc int32) error {
	if rc == sqlite3.SQLITE_OK {
		return nil
	}
	text := libc.GoString(sqlite3.Xsqlite3_errstr(c.tls, rc))
	if c.db != 0 {
		if more := libc.GoString(sqlite3.Xsqlite3_errmsg(c.tls, c.db)); more != text {
			text += ": " + more
		}
	}
	return &failure{code: int(rc), text: text}
}

// prepare compiles a statement that is used again and again.
func (c *connection) prepare(query string) (*statement, error) {
	text, err := libc.CString(query)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(c.tls, text)
	rc := sqlite3.Xsqlite3_prepare_v3(c.tls, c.db, text, -1, sqlite3.SQLITE_PREPARE_PERSISTENT, c.cell, 0)
	if err := c.check(rc); err != nil {
		return nil, fmt.Errorf("prepare %.40q: %w", query, err)
	}
	return &statement{c: c, handle: *at[uintptr](c.cell)}, nil
}

// exec runs a statement that is used rarely.
func (c *connection) exec(query string, args ...value) error {
	st, err := c.prepare(query)
	if err != nil {
		return err
	}
	return errors.Join(st.run(args...), st.close())
}

// lastID is the id of the row that was inserted last.
func (c *connection) lastID() int64 { return sqlite3.Xsqlite3_last_insert_rowid(c.tls, c.db) }

// changed is the number of rows that the last statement changed.
func (c *connection) changed() int64 { return sqlite3.Xsqlite3_changes64(c.tls, c.db) }

// close closes the connection; its statements must be closed before.
func (c *connection) close() error {
	var err error
	if c.db != 0 {
		err = c.check(sqlite3.Xsqlite3_close_v2(c.tls, c.db))
	}
	c.args.free(c.tls)
	libc.Xfree(c.tls, c.cell)
	c.tls.Close()
	return err
}

var errNoMemory = errors.New("out of memory")

// at views memory of SQLite's side, which Go neither moves nor frees.
func at[T any](p uintptr) *T {
	return *(**T)(unsafe.Pointer(&p)) //nolint:gosec // the memory is not Go's
}

// memory is a piece of memory on SQLite's side, used anew for each statement.
type memory struct {
	p    uintptr
	size int
}

// usualMemory is kept between statements; more than that is given back.
const usualMemory = 64 << 10 // bytes

// take gives n bytes, of which nothing is kept from before.
func (m *memory) take(tls *libc.TLS, n int) ([]byte, error) {
	if n > m.size || m.size > usualMemory && n <= usualMemory {
		m.free(tls)
		size := max(n, usualMemory)
		if m.p = libc.Xmalloc(tls, libc.Tsize_t(size)); m.p == 0 {
			return nil, errNoMemory
		}
		m.size = size
	}
	return unsafe.Slice(at[byte](m.p), m.size)[:n], nil //nolint:gosec // the memory is not Go's
}

func (m *memory) free(tls *libc.TLS) {
	libc.Xfree(tls, m.p)
	*m = memory{}
}
