package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// judgePeriod is how often workers are compared by their faults.
	judgePeriod = 10 * time.Second
	// faultWindow is how long a fault counts, and leastFaults how many make a suspect, if they are many beside others'.
	faultWindow = 10 * time.Minute
	leastFaults = 5
)

// Pacing is how much load workers are given; internal/postgres documents the methods.
type Pacing interface {
	WarmWorkers(ctx context.Context) error
	JudgeWorkers(ctx context.Context, window time.Duration, least int) ([]berth.Suspicion, error)
	PurgeWaiters(ctx context.Context) error
}

// pace opens more slots of workers that start slowly and, now and then, finds those that serve badly.
func (r *Reaper) pace(ctx context.Context) error {
	if err := r.store.WarmWorkers(ctx); err != nil {
		return fmt.Errorf("warm workers: %w", err)
	}
	if !r.judgeIsDue() {
		return nil
	}
	if err := r.store.PurgeWaiters(ctx); err != nil {
		return fmt.Errorf("purge waiters: %w", err)
	}
	verdicts, err := r.store.JudgeWorkers(ctx, faultWindow, leastFaults)
	if err != nil {
		return fmt.Errorf("judge workers: %w", err)
	}
	for _, v := range verdicts {
		if v.Suspect {
			r.logger.WarnContext(ctx, "worker suspect", "worker_id", v.WorkerID, "faults", v.Faults)
		} else {
			r.logger.InfoContext(ctx, "worker cleared", "worker_id", v.WorkerID, "faults", v.Faults)
		}
	}
	return nil
}

func (r *Reaper) judgeIsDue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.judgedAt) < judgePeriod {
		return false
	}
	r.judgedAt = time.Now()
	return true
}
