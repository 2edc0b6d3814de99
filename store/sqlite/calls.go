package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/outbox"
)

const (
	noteHeader = 64 // bytes: the name of the system's run
	noteSize   = 16 // bytes: an entry's id and the number of its attempt
	usualSeats = 4096
	maxSeats   = 1 << 16
)

// callLog notes which calls are being made: a small file for each bot, written
// in place and never synced. What is written is there after the process was
// killed. After a power cut it may not be, so the file names the run of the
// system in which it was written, and is believed in that run alone.
type callLog struct {
	dir string

	mu    sync.Mutex
	files map[chat.BotName]*os.File
}

// callNotes are the notes of a bot's former owner.
type callNotes struct {
	trusted bool
	calls   map[outbox.Call]bool
}

// may reports whether the call may have been made.
func (n callNotes) may(c outbox.Call) bool { return !n.trusted || n.calls[c] }

// Note notes a call before it is made.
func (s *Store) Note(bot chat.BotName, seat int, c outbox.Call) error {
	if seat < 0 || seat >= maxSeats {
		return fmt.Errorf("note call: seat %d is not between 0 and %d", seat, maxSeats-1)
	}
	f, err := s.calls.file(bot)
	if err != nil {
		return fmt.Errorf("note call: %w", err)
	}
	if f == nil {
		return nil
	}
	var b [noteSize]byte
	binary.LittleEndian.PutUint64(b[:8], uint64(c.ID))      //nolint:gosec // an id is positive
	binary.LittleEndian.PutUint64(b[8:], uint64(c.Attempt)) //nolint:gosec // a count
	if _, err := f.WriteAt(b[:], noteHeader+int64(seat)*noteSize); err != nil {
		return fmt.Errorf("note call: %w", err)
	}
	return nil
}

// file opens a bot's notes for writing. Notes of an earlier run of the system
// are dropped; whoever took the bot over has read them.
func (l *callLog) file(bot chat.BotName) (*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f, ok := l.files[bot]; ok {
		return f, nil
	}
	f, err := l.open(bot)
	if err != nil {
		// Without notes every call counts as made, which is safe as long as no
		// old notes are believed in their place.
		if old, e := l.load(bot); e == nil && old.trusted {
			return nil, err
		}
		f = nil
	}
	if l.files == nil {
		l.files = map[chat.BotName]*os.File{}
	}
	l.files[bot] = f
	return f, nil
}

func (l *callLog) open(bot chat.BotName) (*os.File, error) {
	if info, err := os.Lstat(l.dir); err == nil && !info.IsDir() {
		if err := os.Remove(l.dir); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, err
	}
	path := l.path(bot)
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		if err := os.Remove(path); err != nil { // a link or an empty folder
			return nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the store's own folder
	if err != nil {
		return nil, err
	}
	if err := begin(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// begin makes the file one of this run of the system. Its usual size is taken
// at once, so that a full disk does not stand in the way of a note.
func begin(f *os.File) error {
	head := header()
	old := make([]byte, noteHeader)
	if n, _ := f.ReadAt(old, 0); n == noteHeader && string(old) == string(head) {
		return nil
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.WriteAt(make([]byte, usualSeats*noteSize), noteHeader); err != nil {
		return err
	}
	_, err := f.WriteAt(head, 0)
	return err
}

func (l *callLog) path(bot chat.BotName) string { return filepath.Join(l.dir, string(bot)) }

// load reads what the former owner noted. What can't be read is not trusted.
func (l *callLog) load(bot chat.BotName) (callNotes, error) {
	b, err := os.ReadFile(l.path(bot))
	if errors.Is(err, syscall.EIO) {
		return callNotes{}, err
	}
	head := header()
	n := callNotes{calls: map[outbox.Call]bool{}}
	if len(b) < noteHeader || string(b[:noteHeader]) != string(head) || strings.Trim(string(head), "\x00") == "" {
		return n, nil
	}
	n.trusted = true
	for b = b[noteHeader:]; len(b) >= noteSize; b = b[noteSize:] {
		n.calls[outbox.Call{
			ID:      outbox.ID(binary.LittleEndian.Uint64(b[:8])), //nolint:gosec // as it was written
			Attempt: int(binary.LittleEndian.Uint64(b[8:16])),     //nolint:gosec // as it was written
		}] = true
	}
	return n, nil
}

func (l *callLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for bot, f := range l.files {
		if f != nil {
			errs = append(errs, f.Close())
		}
		delete(l.files, bot)
	}
	return errors.Join(errs...)
}

// header names the system's run; it is empty where the system does not tell.
func header() []byte {
	head := make([]byte, noteHeader)
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil {
		copy(head, id)
	}
	return head
}
