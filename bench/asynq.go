package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asynqWorkers is the number of tasks that are worked on at once.
const asynqWorkers = 64

// asynqQueue is asynq over a Redis of its own, which syncs every write.
type asynqQueue struct {
	redis  *redisServer
	client *asynq.Client
	server *asynq.Server
	stop   context.CancelFunc
	done   chan struct{}
}

func openAsynq(ctx context.Context, dir string, h hooks) (engine, error) {
	r, err := startRedis(ctx, dir, "yes")
	if err != nil {
		return nil, err
	}
	opt := asynq.RedisClientOpt{Network: "unix", Addr: r.socket, PoolSize: 100}
	q := &asynqQueue{redis: r, client: asynq.NewClient(opt), done: make(chan struct{})}
	q.server = asynq.NewServer(opt, asynq.Config{
		Concurrency:       asynqWorkers,
		TaskCheckInterval: pause,
		LogLevel:          asynq.FatalLevel,
	})
	err = q.server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		h.called()
		return nil
	}))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start asynq: %w", err), r.close())
	}
	ctx, q.stop = context.WithCancel(ctx)
	go q.count(ctx, h.settled)
	return q, nil
}

// count reads from Redis how many tasks are done, since asynq tells nobody.
func (q *asynqQueue) count(ctx context.Context, settled func(int)) {
	defer close(q.done)
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: q.redis.socket})
	defer c.Close()
	seen := 0
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		if n, err := c.Get(ctx, "asynq:{default}:processed").Int(); err == nil && n > seen {
			settled(n - seen)
			seen = n
		}
		<-tick.C
	}
}

func (q *asynqQueue) batch() int     { return 1 }
func (q *asynqQueue) servers() []int { return []int{q.redis.cmd.Process.Pid} }

func (q *asynqQueue) send(ctx context.Context, _ int) error {
	_, err := q.client.EnqueueContext(ctx, asynq.NewTask("bench", []byte(payload)))
	return err
}

func (q *asynqQueue) close() error {
	q.stop()
	<-q.done
	q.server.Shutdown()
	return errors.Join(q.client.Close(), q.redis.close())
}

// redisServer is a redis-server of our own that nobody else reaches.
type redisServer struct {
	cmd    *exec.Cmd
	socket string
}

// startRedis starts one in dir; appendOnly is "yes" for one that syncs every
// write before it answers, "no" for one that keeps nothing.
func startRedis(ctx context.Context, dir, appendOnly string) (*redisServer, error) {
	socket := filepath.Join(dir, "redis.sock")
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "redis-server", "--port", "0", "--unixsocket", socket, "--dir", dir,
		"--appendonly", appendOnly, "--appendfsync", "always", "--no-appendfsync-on-rewrite", "no",
		"--save", "", "--auto-aof-rewrite-percentage", "0", "--daemonize", "no", "--loglevel", "warning")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	r := &redisServer{cmd: cmd, socket: socket}
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	defer c.Close()
	var err error
	for range 500 {
		if err = c.Ping(ctx).Err(); err == nil {
			return r, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, errors.Join(fmt.Errorf("redis-server does not answer: %w", err), r.close())
}

func (r *redisServer) close() error {
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("stop redis-server: %w", err)
	}
	return nil
}
