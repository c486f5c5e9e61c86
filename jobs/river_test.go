package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/jobs"
)

const soon = 30 * time.Second

// runner is a process's worth of jobs on the cell.
func (c *cell) runner() (*jobs.Runner, *jobs.Reaper) {
	c.Helper()
	store := c.open()
	logger := testkit.Logger(c.T)
	registry := prometheus.NewRegistry()
	reaper := c.reaperOf(detection, store, logger, registry)
	runner, err := jobs.NewRunner(store.Pool(), reaper, store, logger, registry, jobs.Config{TickInterval: 200 * time.Millisecond})
	c.ok(err)
	return runner, reaper
}

func (c *cell) stop(r *jobs.Runner) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), soon)
	defer cancel()
	if err := r.Stop(ctx); err != nil {
		c.Errorf("stop: %v", err)
	}
}

func TestRunnerTicksUntilItIsStopped(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	w := c.worker("w1", 2)
	runner, _ := c.runner()
	c.ok(runner.Start(t.Context()))
	testkit.EventuallyTrue(t, soon, "ticks follow each other", func() bool {
		return c.count("select tick::int from berth.reaper_state") >= 3
	})
	placed := c.place("a", berth.LossRejoin)
	w.die()
	testkit.EventuallyTrue(t, soon, "a killed worker is found", func() bool {
		return c.count("select count(*) from berth.workers where state = 'lost'") == 1
	})
	testkit.EventuallyTrue(t, soon, "its session is displaced", func() bool {
		return c.count("select count(*) from berth.sessions where state = 'awaiting_rejoin'") == 1
	})
	if waited := c.count("select count(*) from river.river_job where scheduled_at > 'epoch'"); waited > 0 {
		t.Errorf("%d jobs had to wait for the time of a process's clock", waited)
	}
	c.stop(runner)
	c.stop(runner)
	c.expect(placed, berth.SessionAwaitingRejoin, "")
	if failed := c.count("select count(*) from river.river_job where array_length(errors, 1) > 0 and state <> 'cancelled'"); failed > 0 {
		t.Errorf("%d jobs failed", failed)
	}
}

func TestTwoRunnersShareTheWork(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	first, _ := c.runner()
	second, reaper := c.runner()
	c.ok(first.Start(t.Context()))
	c.ok(second.Start(t.Context()))
	testkit.EventuallyTrue(t, soon, "ticks happen", func() bool { return c.count("select tick::int from berth.reaper_state") >= 2 })
	c.stop(first)
	// The one that stays acts on a wake, whoever leads.
	before := c.count("select tick::int from berth.reaper_state")
	testkit.EventuallyTrue(t, soon, "a wake is a tick", func() bool {
		reaper.Wake()
		return c.count("select tick::int from berth.reaper_state") > before
	})
	c.stop(second)
}

func TestRunnerStopsBeforeItStarted(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	runner, _ := c.runner()
	c.stop(runner)
}

func TestRunnerSaysWhenRiverCannotStart(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	runner, _ := c.runner()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := runner.Start(over); err == nil {
		t.Error("started on a context that is over")
		c.stop(runner)
	}
}
