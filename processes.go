package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/chatgateway/gateway/chat"
	"github.com/chatgateway/gateway/internal/api"
	"github.com/chatgateway/gateway/outbox"
)

// takeFolder makes the data folder ours; with standby it waits until it is free.
// The system frees it when its holder ends, however that ends.
func (g *Gateway) takeFolder(ctx context.Context, standby bool) (*flock.Flock, error) {
	lock, err := lockFolder(g.dir)
	if !standby || !errors.Is(err, api.ErrInUse) {
		return lock, err
	}
	g.log.WarnContext(ctx, "another gateway runs on this data folder: standing by", "data", g.dir)
	for errors.Is(err, api.ErrInUse) {
		if !pause(ctx, standbyLook) {
			return nil, ctx.Err()
		}
		lock, err = lockFolder(g.dir)
	}
	g.log.InfoContext(ctx, "taking over", "data", g.dir)
	return lock, err
}

// locksDir is where the locks of bots are: beside the control store, since
// whoever shares the store must not send for the same bot.
func (g *Gateway) locksDir() string { return filepath.Join(filepath.Dir(StorePath(g.cfg)), "locks") }

func (g *Gateway) botLock(name chat.BotName) (*flock.Flock, error) {
	if err := os.MkdirAll(g.locksDir(), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of locks: %w", err)
	}
	return flock.New(filepath.Join(g.locksDir(), string(name)+".lock")), nil
}

// seize takes the lock of a bot that nobody sends for.
func (g *Gateway) seize(name chat.BotName) (release func(), err error) {
	lock, err := g.botLock(name)
	if err != nil {
		return nil, err
	}
	ok, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock bot %s: %w", name, err)
	}
	if !ok {
		return nil, fmt.Errorf("bot %s: %w", name, outbox.ErrNotOwner)
	}
	return func() { _ = lock.Unlock() }, nil // the process's end frees it, too
}

// wakePath is the socket on which a bot's owner hears that others have stored
// messages for it.
func (g *Gateway) wakePath(name chat.BotName) string {
	return filepath.Join(g.locksDir(), string(name)+".wake")
}

// wakeOwner tells the process that owns a bot that there is something to adopt.
// If nobody hears it, whoever becomes the owner adopts it at its start.
func (g *Gateway) wakeOwner(name chat.BotName) {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: g.wakePath(name), Net: "unixgram"})
	if err != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // a full queue wakes the owner, too
	_, _ = conn.Write([]byte{1})                                     // as above
	_ = conn.Close()                                                 // nothing depends on it
}

// adoptEvery is how often a bot's owner looks for messages that others have
// stored where it can't be told of them.
const adoptEvery = time.Second

// listenForWakes lets the router adopt what other processes store, from the
// moment at which this one owns the bot.
func (g *Gateway) listenForWakes(ctx context.Context, b *bot) {
	select {
	case <-b.loaded:
	case <-ctx.Done():
		return
	}
	path := g.wakePath(b.name)
	_ = os.Remove(path) // of an owner that died
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		b.log.WarnContext(ctx, "other processes can't wake this one: it looks for their messages every second", "err", err)
		for pause(ctx, adoptEvery) {
			g.router.Adopt(b.name)
		}
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	g.router.Adopt(b.name) // what was stored before anybody could be told
	for buf := make([]byte, 64); ; {
		if _, err := conn.Read(buf); err != nil {
			return
		}
		g.router.Adopt(b.name)
	}
}
