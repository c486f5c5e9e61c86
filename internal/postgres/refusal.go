package postgres

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// refusalFlush is how often counts are written. A process that is killed loses those of the last period.
	refusalFlush = 5 * time.Second
	// maxRefusalCounts bounds the distinct counts of one period. Beyond it refusals are not counted.
	maxRefusalCounts = 10_000
)

// RefusalCounter counts refused starts in memory and writes the counts every few seconds, since a full system refuses
// often and a write each would make it worse. Record may be called at any time.
type RefusalCounter struct {
	store  *Store
	logger *slog.Logger

	mu     sync.Mutex // guards counts
	counts map[berth.RefusalCount]int64
}

// NewRefusalCounter makes a counter that writes to store while Run runs.
func NewRefusalCounter(store *Store, logger *slog.Logger) *RefusalCounter {
	return &RefusalCounter{store: store, logger: logger, counts: map[berth.RefusalCount]int64{}}
}

// Record counts one refusal. region is the one asked for; empty: any.
func (c *RefusalCounter) Record(tenantID, region string, code berth.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := berth.RefusalCount{TenantID: tenantID, Region: region, Code: code}
	if _, known := c.counts[key]; known || len(c.counts) < maxRefusalCounts {
		c.counts[key]++
	}
}

// Run writes counts until ctx ends, and once more then.
func (c *RefusalCounter) Run(ctx context.Context) {
	ticker := time.NewTicker(refusalFlush)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.flush(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			c.flush(last)
			return
		}
	}
}

func (c *RefusalCounter) flush(ctx context.Context) {
	c.mu.Lock()
	taken := c.counts
	c.counts = make(map[berth.RefusalCount]int64, len(taken))
	c.mu.Unlock()
	if len(taken) == 0 {
		return
	}
	rows := make([]berth.RefusalCount, 0, len(taken))
	for key, refusals := range taken {
		key.Refusals = refusals
		rows = append(rows, key)
	}
	if err := c.store.AddRefusals(ctx, rows); err != nil {
		c.logger.WarnContext(ctx, "refusal counts not written", "counts", len(rows), "err", err)
	}
}
