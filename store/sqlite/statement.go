package sqlite

import (
	"math"
	"unsafe"

	sqlite3 "modernc.org/sqlite/lib"
)

// value is an argument of a statement.
type value struct {
	kind  valueKind
	n     int64
	text  string
	bytes []byte
}

type valueKind int

const (
	null valueKind = iota
	integerValue
	realValue
	textValue  // in text
	bytesValue // the same, in bytes
	blobValue
)

func integer[T ~int | ~int64](n T) value { return value{kind: integerValue, n: int64(n)} }

func text[T ~string](s T) value { return value{kind: textValue, text: string(s)} }

// textOf is text from bytes that stay as they are while the statement runs.
func textOf(b []byte) value { return value{kind: bytesValue, bytes: b} }

func flag(b bool) value {
	if b {
		return integer(1)
	}
	return integer(0)
}

func realNumber(f float64) value {
	return value{kind: realValue, n: int64(math.Float64bits(f))} //nolint:gosec // the same bits
}

// optionalText is NULL for an empty text.
func optionalText(s string) value {
	if s == "" {
		return value{}
	}
	return text(s)
}

// optionalBlob is NULL for nil.
func optionalBlob(b []byte) value {
	if b == nil {
		return value{}
	}
	return value{kind: blobValue, bytes: b}
}

// maxSize bounds a statement's arguments together: SQLite takes no larger value.
const maxSize = 1_000_000_000 // bytes

// statement is a prepared statement of a connection.
type statement struct {
	c      *connection
	handle uintptr
}

// run runs the statement to its end.
func (st *statement) run(args ...value) error {
	return st.each(nil, args...)
}

// each runs the statement and calls row, if it is not nil, for each row that it
// gives. row reads the columns, and runs no statement of the same connection.
func (st *statement) each(row func() error, args ...value) (err error) {
	if err := st.bind(args); err != nil {
		return err
	}
	for {
		rc := sqlite3.Xsqlite3_step(st.c.tls, st.handle)
		if rc == sqlite3.SQLITE_ROW {
			if row == nil {
				continue
			}
			if err = row(); err == nil {
				continue
			}
		} else if rc != sqlite3.SQLITE_DONE {
			err = st.c.check(rc)
		}
		sqlite3.Xsqlite3_reset(st.c.tls, st.handle) // says again what step has said
		return err
	}
}

// bind gives the statement its arguments, all anew. Texts are copied to SQLite's
// side, where they stay until the next statement of the connection.
func (st *statement) bind(args []value) error {
	size := 1 // an empty text needs an address, too
	for _, v := range args {
		size += len(v.text) + len(v.bytes)
	}
	if size > maxSize {
		return &failure{code: sqlite3.SQLITE_TOOBIG, text: "a message is too large for the database"}
	}
	free, err := st.c.args.take(st.c.tls, size)
	if err != nil {
		return err
	}
	for i, v := range args {
		tls, n := st.c.tls, int32(i+1)
		p, length := address(free), int32(len(v.text)+len(v.bytes)) //nolint:gosec // at most maxSize
		free = free[copy(free, v.text):]
		free = free[copy(free, v.bytes):]
		var rc int32
		switch v.kind {
		case null:
			rc = sqlite3.Xsqlite3_bind_null(tls, st.handle, n)
		case integerValue:
			rc = sqlite3.Xsqlite3_bind_int64(tls, st.handle, n, v.n)
		case realValue:
			rc = sqlite3.Xsqlite3_bind_double(tls, st.handle, n, math.Float64frombits(uint64(v.n))) //nolint:gosec // the same bits
		case textValue, bytesValue:
			rc = sqlite3.Xsqlite3_bind_text(tls, st.handle, n, p, length, sqlite3.SQLITE_STATIC)
		case blobValue:
			rc = sqlite3.Xsqlite3_bind_blob(tls, st.handle, n, p, length, sqlite3.SQLITE_STATIC)
		}
		if err := st.c.check(rc); err != nil {
			return err
		}
	}
	return nil
}

func address(b []byte) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b))) //nolint:gosec // memory of SQLite's side
}

// integer reads a column of the present row.
func (st *statement) integer(column int) int64 {
	return sqlite3.Xsqlite3_column_int64(st.c.tls, st.handle, int32(column)) //nolint:gosec // a few columns
}

// text reads a column of the present row.
func (st *statement) text(column int) string {
	return string(st.bytes(column))
}

// bytes views a column of the present row, until the next one.
func (st *statement) bytes(column int) []byte {
	p := sqlite3.Xsqlite3_column_text(st.c.tls, st.handle, int32(column))  //nolint:gosec // a few columns
	n := sqlite3.Xsqlite3_column_bytes(st.c.tls, st.handle, int32(column)) //nolint:gosec // a few columns
	if p == 0 {
		return nil
	}
	return unsafe.Slice(at[byte](p), n) //nolint:gosec // memory of SQLite's side
}

func (st *statement) close() error {
	return st.c.check(sqlite3.Xsqlite3_finalize(st.c.tls, st.handle))
}
