package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// displaceChunk is how many sessions one transaction moves, so that none holds its locks for long.
const displaceChunk = 200

// The causes of a displacement, as session_events record them.
const (
	causeNewerInstance = "newer_instance"
	causeDrained       = "drain_deadline"
	causeLost          = "worker_lost"
	causeLeft          = "worker_left"
	causeLateOwner     = "peer_lost_late_owner"
)

// NextInstance draws the number of one start of a worker.
func (s *Store) NextInstance(ctx context.Context) (berth.Instance, error) {
	instance, err := value[int32](ctx, s, "worker_next_instance")
	return berth.Instance(instance), err
}

// Register introduces an instance that is present. held: the instance before it is present and its lease runs, so ask
// again later. berth.ErrStale: a newer instance has the id, or this one was declared lost or left.
func (s *Store) Register(ctx context.Context, r berth.Registration) (held bool, err error) {
	labels, err := labelsOf(r.Labels)
	if err != nil {
		return false, err
	}
	outcome, err := value[string](ctx, s, "worker_register", r.WorkerID, int32(r.Instance), r.Region, r.Capacity,
		r.SignalingURL, r.ControlURL, r.Version, r.Lease.Seconds(), labels, r.RenewalHash)
	if err != nil {
		return false, err
	}
	switch outcome {
	case "registered":
		return false, nil
	case "held":
		return true, nil
	case "stale":
		return false, berth.ErrStale
	default:
		return false, fmt.Errorf("register_worker answered %q", outcome)
	}
}

// labelsOf is an object also when there are none, since the column is never null. It is text, which goes through a pooler.
func labelsOf(labels map[string]string) (string, error) {
	if len(labels) == 0 {
		return "{}", nil
	}
	text, err := json.Marshal(labels)
	if err != nil {
		return "", fmt.Errorf("encode labels: %w", err)
	}
	return string(text), nil
}

// Open displaces what older instances of the worker owned, makes its slots and opens it for claims: slowly, for as long as
// Config.SlowStart says, if other workers of its region bear the load meanwhile.
func (s *Store) Open(ctx context.Context, workerID string, instance berth.Instance) error {
	err := s.displaceAll(ctx, displacement{
		workerID: workerID, below: instance, cause: causeNewerInstance, ended: berth.EndedWorkerLost,
	})
	if err != nil {
		return err
	}
	return s.current(ctx, "worker_open", workerID, int32(instance), s.config.SlowStart.Seconds())
}

// current runs a query that answers false when its worker instance is history.
func (s *Store) current(ctx context.Context, name string, args ...any) error {
	current, err := value[bool](ctx, s, name, args...)
	if err != nil {
		return err
	}
	if !current {
		return berth.ErrStale
	}
	return nil
}

type renewalRow struct {
	Verdict       string
	State         *string
	DrainDeadline *time.Time
	Matched       bool
	At            time.Time
	ExpiresAt     *time.Time
	Shed          int
	ShedSeconds   float64
	ShedOrder     int64
}

// Renew extends a worker's lease and says what it should know.
func (s *Store) Renew(ctx context.Context, r berth.Renewal) (berth.RenewalAnswer, error) {
	rows, err := collect[renewalRow](ctx, s, "worker_renew",
		r.WorkerID, int32(r.Instance), r.Count, int64(r.Digest), r.Lease.Seconds(), r.Relayed, r.ShedSeen)
	if err != nil {
		return berth.RenewalAnswer{}, err
	}
	row := rows[0]
	return berth.RenewalAnswer{
		Verdict:       berth.RenewalVerdict(row.Verdict),
		State:         berth.WorkerState(deref(row.State)),
		DrainDeadline: deref(row.DrainDeadline),
		Matched:       row.Matched,
		At:            row.At,
		ExpiresAt:     deref(row.ExpiresAt),
		Shed:          berth.ShedOrder{Number: row.ShedOrder, Count: row.Shed, Spread: seconds(row.ShedSeconds)},
	}, nil
}

// RenewalSecrets reads the hashes by which instances of a worker prove themselves when an API replica renews for them; none
// for a worker that nobody knows. Those of the last few instances are kept.
func (s *Store) RenewalSecrets(ctx context.Context, workerID string) ([]berth.RenewalSecret, error) {
	type secretRow struct {
		Instance int32
		Hash     []byte
	}
	rows, err := collect[secretRow](ctx, s, "worker_renewal_secrets", workerID)
	secrets := make([]berth.RenewalSecret, 0, len(rows))
	for _, row := range rows {
		secrets = append(secrets, berth.RenewalSecret{Instance: berth.Instance(row.Instance), Hash: row.Hash})
	}
	return secrets, err
}

type droppedRow struct {
	Key        int64
	Generation int64
	Ended      bool
	Reason     *string
}

// Reconcile compares what a worker serves with what it should, and returns what to drop. What the worker lacks twice
// in a row ends as worker_forgot.
func (s *Store) Reconcile(
	ctx context.Context, workerID string, instance berth.Instance, held []berth.Held,
) ([]berth.Dropped, error) {
	keys, generations := make([]int64, len(held)), make([]int64, len(held))
	for i, h := range held {
		keys[i], generations[i] = int64(h.Key), int64(h.Generation)
	}
	rows, err := collect[droppedRow](ctx, s, "worker_reconcile", workerID, int32(instance), keys, generations,
		s.config.RejoinWindow.Seconds())
	dropped := make([]berth.Dropped, 0, len(rows))
	for _, row := range rows {
		dropped = append(dropped, berth.Dropped{
			Held:   berth.Held{Key: berth.SessionKey(row.Key), Generation: berth.Generation(row.Generation)},
			Ended:  row.Ended,
			Reason: berth.EndedReason(deref(row.Reason)),
		})
	}
	return dropped, err
}

// Drain is DrainWorker for a worker that drains itself.
func (s *Store) Drain(ctx context.Context, workerID string, instance berth.Instance, deadline time.Duration) error {
	return s.current(ctx, "worker_drain", workerID, int32(instance), deadline.Seconds(), true)
}

// Displace takes sessions off a worker that drains. Nil keys mean all that are placed there, also those that nobody
// connected to.
func (s *Store) Displace(
	ctx context.Context, workerID string, instance berth.Instance, keys []berth.SessionKey,
) error {
	var numbers []int64
	if keys != nil {
		numbers = make([]int64, len(keys))
	}
	for i, key := range keys {
		numbers[i] = int64(key)
	}
	return s.displaceAll(ctx, displacement{
		workerID: workerID, below: instance + 1, keys: numbers, cause: causeDrained, ended: berth.EndedDrained,
	})
}

// Leave is a worker's clean goodbye. Sessions that it still owns await a rejoin.
func (s *Store) Leave(ctx context.Context, workerID string, instance berth.Instance) error {
	err := s.displaceAll(ctx, displacement{
		workerID: workerID, below: instance + 1, cause: causeLeft, ended: berth.EndedDrained,
	})
	if err != nil {
		return err
	}
	return s.current(ctx, "worker_leave", workerID, int32(instance))
}
