package api

import (
	"net"
	"sync"
)

// maxConns bounds the connections of the TCP address, so that whoever opens
// many leaves file descriptors for the bots and the control socket.
const maxConns = 256

// LimitConns lets at most 256 connections be open at once; more wait to be
// accepted.
func LimitConns(ln net.Listener) net.Listener {
	return &limited{Listener: ln, free: make(chan struct{}, maxConns), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	free   chan struct{} // holds a token for each open connection
	once   sync.Once
	closed chan struct{}
}

// Accept waits for a free place first.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &limitedConn{Conn: conn, leave: sync.OnceFunc(func() { <-l.free })}, nil
}

// Close ends an Accept that waits.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	leave func()
}

// Close gives the place back.
func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
