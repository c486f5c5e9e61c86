package failover

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthdev/berth/bench/load"
)

const (
	// claimants start sessions at a time, each one after the other with a pause between.
	claimants  = 4
	claimPause = 20 * time.Millisecond
	// claimsBefore is how long they do so before the fault.
	claimsBefore = 2 * time.Second
)

// Claims is how long another tenant's starts took while a worker was lost, in milliseconds.
type Claims struct {
	N      int     `json:"n"`
	Failed int     `json:"failed"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
}

// claims is another tenant that starts and ends sessions until it is stopped.
type claims struct {
	client  *client
	cancel  context.CancelFunc
	running sync.WaitGroup
	ids     atomic.Int64

	mu     sync.Mutex // guards what follows
	marked bool       // the fault is now
	took   []float64
	failed int
	err    error // the first
}

func startClaims(ctx context.Context, client *client) *claims {
	ctx, cancel := context.WithCancel(ctx)
	c := &claims{client: client, cancel: cancel}
	for range claimants {
		c.running.Go(func() { c.run(ctx) })
	}
	_ = rest(ctx, claimsBefore) // an end of ctx is noticed by all
	return c
}

func (c *claims) run(ctx context.Context) {
	for ctx.Err() == nil {
		id := fmt.Sprintf("other-%d", c.ids.Add(1))
		began := time.Now()
		err := c.client.do(ctx, http.MethodPost, "/v1/sessions", c.client.keys[tenantOther],
			map[string]any{"id": id, "region": region}, nil)
		took := milliseconds(time.Since(began))
		if ctx.Err() != nil {
			return // it was cut
		}
		c.note(took, err)
		if err == nil {
			_ = c.client.do(ctx, http.MethodDelete, "/v1/sessions/"+id, c.client.keys[tenantOther], struct{}{}, nil) // it ends by itself
		}
		_ = rest(ctx, claimPause) // the loop asks
	}
}

// note counts what came since the fault.
func (c *claims) note(took float64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.marked {
		return
	}
	c.took = append(c.took, took)
	if err != nil {
		c.failed++
		if c.err == nil {
			c.err = err
		}
	}
}

// mark says that the fault is now. It cannot fail.
func (c *claims) mark() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marked = true
	return nil
}

// stop ends the claims and waits for the last one. It is idempotent and cannot fail.
func (c *claims) stop() error {
	c.cancel()
	c.running.Wait()
	return nil
}

func (c *claims) result() *Claims {
	c.mu.Lock()
	defer c.mu.Unlock()
	sorted := slices.Sorted(slices.Values(c.took))
	return &Claims{
		N: len(sorted), Failed: c.failed, P50: load.Percentile(sorted, 50), P99: load.Percentile(sorted, 99),
		Max: load.Percentile(sorted, 100),
	}
}
