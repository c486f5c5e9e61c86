package postgres

import (
	"context"

	"github.com/berthdev/berth/internal/berth"
)

type loadRow struct {
	ID          string
	Instance    int32
	Connections int
}

// Loads lists the workers that take connections, with how many of calls each holds. A worker that drains, or that is
// cordoned, is not among them.
func (s *Store) Loads(ctx context.Context) ([]berth.WorkerLoad, error) {
	rows, err := collect[loadRow](ctx, s, "worker_loads")
	loads := make([]berth.WorkerLoad, len(rows))
	for i, row := range rows {
		loads[i] = berth.WorkerLoad{WorkerID: row.ID, Instance: berth.Instance(row.Instance), Connections: row.Connections}
	}
	return loads, err
}

// OrderShed asks an instance, zero for the current one, to close some connections. A later order replaces one that the worker
// has not acknowledged yet, but an automatic one replaces nobody's: a Refusal with CodeConflict. A worker that is unknown, gone
// or replaced is one with CodeNotFound.
func (s *Store) OrderShed(ctx context.Context, workerID string, instance berth.Instance, order berth.ShedOrder) error {
	var of *int32
	if instance != 0 {
		of = new(int32(instance))
	}
	outcome, err := value[string](ctx, s, "worker_shed", workerID, of, order.Count, order.Spread.Seconds(), order.Automatic)
	switch {
	case err != nil:
		return err
	case outcome == "unknown":
		return berth.Refuse(berth.CodeNotFound, "no worker with this id takes connections")
	case outcome == "busy":
		return berth.Refuse(berth.CodeConflict, "the worker has not acknowledged an order that somebody gave")
	default:
		return nil
	}
}
