package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/internal/berth"
)

// reaperLock is the advisory lock of the one actor: class "berr", number 1.
const (
	reaperClass  = 0x62657272
	reaperNumber = 1
)

// WithReaperLock runs act while this store is the one actor, and reports false when another is, here or elsewhere. The
// lock lives as long as a transaction that carries nothing else, so it ends with the process. It has a connection of
// its own: act asks the pool for others.
func (s *Store) WithReaperLock(ctx context.Context, act func(context.Context) error) (ran bool, err error) {
	if !s.acting.TryLock() {
		return false, nil
	}
	defer s.acting.Unlock()
	err = pgx.BeginFunc(ctx, s.locks, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, "select pg_try_advisory_xact_lock($1::int, $2::int)", reaperClass, reaperNumber).Scan(&ran)
		if err != nil || !ran {
			return err
		}
		return act(ctx)
	})
	if err != nil {
		err = fmt.Errorf("hold reaper lock: %w", fault(err))
	}
	return ran, err
}

// BeginTick numbers a tick. blindAfter is the age at which the last look no longer counts, and lease the full term
// that every worker is given then.
func (s *Store) BeginTick(ctx context.Context, blindAfter, lease time.Duration) (berth.Tick, error) {
	type tickRow struct {
		Tick  int64
		Blind bool
	}
	rows, err := collect[tickRow](ctx, s, "tick_begin", blindAfter, lease)
	if err != nil {
		return berth.Tick{}, err
	}
	return berth.Tick{Number: rows[0].Tick, Blind: rows[0].Blind}, nil
}

type sightingRow struct {
	ID               string
	Instance         int32
	State            string
	ControlURL       string
	CordonedReason   string
	Present          bool
	LeaseLateSeconds float64
	Leased           bool
	GapAgeSeconds    *float64
}

