package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
)

// proofVar is how long the proof runs, for example 10m. Without it the proof takes its short form.
const proofVar = "BERTH_PROOF_DURATION"

// proofTime is how long a proof may run: brief, or its part of proofVar.
func proofTime(t testing.TB, brief time.Duration, part float64) time.Duration {
	t.Helper()
	text := os.Getenv(proofVar)
	if text == "" {
		return brief
	}
	total, err := time.ParseDuration(text)
	if err != nil || total <= 0 {
		t.Fatalf("%s=%q is not a duration such as 10m", proofVar, text)
	}
	return time.Duration(float64(total) * part)
}

// tally is what a proof counts. What is not about how much was done must be zero.
type tally struct {
	rounds, calls, placed, refused, unknown, judged atomic.Int64

	overCap, overQuota, falseRefusals, lostSlots, violations, failures, deadlocks atomic.Int64
}

func (c *tally) String() string {
	return fmt.Sprintf("rounds %d, calls %d, placed %d, refused %d (%d judged), outcome unknown %d; "+
		"over-cap %d, over-quota %d, false refusals %d, deadlocks %d, lost slots %d, violations %d, failures %d",
		c.rounds.Load(), c.calls.Load(), c.placed.Load(), c.refused.Load(), c.judged.Load(), c.unknown.Load(),
		c.overCap.Load(), c.overQuota.Load(), c.falseRefusals.Load(), c.deadlocks.Load(), c.lostSlots.Load(),
		c.violations.Load(), c.failures.Load())
}

func (c *tally) bad() int64 {
	return c.overCap.Load() + c.overQuota.Load() + c.falseRefusals.Load() + c.lostSlots.Load() + c.violations.Load() +
		c.failures.Load() + c.deadlocks.Load()
}

// attended are n API processes: stores whose starts may wait.
func (r *rig) attended(n int) []*postgres.Store {
	r.Helper()
	stores := r.stores(n)
	for _, s := range stores {
		r.attend(s)
	}
	return stores
}

// attend lets the starts of a store wait until the test ends.
func (r *rig) attend(s *postgres.Store) {
	r.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Attend(ctx, slog.New(slog.DiscardHandler))
	}()
	r.Cleanup(func() { cancel(); <-done })
	testkit.EventuallyTrue(r.T, 10*time.Second, "the store is not present", func() bool { return postgres.Attending(s) })
}

// tooMany finds workers with more sessions than slots, and tenants with more sessions than their quota.
const tooMany = `
select (select count(*) from berth.workers w
         where (select coalesce(sum(s.slots), 0) from berth.sessions s where s.worker_id = w.id)
             > (select count(*) from berth.slots l where l.worker_id = w.id)),
       (select count(*) from berth.tenants t
         where t.id = any ($1) and t.max_concurrent_sessions
             < (select count(*) from berth.sessions s where s.tenant_id = t.id and s.state <> 'ended'))`

// watch samples the tables until the returned function is called. Only the quotas of the tenants named stay as they are.
func (c *tally) watch(r *rig, tenants ...string) (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			c.sample(ctx, r, tenants)
			if n%10 == 0 {
				c.audit(ctx, r)
			}
		}
	})
	return func() { cancel(); watching.Wait() }
}

func (c *tally) sample(ctx context.Context, r *rig, tenants []string) {
	var workers, quotas int64
	if err := r.db.Pool.QueryRow(ctx, tooMany, tenants).Scan(&workers, &quotas); err != nil {
		return // the end of the test
	}
	c.overCap.Add(workers)
	c.overQuota.Add(quotas)
}

// audit looks at the view of violations.
func (c *tally) audit(ctx context.Context, r *rig) {
	if err := noViolations(ctx, r.db.Pool); err != nil && ctx.Err() == nil {
		c.violations.Add(1)
		r.Errorf("while it runs: %v", err)
	}
}

// conclude counts deadlocks, once the statistics of the closed stores are in, and prints the one line.
func (c *tally) conclude(r *rig, name string) {
	r.Helper()
	c.deadlocks.Store(read[int64](r, "select deadlocks from pg_stat_database where datname = current_database()"))
	r.Logf("%s: %v", name, c)
	if c.bad() > 0 {
		r.Errorf("%s found %d faults", name, c.bad())
	}
}
