package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/berth"
)

// RebalanceStore knows how loaded workers are and passes orders on to them.
type RebalanceStore interface {
	// Loads lists the workers that take connections.
	Loads(ctx context.Context) ([]berth.WorkerLoad, error)
	// OrderShed has an instance close some connections. A Refusal with CodeNotFound says that it is gone, one with
	// CodeConflict that it has an order of somebody else to follow.
	OrderShed(ctx context.Context, workerID string, instance berth.Instance, order berth.ShedOrder) error
}

// rebalancer moves signaling connections from workers that have many to those that have few.
type rebalancer struct {
	store  RebalanceStore
	logger *slog.Logger
	moves  prometheus.Counter
}

func newRebalancer(store RebalanceStore, logger *slog.Logger, registry prometheus.Registerer) (*rebalancer, error) {
	r := &rebalancer{store: store, logger: logger, moves: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "berth_rebalance_moves_total",
		Help: "Connections that this process asked workers to shed, since they had many more than the mean.",
	})}
	if err := registry.Register(r.moves); err != nil {
		return nil, fmt.Errorf("register rebalance metrics: %w", err)
	}
	return r, nil
}

// rebalance compares load once. A worker that has an order of somebody to follow gets none: the next comparison sees what
// came of that.
func (r *rebalancer) rebalance(ctx context.Context) error {
	loads, err := r.store.Loads(ctx)
	if err != nil {
		return fmt.Errorf("read loads: %w", err)
	}
	var failed error
	for _, move := range berth.PlanMoves(loads) {
		order := berth.ShedOrder{Count: move.Count, Spread: berth.ShedSpread, Automatic: true}
		err := r.store.OrderShed(ctx, move.WorkerID, move.Instance, order)
		if code := berth.RefusalCode(err); code == berth.CodeNotFound || code == berth.CodeConflict {
			continue // it went meanwhile, or is busy
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("order %s to shed: %w", move.WorkerID, err))
			continue
		}
		r.moves.Add(float64(move.Count))
		r.logger.InfoContext(ctx, "worker is to shed connections", "worker_id", move.WorkerID,
			"instance", int64(move.Instance), "count", move.Count)
	}
	return failed
}
