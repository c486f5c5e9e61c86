package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// namedSessions is how many sessions of a lost worker have a log line of their own. The rest is counted.
const namedSessions = 100

// loss is an instance that is lost, as this process knows of it.
type loss struct {
	berth.Sighting

	opened time.Time // when its gap opened, as the monotonic clock tells; zero: another process saw to it
	told   time.Time // by the database's clock: the survivors of calls know of the peers that connected until then; zero: of none
}

// sinceGap is how many milliseconds ago a gap opened, for log lines; zero: not known.
func sinceGap(opened time.Time) int64 {
	if opened.IsZero() {
		return 0
	}
	return time.Since(opened).Milliseconds()
}

// lose declares an instance dead, and sees to what depended on it. The verdict is void if the tick is history or the
// instance renewed since its gap opened.
func (r *Reaper) lose(ctx context.Context, tick int64, s berth.Sighting, evidence string) error {
	// Listed before: as soon as it is lost, its peers may move.
	peers, told, err := r.store.CallPeers(ctx, s.WorkerID, s.Instance)
	if err != nil {
		return fmt.Errorf("list call peers of %s: %w", s.WorkerID, err)
	}
	lost, err := r.store.MarkLost(ctx, tick, s.WorkerID, s.Instance, evidence)
	if err != nil || !lost {
		return err
	}
	confirm, known := r.memory.ended(s.Instance)
	if !known { // another process opened the gap
		confirm = s.GapAge
	}
	opened := time.Now().Add(-confirm)
	r.metrics.lost.WithLabelValues(evidence).Inc()
	r.logger.WarnContext(ctx, "loss_confirmed", "worker_id", s.WorkerID, "instance", s.Instance, "evidence", evidence,
		"tick", tick, "gap_ms", s.GapUnseen.Milliseconds(), "confirm_ms", confirm.Milliseconds())
	if err := r.herald.announce(ctx, peers, opened); err != nil {
		told = time.Time{} // by rows, then
		r.logger.WarnContext(ctx, "survivors not told yet", "worker_id", s.WorkerID, "err", err)
	}
	r.burials(func(ctx context.Context) error { return r.bury(ctx, loss{Sighting: s, opened: opened, told: told}) })
	return nil
}

// bury sees to what depended on a lost instance. Each step finds its work in rows and leaves none behind, so that the next
// tick finishes what a reaper that died in between left (Unfinished).
func (r *Reaper) bury(ctx context.Context, l loss) error {
	if err := r.nameLost(ctx, l); err != nil {
		return err
	}
	if err := r.herald.lose(ctx, l); err != nil {
		return err
	}
	return r.displace(ctx, l.Sighting, r.store.DisplaceLost)
}

// nameLost says which sessions lost their worker, and which calls a peer, while rows still tell.
func (r *Reaper) nameLost(ctx context.Context, l loss) error {
	sessions, err := r.store.OwnedBy(ctx, l.WorkerID, l.Instance, namedSessions)
	if err != nil {
		return fmt.Errorf("list sessions of %s: %w", l.WorkerID, err)
	}
	for _, lost := range sessions {
		r.logger.InfoContext(ctx, "session_lost", "worker_id", l.WorkerID, "instance", l.Instance, "session_id", lost.ID,
			"session_key", lost.Key, "generation", lost.Generation, "since_gap_ms", sinceGap(l.opened))
	}
	return nil
}

type displacer func(ctx context.Context, workerID string, instance berth.Instance, limit int) (int, error)

// displace moves an instance's sessions chunk by chunk. Rows that somebody works on are left for the next tick.
func (r *Reaper) displace(ctx context.Context, s berth.Sighting, move displacer) error {
	began, total := time.Now(), 0
	for {
		moved, err := move(ctx, s.WorkerID, s.Instance, chunk)
		if err != nil {
			return fmt.Errorf("displace sessions of %s: %w", s.WorkerID, err)
		}
		r.metrics.displaced.Add(float64(moved))
		if total += moved; moved > 0 {
			continue
		}
		if total > 0 {
			r.logger.InfoContext(ctx, "sessions_displaced", "worker_id", s.WorkerID, "instance", s.Instance,
				"sessions", total, "move_ms", time.Since(began).Milliseconds())
		}
		return nil
	}
}

// finish does what does not wait for a verdict: what an earlier tick left, notices that others wrote, drains past their deadline, sessions that
// want another worker at once, overdue deadlines, and how much load workers are given.
func (r *Reaper) finish(ctx context.Context) error {
	unfinished, err := r.store.Unfinished(ctx)
	if err != nil {
		return fmt.Errorf("find unfinished losses: %w", err)
	}
	for _, s := range unfinished {
		if err := r.bury(ctx, loss{Sighting: s}); err != nil {
			return err
		}
	}
	r.herald.tell(ctx)
	drains, err := r.store.OverdueDrains(ctx, r.detection.DrainGrace)
	if err != nil {
		return fmt.Errorf("find overdue drains: %w", err)
	}
	for _, s := range drains {
		if err := r.displace(ctx, s, r.store.DisplaceDrained); err != nil {
			return err
		}
	}
	if _, err := r.store.ReplaceLost(ctx, chunk); err != nil {
		return fmt.Errorf("replace lost sessions: %w", err)
	}
	if err := r.endOverdue(ctx); err != nil {
		return err
	}
	return r.pace(ctx)
}

func (r *Reaper) endOverdue(ctx context.Context) error {
	for {
		ended, err := r.store.EndOverdue(ctx, chunk)
		if err != nil {
			return fmt.Errorf("end overdue sessions: %w", err)
		}
		r.metrics.overdue.Add(float64(ended))
		if ended < chunk {
			return nil
		}
	}
}
