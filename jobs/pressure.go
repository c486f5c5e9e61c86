package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// pressurePeriod is how often each process reads what weighs on the database. It is no River job: that would run in
	// one process, and the gauges of the others would be old.
	pressurePeriod = 15 * time.Second
	pressureLimit  = 5 * time.Second
)

// PressureStore reads what weighs on the database.
type PressureStore interface {
	Pressure(ctx context.Context) (berth.Pressure, error)
}

// gauge shows pressure.
type gauge struct {
	store       PressureStore
	logger      *slog.Logger
	transaction prometheus.Gauge
	xmin        prometheus.Gauge
	waiters     prometheus.Gauge
}

func newGauge(store PressureStore, logger *slog.Logger, registry prometheus.Registerer) (*gauge, error) {
	g := &gauge{
		store: store, logger: logger,
		transaction: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_oldest_transaction_seconds",
			Help: "Age of the oldest open transaction in the database, of those that this process may see (pg_read_all_stats).",
		}),
		xmin: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_oldest_xmin_age_transactions",
			Help: "Transactions begun since the oldest snapshot that keeps vacuum from cleaning up. Claims slow as it grows.",
		}),
		waiters: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_waiters", Help: "Starts that wait for capacity, of all processes.",
		}),
	}
	for _, c := range []prometheus.Collector{g.transaction, g.xmin, g.waiters} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register pressure metrics: %w", err)
		}
	}
	return g, nil
}

// run reads until ctx ends.
func (g *gauge) run(ctx context.Context) {
	ticker := time.NewTicker(pressurePeriod)
	defer ticker.Stop()
	for {
		if err := g.read(ctx); err != nil && ctx.Err() == nil {
			g.logger.WarnContext(ctx, "pressure on the database not read", "err", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (g *gauge) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pressureLimit)
	defer cancel()
	pressure, err := g.store.Pressure(ctx)
	if err != nil {
		return err
	}
	g.transaction.Set(pressure.OldestTransaction.Seconds())
	g.xmin.Set(float64(pressure.OldestXmin))
	g.waiters.Set(float64(pressure.Waiters))
	return nil
}
