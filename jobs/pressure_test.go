package jobs_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/jobs"
)

// cannedPressure answers a number of times, and fails in between.
type cannedPressure struct {
	reads atomic.Int64
}

func (p *cannedPressure) Pressure(context.Context) (berth.Pressure, error) {
	n := p.reads.Add(1)
	if n == 2 {
		return berth.Pressure{}, errBroken
	}
	return berth.Pressure{OldestTransaction: time.Duration(n) * time.Minute, OldestXmin: 1000 * n, Waiters: int(n)}, nil
}

func TestPressureIsReadAgainAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, registry := &cannedPressure{}, prometheus.NewRegistry()
		var lines strings.Builder
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		if err := jobs.ReadPressure(ctx, store, slog.New(slog.NewTextHandler(&lines, nil)), registry); err != nil {
			t.Fatal(err)
		}
		if n := store.reads.Load(); n != 3 {
			t.Errorf("%d reads in 40 s", n)
		}
		if !strings.Contains(lines.String(), "pressure on the database not read") {
			t.Errorf("a failure is silent: %s", &lines)
		}
		const want = `# HELP berth_waiters Starts that wait for capacity, of all processes.
# TYPE berth_waiters gauge
berth_waiters 3
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "berth_waiters"); err != nil {
			t.Error(err)
		}
	})
}

func TestForgottenTransactionIsSeen(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	before, err := c.store.Pressure(t.Context())
	c.ok(err)
	tx, err := c.db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	c.ok(err)
	_, err = tx.Exec(t.Context(), "select from berth.slots")
	c.ok(err)
	for range 20 {
		c.exec("update berth.reaper_state set tick = tick + 1")
	}
	testkit.EventuallyTrue(t, soon, "it grows old", func() bool {
		pressure, err := c.store.Pressure(t.Context())
		c.ok(err)
		return pressure.OldestXmin >= before.OldestXmin+20 && pressure.OldestTransaction > 50*time.Millisecond
	})
	c.ok(tx.Rollback(t.Context()))
}
