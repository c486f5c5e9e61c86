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

// OrderShed asks an instance, zero for the current one, to close some connections. A later order replaces one that was not
// given yet. A worker that is unknown, gone or replaced is a Refusal with CodeNotFound.
func (s *Store) OrderShed(ctx context.Context, workerID string, instance berth.Instance, order berth.ShedOrder) error {
	rows, err := collect[struct{ Instance int32 }](ctx, s, "worker_shed",
		workerID, int32(instance), order.Count, order.Spread.Seconds())
	if err == nil && len(rows) == 0 {
		return berth.Refuse(berth.CodeNotFound, "no worker with this id takes connections")
	}
	return err
}
