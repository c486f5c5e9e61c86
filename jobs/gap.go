package jobs

import (
	"context"
	"slices"
	"sync"

	"github.com/berthdev/berth/internal/berth"
)

// suspect is a worker whose loss is not proven, and why it would be lost.
type suspect struct {
	berth.Sighting

	step     berth.Step
	evidence string
}

// suspects are those of one look. It is safe for concurrent use.
type suspects struct {
	mu      sync.Mutex
	list    []suspect
	settled int // workers with a gap of whom something was proven
}

func (s *suspects) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled++
}

func (s *suspects) add(one suspect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, one)
}

// openGap notes the first sign.
func (r *Reaper) openGap(ctx context.Context, tick int64, s berth.Sighting) error {
	sign := s.Sign
	if !s.Missing {
		sign = evidenceLate
	}
	unseen := r.memory.unseen(s.Instance)
	if !s.Missing {
		unseen = 0 // it is seen, and late
	}
	if err := r.store.OpenGap(ctx, tick, s.WorkerID, s.Instance, sign, unseen); err != nil {
		return err
	}
	r.memory.opened(s.Instance)
	r.logger.InfoContext(ctx, "gap_opened", "worker_id", s.WorkerID, "instance", s.Instance, "evidence", sign, "tick", tick,
		"gap_ms", unseen.Milliseconds())
	return nil
}

// clearGap ends the gap of a worker that is back, and says why.
func (r *Reaper) clearGap(ctx context.Context, tick int64, s berth.Sighting, why string) error {
	if err := r.store.ClearGap(ctx, tick, s.WorkerID, s.Instance); err != nil {
		return err
	}
	r.memory.ended(s.Instance)
	r.logger.InfoContext(ctx, "gap_cleared", "worker_id", s.WorkerID, "instance", s.Instance, "reason", why,
		"open_ms", s.GapAge.Milliseconds())
	return nil
}

// noteRenewal tells of a gap that was opened here and that the worker ended itself, by renewing.
func (r *Reaper) noteRenewal(ctx context.Context, s berth.Sighting) {
	if s.GapOpen {
		return
	}
	if open, known := r.memory.ended(s.Instance); known {
		r.logger.InfoContext(ctx, "gap_cleared", "worker_id", s.WorkerID, "instance", s.Instance, "reason", "renewed",
			"open_ms", open.Milliseconds())
	}
}

// loseSuspects declares workers lost that nothing proves dead. When too many are missing to be believed, these or others whose
// time has not come, a look over a fresh connection must agree, worker by worker.
func (r *Reaper) loseSuspects(ctx context.Context, tick int64, list []suspect, missing, workers int) error {
	if len(list) > 0 && r.detection.Overwhelming(missing, workers) {
		r.metrics.doubts.Inc()
		sight, err := r.see(ctx, berth.Look{Tick: tick, Fresh: true})
		if err != nil {
			return err
		}
		agreed := slices.DeleteFunc(slices.Clone(list), func(one suspect) bool {
			return !slices.ContainsFunc(sight.Workers, func(s berth.Sighting) bool {
				return s.Instance == one.Instance && r.detection.Judge(s) == one.step
			})
		})
		r.logger.WarnContext(ctx, "mass_loss_doubted", "workers", workers, "suspects", len(list), "agreed", len(agreed))
		list = agreed
	}
	for _, one := range list {
		if err := r.lose(ctx, tick, one.Sighting, one.evidence); err != nil {
			return err
		}
	}
	return nil
}
