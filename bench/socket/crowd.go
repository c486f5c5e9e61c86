package socket

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// settlePoll is how often a crowd is looked at.
const settlePoll = 50 * time.Millisecond

// Each acts on the numbers below n, some at a time.
func Each(ctx context.Context, n, parallel int, act func(ctx context.Context, i int) error) error {
	group, acting := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range n {
		if acting.Err() != nil {
			break
		}
		group.Go(func() error { return act(acting, i) })
	}
	return group.Wait()
}

// Crowd is many connections, each of which a goroutine reads until Close. It is for one goroutine.
type Crowd struct {
	Conns []*Conn

	running sync.WaitGroup
	closing atomic.Bool
	lost    atomic.Int64
	why     atomic.Pointer[error] // why the first was lost
}

// Open makes n connections, some at a time. hear takes the messages of connection i, one at a time, and must not keep them.
// The crowd must be closed. After an error there is none.
func Open(
	ctx context.Context, n, parallel int, join func(ctx context.Context, i int) (*Conn, error), hear func(i int, message []byte),
) (*Crowd, error) {
	c := &Crowd{Conns: make([]*Conn, n)}
	err := Each(ctx, n, parallel, func(ctx context.Context, i int) (err error) {
		if c.Conns[i], err = join(ctx, i); err != nil {
			return fmt.Errorf("connection %d of %d: %w", i+1, n, err)
		}
		c.running.Go(func() {
			if err := c.Conns[i].Run(func(message []byte) { hear(i, message) }); !c.closing.Load() {
				c.lost.Add(1)
				c.why.CompareAndSwap(nil, &err)
			}
		})
		return nil
	})
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Lost is how many connections ended.
func (c *Crowd) Lost() int { return int(c.lost.Load()) }

// Whole is an error if a connection ended.
func (c *Crowd) Whole() error {
	if lost := c.lost.Load(); lost > 0 {
		why := errors.New("unknown")
		if first := c.why.Load(); first != nil {
			why = *first
		}
		return fmt.Errorf("%d of %d connections were lost, the first: %w", lost, len(c.Conns), why)
	}
	return nil
}

// Settle returns once every connection has answered one more ping.
func (c *Crowd) Settle(ctx context.Context, limit time.Duration) error {
	before := make([]int64, len(c.Conns))
	for i, conn := range c.Conns {
		before[i] = conn.Pings()
	}
	deadline := time.Now().Add(limit)
	for waiting := 0; waiting < len(c.Conns); {
		if c.Conns[waiting].Pings() > before[waiting] {
			waiting++
			continue
		}
		if err := c.Whole(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no ping came in %s", limit)
		}
		if err := rest(ctx, settlePoll); err != nil {
			return err
		}
	}
	return c.Whole()
}

// Close cuts all connections and waits until nobody reads them. It may be called more than once.
func (c *Crowd) Close() {
	c.closing.Store(true)
	for _, conn := range c.Conns {
		if conn != nil {
			conn.Close()
		}
	}
	c.running.Wait()
}