// Look reads every serving worker as the reaper sees it, and records that tick looked. It fails with berth.ErrStale
// when another tick began since.
func (s *Store) Look(ctx context.Context, tick int64) ([]berth.Sighting, error) {
	if err := s.current(ctx, "tick_looked", tick); err != nil {
		return nil, err
	}
	rows, err := collect[sightingRow](ctx, s, "reaper_look")
	sightings := make([]berth.Sighting, 0, len(rows))
	for _, row := range rows {
		sighting := berth.Sighting{
			WorkerID:   row.ID,
			Instance:   berth.Instance(row.Instance),
			State:      berth.WorkerState(row.State),
			ControlURL: row.ControlURL,
			Cordoned:   row.CordonedReason != "",
			Present:    row.Present,
			Late:       seconds(row.LeaseLateSeconds),
			GapOpen:    row.GapAgeSeconds != nil,
			GapAge:     seconds(deref(row.GapAgeSeconds)),
		}
		sightings = append(sightings, sighting)
	}
	return sightings, err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// OpenGap records the first observation that a worker is missing. A gap that is open stays as it is.
func (s *Store) OpenGap(ctx context.Context, tick int64, workerID string, instance berth.Instance, evidence string) error {
	return s.exec(ctx, "gap_open", tick, workerID, int32(instance), evidence)
}

// ClearGap ends a worker's gap without consequence.
func (s *Store) ClearGap(ctx context.Context, workerID string, instance berth.Instance) error {
	return s.exec(ctx, "gap_clear", workerID, int32(instance))
}

// CordonLate closes a worker that is present but late to new claims, until it renews.
func (s *Store) CordonLate(ctx context.Context, tick int64, workerID string, instance berth.Instance) (bool, error) {
	return value[bool](ctx, s, "worker_cordon_late", tick, workerID, int32(instance))
}

// MarkLost declares an instance dead, for a recorded reason, unless it renewed since its gap opened, or the tick or the
// instance is history. Its sessions are still its own until Displaced.
func (s *Store) MarkLost(
	ctx context.Context, tick int64, workerID string, instance berth.Instance, evidence string,
) (bool, error) {
	return value[bool](ctx, s, "worker_mark_lost", tick, workerID, int32(instance), evidence)
}

// DisplaceLost takes up to limit sessions off an instance that is lost, and returns how many it took.
func (s *Store) DisplaceLost(ctx context.Context, workerID string, instance berth.Instance, limit int) (int, error) {
	return s.displace(ctx, displacement{
		workerID: workerID, below: instance + 1, cause: causeLost, ended: berth.EndedWorkerLost,
	}, limit)
}

// DisplaceDrained takes up to limit sessions off an instance whose drain deadline passed, and returns how many.
func (s *Store) DisplaceDrained(ctx context.Context, workerID string, instance berth.Instance, limit int) (int, error) {
	return s.displace(ctx, displacement{
		workerID: workerID, below: instance + 1, cause: causeDrained, ended: berth.EndedDrained,
	}, limit)
}

// Unfinished lists instances that are over and still own sessions, each at its newest: a reaper that died between its
// steps left them, or somebody worked on their rows.
func (s *Store) Unfinished(ctx context.Context) ([]berth.Sighting, error) {
	type unfinishedRow struct {
		ID       string
		Instance int32
		State    string
	}
	rows, err := collect[unfinishedRow](ctx, s, "reaper_unfinished")
	left := make([]berth.Sighting, 0, len(rows))
	for _, row := range rows {
		left = append(left, berth.Sighting{
			WorkerID: row.ID, Instance: berth.Instance(row.Instance), State: berth.WorkerState(row.State),
		})
	}
	return left, err
}

// OverdueDrains lists draining workers that still own sessions later than grace after their deadline.
func (s *Store) OverdueDrains(ctx context.Context, grace time.Duration) ([]berth.Sighting, error) {
	type drainRow struct {
		ID       string
		Instance int32
	}
	rows, err := collect[drainRow](ctx, s, "reaper_overdue_drains", grace)
	overdue := make([]berth.Sighting, 0, len(rows))
	for _, row := range rows {
		overdue = append(overdue, berth.Sighting{
			WorkerID: row.ID, Instance: berth.Instance(row.Instance), State: berth.WorkerDraining,
		})
	}
	return overdue, err
}

// ReplaceLost places up to limit sessions, berth.MaxBatch at most, that lost their worker and asked for another at once.
// A session that finds no slot keeps waiting; the next call goes on behind it, so that none bars the others. It returns
// how many it placed.
func (s *Store) ReplaceLost(ctx context.Context, limit int) (int, error) {
	limit = min(limit, berth.MaxBatch)
	rows, err := collect[sessionRow](ctx, s, "reaper_replaceable", limit, s.replacedTo.Load())
	if err != nil {
		return 0, err
	}
	if len(rows) < limit {
		s.replacedTo.Store(0)
	} else {
		s.replacedTo.Store(rows[limit-1].Key)
	}
	if len(rows) == 0 {
		return 0, nil
	}
	requests := make([]claimRequest, len(rows))
	for i, row := range rows {
		requests[i] = claimRequest{start: restart(row.session(), berth.Peer{}), only: &row.Key}
	}
	verdicts, err := s.claimBatch(ctx, requests)
	if err != nil {
		return 0, err
	}
	placed := 0
	var failures []error
	for _, v := range verdicts {
		switch {
		case v.again:
		case v.result.refusal == nil:
			placed++
		case berth.RefusalCode(v.result.refusal) == "":
			failures = append(failures, v.result.refusal)
		}
	}
	return placed, errors.Join(failures...)
}

// WarmWorkers opens more slots of the workers that start slowly.
func (s *Store) WarmWorkers(ctx context.Context) error { return s.exec(ctx, "worker_warm") }

// JudgeWorkers finds workers that serve badly, and those that no longer do: at least so many faults within window, and a
// rate of them above three times the median. It returns what changed.
func (s *Store) JudgeWorkers(ctx context.Context, window time.Duration, least int) ([]berth.Suspicion, error) {
	type suspicionRow struct {
		WorkerID string
		Suspect  bool
		Faults   int
	}
	rows, err := collect[suspicionRow](ctx, s, "worker_judge", window, least)
	verdicts := make([]berth.Suspicion, 0, len(rows))
	for _, row := range rows {
		verdicts = append(verdicts, berth.Suspicion(row))
	}
	return verdicts, err
}

// Violations reads up to limit invariants that do not hold. There should be none.
func (s *Store) Violations(ctx context.Context, limit int) ([]berth.Violation, error) {
	type violationRow struct {
		Invariant int
		What      string
		Subject   string
	}
	rows, err := collect[violationRow](ctx, s, "violation_list", limit)
	violations := make([]berth.Violation, 0, len(rows))
	for _, row := range rows {
		violations = append(violations, berth.Violation(row))
	}
	return violations, err
}

// Pressure reads what weighs on the database. Without pg_read_all_stats it sees the age of its own user's transactions only,
// but snapshots of all.
func (s *Store) Pressure(ctx context.Context) (berth.Pressure, error) {
	type pressureRow struct {
		OldestTransactionSeconds float64
		OldestXmin               int64
		Waiters                  int
	}
	rows, err := collect[pressureRow](ctx, s, "pressure_read")
	if err != nil {
		return berth.Pressure{}, err
	}
	return berth.Pressure{
		OldestTransaction: seconds(rows[0].OldestTransactionSeconds), OldestXmin: rows[0].OldestXmin, Waiters: rows[0].Waiters,
	}, nil
}

// PurgeWaiters deletes waiters that nobody will ask for: long past their deadline, or of a process that is gone.
func (s *Store) PurgeWaiters(ctx context.Context) error {
	return s.exec(ctx, "waiter_purge", time.Minute)
}

// PurgeHistory deletes closed gaps and refusal counts that are older than age, and what is of no use after an hour.
func (s *Store) PurgeHistory(ctx context.Context, age time.Duration) error {
	return errors.Join(s.exec(ctx, "gap_purge", age), s.exec(ctx, "refusal_purge", age),
		s.exec(ctx, "fault_purge", time.Hour))
}

// VacuumSlots removes the dead entries of slots from their indexes if there are more than least, or so the statistics say,
// which are a second old. Claims go on meanwhile.
func (s *Store) VacuumSlots(ctx context.Context, least int) error {
	due, err := value[bool](ctx, s, "slot_vacuum_due", least)
	if err != nil || !due {
		return err
	}
	return s.exec(ctx, "slot_vacuum")
}
