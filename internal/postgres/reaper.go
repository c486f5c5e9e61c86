package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/internal/berth"
)

// BeginTick numbers a tick. blindAfter is the age at which the last look no longer counts, and lease the full term
// that every worker is given then.
func (s *Store) BeginTick(ctx context.Context, blindAfter, lease time.Duration) (berth.Tick, error) {
	type tickRow struct {
		Tick  int64
		Blind bool
		At    time.Time
	}
	rows, err := collect[tickRow](ctx, s, "tick_begin", blindAfter, lease)
	if err != nil {
		return berth.Tick{}, err
	}
	return berth.Tick{Number: rows[0].Tick, Blind: rows[0].Blind, At: rows[0].At}, nil
}

// Distrust makes the next tick start blind, whoever runs it.
func (s *Store) Distrust(ctx context.Context) error { return s.exec(ctx, "tick_distrust") }

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
	GapUnseenSeconds *float64
}

func (row sightingRow) sighting() berth.Sighting {
	return berth.Sighting{
		WorkerID:   row.ID,
		Instance:   berth.Instance(row.Instance),
		State:      berth.WorkerState(row.State),
		ControlURL: row.ControlURL,
		Cordoned:   row.CordonedReason != "",
		Present:    row.Present,
		Late:       seconds(row.LeaseLateSeconds),
		GapOpen:    row.GapAgeSeconds != nil,
		GapAge:     seconds(deref(row.GapAgeSeconds)),
		GapUnseen:  seconds(deref(row.GapUnseenSeconds)),
	}
}

// Look reads every serving worker as the reaper sees it, and records that its tick looked. It fails with berth.ErrStale
// when another tick began since, or the reaper's memory was distrusted.
func (s *Store) Look(ctx context.Context, look berth.Look) (berth.View, error) {
	if !look.Fresh {
		return s.look(ctx, s.pool, look)
	}
	settings := s.pool.Config().ConnConfig
	conn, err := pgx.ConnectConfig(ctx, settings)
	if err != nil {
		return berth.View{}, fmt.Errorf("open a fresh connection: %w", fault(err))
	}
	view, err := s.look(ctx, conn, look)
	_ = conn.Close(context.WithoutCancel(ctx)) // nothing was left on it
	return view, err
}

// querier is a connection, or a pool of them.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (s *Store) look(ctx context.Context, on querier, look berth.Look) (berth.View, error) {
	var at *time.Time
	if err := on.QueryRow(ctx, s.queries["tick_looked"], look.Tick).Scan(&at); err != nil {
		return berth.View{}, named("tick_looked", err)
	}
	if at == nil {
		return berth.View{}, berth.ErrStale
	}
	rows, err := on.Query(ctx, s.queries["reaper_look"], look.Presence)
	if err != nil {
		return berth.View{}, named("reaper_look", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[sightingRow])
	view := berth.View{At: *at, Workers: make([]berth.Sighting, 0, len(found))}
	for _, row := range found {
		view.Workers = append(view.Workers, row.sighting())
	}
	return view, named("reaper_look", err)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

type ownedRow struct {
	Key        int64
	ID         string
	Generation int64
	WorkerID   string
	Instance   int32
}

// OwnedBy lists up to limit live sessions of an instance, and of those before it, with the calls that have a peer connected
// there.
func (s *Store) OwnedBy(ctx context.Context, workerID string, instance berth.Instance, limit int) ([]berth.Owned, error) {
	rows, err := collect[ownedRow](ctx, s, "reaper_owned", workerID, int32(instance), limit)
	return owned(rows), err
}

// WalkSessions reads every live session. It is for comparisons with designs that must.
func (s *Store) WalkSessions(ctx context.Context) ([]berth.Owned, error) {
	rows, err := collect[ownedRow](ctx, s, "reaper_walk")
	return owned(rows), err
}

func owned(rows []ownedRow) []berth.Owned {
	list := make([]berth.Owned, len(rows))
	for i, row := range rows {
		list[i] = berth.Owned{
			Key: berth.SessionKey(row.Key), ID: row.ID, Generation: berth.Generation(row.Generation),
			WorkerID: row.WorkerID, Instance: berth.Instance(row.Instance),
		}
	}
	return list
}

// OpenGap records the first observation that a worker is missing, by which evidence, and how long it had not been seen
// then; zero: not known. A gap that is open stays as it is.
func (s *Store) OpenGap(
	ctx context.Context, tick int64, workerID string, instance berth.Instance, evidence string, unseen time.Duration,
) error {
	known := &unseen
	if unseen == 0 {
		known = nil
	}
	return s.exec(ctx, "gap_open", tick, workerID, int32(instance), evidence, known)
}

// ClearGap ends a worker's gap without consequence, unless another tick began.
func (s *Store) ClearGap(ctx context.Context, tick int64, workerID string, instance berth.Instance) error {
	return s.exec(ctx, "gap_clear", tick, workerID, int32(instance))
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

// Unfinished lists instances that are over and still own sessions or have connected call peers, each at its newest: a reaper that died between its
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
