package postgres

import (
	"context"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

type workerRow struct {
	ID             string
	Instance       int32
	Region         string
	State          string
	CordonedReason *string
	Capacity       int
	Used           int
	SignalingURL   string
	ControlURL     string
	Version        string
	Labels         map[string]string
	SuspectReason  *string
	RegisteredAt   time.Time
	DrainDeadline  *time.Time
	RenewedAt      *time.Time
	LeaseExpiresAt *time.Time
}

func (r workerRow) worker() berth.Worker {
	return berth.Worker{
		ID:             r.ID,
		Instance:       berth.Instance(r.Instance),
		Region:         r.Region,
		State:          berth.WorkerState(r.State),
		CordonedReason: deref(r.CordonedReason),
		Capacity:       r.Capacity,
		Used:           r.Used,
		SignalingURL:   r.SignalingURL,
		ControlURL:     r.ControlURL,
		Version:        r.Version,
		Labels:         r.Labels,
		SuspectReason:  deref(r.SuspectReason),
		RegisteredAt:   r.RegisteredAt,
		DrainDeadline:  deref(r.DrainDeadline),
		RenewedAt:      deref(r.RenewedAt),
		LeaseExpiresAt: deref(r.LeaseExpiresAt),
	}
}

// Workers reads every worker, by region and id.
func (s *Store) Workers(ctx context.Context) ([]berth.Worker, error) {
	rows, err := collect[workerRow](ctx, s, "worker_list", nil)
	workers := make([]berth.Worker, 0, len(rows))
	for _, row := range rows {
		workers = append(workers, row.worker())
	}
	return workers, err
}

// Worker reads one worker.
func (s *Store) Worker(ctx context.Context, id string) (berth.Worker, error) {
	rows, err := collect[workerRow](ctx, s, "worker_list", &id)
	if err != nil {
		return berth.Worker{}, err
	}
	if len(rows) == 0 {
		return berth.Worker{}, errNoWorker()
	}
	return rows[0].worker(), nil
}

func errNoWorker() error {
	return berth.Refuse(berth.CodeNotFound, "There is no worker with this id.")
}

// DrainWorker stops claims on a worker and gives its sessions until the deadline; the first deadline stands unless
// override. No claim lands on it once this returned. A worker that is gone or lost already stays so.
func (s *Store) DrainWorker(
	ctx context.Context, id string, deadline time.Duration, override bool,
) (berth.Worker, error) {
	known, err := value[bool](ctx, s, "worker_drain", id, nil, deadline.Seconds(), override)
	if err != nil {
		return berth.Worker{}, err
	}
	if !known {
		return berth.Worker{}, errNoWorker()
	}
	return s.Worker(ctx, id)
}

// UndrainWorker takes a drain back. A worker that does not drain stays as it is.
func (s *Store) UndrainWorker(ctx context.Context, id string) (berth.Worker, error) {
	known, err := value[bool](ctx, s, "worker_undrain", id)
	if err != nil {
		return berth.Worker{}, err
	}
	if !known {
		return berth.Worker{}, errNoWorker()
	}
	return s.Worker(ctx, id)
}
