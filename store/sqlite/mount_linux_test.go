package sqlite_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/chatgateway/gateway/outbox"
	"github.com/chatgateway/gateway/store/sqlite"
)

// mount gives a small disk of its own. Where mounting is not allowed the test
// is skipped, except in CI.
func mount(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755,size="+size); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI must be able to mount a small disk: %v", err)
		}
		t.Skipf("a small disk can't be mounted here (root is needed): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

func writeFile(t *testing.T, path string, size int) {
	t.Helper()
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fillUp takes what is left of the disk.
func fillUp(t *testing.T, dir string) (ballast string) {
	t.Helper()
	ballast = filepath.Join(dir, "fill")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		if _, err := f.Write(make([]byte, 4096)); errors.Is(err, syscall.ENOSPC) {
			return ballast
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestStore_onAFullDisk(t *testing.T) {
	dir := mount(t, "3m")
	ballast := filepath.Join(dir, "ballast")
	writeFile(t, ballast, 1<<20)
	s := open(t, filepath.Join(dir, "gateway.db"))
	o, err := s.Acquire(t.Context(), "support")
	if err != nil {
		t.Fatal(err)
	}
	var stored []outbox.ID
	store := func(n int) error {
		batch := outbox.Batch{Owner: o}
		for i := range 5 {
			batch.New = append(batch.New, entry("1", fmt.Sprintf("%d.%d %s", n, i, strings.Repeat("x", 4000))))
		}
		a, err := s.Apply(t.Context(), batch)
		for _, n := range a.New {
			stored = append(stored, n.ID)
		}
		return err
	}
	check := func() {
		t.Helper()
		if n, err := s.Count(t.Context(), outbox.Filter{}); err != nil || n != len(stored) {
			t.Fatalf("%d entries are stored (%v), want the %d that were answered", n, err, len(stored))
		}
	}
	n := 0
	for ; err == nil && n < 1000; n++ {
		err = store(n)
	}
	if !errors.Is(err, outbox.ErrNoSpace) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("Apply() on a full disk = %v, want ErrNoSpace and the path", err)
	}
	check()
	fill := fillUp(t, dir)
	if err := s.Ping(t.Context()); !errors.Is(err, outbox.ErrNoSpace) {
		t.Errorf("Ping() on a full disk = %v, want ErrNoSpace", err)
	}
	for range 20 {
		if err := store(n); !errors.Is(err, outbox.ErrNoSpace) {
			t.Fatalf("Apply() on a full disk = %v, want ErrNoSpace", err)
		}
	}
	check()

	for _, f := range []string{ballast, fill} {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping() after space was freed = %v, want nil", err)
	}
	for ; n < 10; n++ {
		if err := store(n); err != nil {
			t.Fatalf("Apply() after space was freed = %v, want nil", err)
		}
	}
	if err := store(n); err != nil {
		t.Fatalf("Apply() after space was freed = %v, want nil", err)
	}
	check()
}

func TestOpen_onAFullDisk(t *testing.T) {
	dir := mount(t, "1m")
	path := filepath.Join(dir, "gateway.db")
	fill := fillUp(t, dir)
	s, err := sqlite.Open(t.Context(), path)
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, outbox.ErrNoSpace) || !strings.Contains(err.Error(), path) {
		t.Fatalf("Open() of a new store on a full disk = %v, want ErrNoSpace and the path", err)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	filled(t, path, 100)
	before := contents(t, path)
	fillUp(t, dir)
	if s, err = sqlite.Open(t.Context(), path); err == nil {
		s.Close()
	}
	if !errors.Is(err, outbox.ErrNoSpace) || !strings.Contains(err.Error(), path) {
		t.Fatalf("Open() on a full disk = %v, want ErrNoSpace and the path", err)
	}
	if !bytes.Equal(before, contents(t, path)) {
		t.Errorf("the file was changed")
	}
}

func TestBackup_onAFullDisk(t *testing.T) {
	path := newPath(t)
	filled(t, path, 10_000)
	s := open(t, path)
	dir := mount(t, "512k")
	err := s.Backup(t.Context(), filepath.Join(dir, "copy.db"))
	if !errors.Is(err, outbox.ErrNoSpace) || !strings.Contains(err.Error(), dir) {
		t.Errorf("Backup() to a full disk = %v, want ErrNoSpace and the path", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left on the disk, %v", left, err)
	}
	if _, err := s.Apply(t.Context(), outbox.Batch{New: []outbox.Entry{entry("1", "x")}}); err != nil {
		t.Errorf("Apply() afterwards = %v, want nil", err)
	}
}

func TestOpen_onAReadOnlyDisk(t *testing.T) {
	dir := mount(t, "1m")
	path := filepath.Join(dir, "gateway.db")
	filled(t, path, 10)
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	refused(t, path, "read-only file system")
}

// asNobody runs f without root's right to ignore permissions.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	const nobody = 65534
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, id := range []uintptr{nobody, 0} { // of this thread, for files only
		if id == 0 {
			f()
		}
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETFSUID, id, 0, 0); errno != 0 {
			t.Fatal(errno)
		}
	}
}

func TestOpen_namesMissingPermissions(t *testing.T) {
	for _, c := range []struct {
		name         string
		folder, file os.FileMode
		words        string
	}{
		{"the folder is read-only", 0o555, 0o666, "the data folder"},
		{"the file is read-only", 0o777, 0o444, "the database must be readable and writable"},
		{"the file is closed", 0o777, 0o000, "the database must be readable and writable"},
		{"the folder is closed", 0o000, 0o600, "the data folder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "data")
			path := filepath.Join(dir, "gateway.db")
			filled(t, path, 1)
			chmod := func(name string, mode os.FileMode) {
				if err := os.Chmod(name, mode); err != nil {
					t.Fatal(err)
				}
			}
			before := contents(t, path)
			chmod(filepath.Dir(parent), 0o755)
			chmod(parent, 0o755)
			chmod(path, c.file)
			chmod(dir, c.folder)
			var s *sqlite.Store
			var err error
			asNobody(t, func() { s, err = sqlite.Open(t.Context(), path) })
			chmod(dir, 0o700)
			chmod(path, 0o600)
			if err == nil {
				s.Close()
				t.Fatal("Open() = nil, want an error")
			}
			for _, w := range []string{c.words, dir, "permission denied"} {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("Open() = %q, want it to say %q", err, w)
				}
			}
			if !bytes.Equal(before, contents(t, path)) {
				t.Errorf("the file was changed")
			}
		})
	}
}
