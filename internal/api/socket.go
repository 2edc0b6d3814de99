package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// SocketName is the control socket's name in the data folder.
const SocketName = "gateway.sock"

// ErrInUse means that a gateway is running on the data folder.
var ErrInUse = errors.New("another gateway is running on this data folder; stop it, or give this one a data_dir of its own")

// longestPath is what fits into a socket's address on every system that we
// build for, in bytes.
const longestPath = 100

// ListenSocket opens the control socket in dir, for its owner only. A socket
// that a dead process left behind is replaced.
func ListenSocket(ctx context.Context, dir string) (net.Listener, error) {
	if conn, err := dialSocket(ctx, dir); err == nil {
		return nil, errors.Join(ErrInUse, conn.Close())
	}
	path, release, err := address(dir)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	defer release()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("control socket: remove the old one: %w", err)
	}
	var cfg net.ListenConfig
	ln, err := cfg.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if u, ok := ln.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // its path may be a short name that is gone by then
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), ln.Close())
	}
	return &socket{Listener: ln, path: filepath.Join(dir, SocketName)}, nil
}

type socket struct {
	net.Listener
	path string
}

// Close removes the socket's file, too.
func (s *socket) Close() error {
	err := s.Listener.Close()
	if gone := os.Remove(s.path); gone != nil && !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// address gives a name of the socket that is short enough. A long path is
// reached through the open folder, where the system can do that.
func address(dir string) (path string, release func(), err error) {
	path = filepath.Join(dir, SocketName)
	if len(path) <= longestPath {
		return path, func() {}, nil
	}
	d, err := os.Open(dir) //nolint:gosec // the operator's own data folder
	if err != nil {
		return "", nil, err
	}
	short := filepath.Join("/proc/self/fd", strconv.Itoa(int(d.Fd())), SocketName)
	if _, err := os.Stat(filepath.Dir(short)); err != nil {
		_ = d.Close()
		return "", nil, fmt.Errorf("the path %s is longer than a socket's address may be: choose a shorter data_dir", path)
	}
	return short, func() { _ = d.Close() }, nil
}

func dialSocket(ctx context.Context, dir string) (net.Conn, error) {
	path, release, err := address(dir)
	if err != nil {
		return nil, err
	}
	defer release()
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}

// Client gives an HTTP client for the control socket in dir; the host in its
// URLs is ignored. It reports false if no gateway listens there.
func Client(ctx context.Context, dir string) (*http.Client, bool) {
	conn, err := dialSocket(ctx, dir)
	if err != nil {
		return nil, false
	}
	_ = conn.Close()
	return &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialSocket(ctx, dir) },
		},
	}, true
}

// Server gives an HTTP server with the bounds that all of ours have.
func Server(ctx context.Context, h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
}
