package failover

import (
	"context"
	"time"
)

// The article's numbers.
const (
	articleWorkers = 3
	articleTick    = 5 * time.Second
	articleLease   = 6 * time.Second
	// articlePatience is more than its slowest detection.
	articlePatience = time.Minute
)

// articleSaid is what the article measured, in seconds: from the kill to the first gap, and from there to the verdict.
func articleSaid() map[string][2]float64 {
	return map[string][2]float64{"sweep": {3.6, 5}, "lease": {8.3, 5}}
}

// articleTuning has the reaper look once a tick, confirm by the next tick, and walk over every session.
func articleTuning(detector string) tuning {
	return tuning{
		detector: detector, workers: articleWorkers, tick: articleTick, patience: articlePatience,
		api: []string{
			"BERTH_REAPER_TICK=" + articleTick.String(),
			"BERTH_CONFIRM_DELAY=" + articleTick.String(),
			"BERTH_LEASE=" + articleLease.String(),
			"BERTH_SENTINEL_LOOK=0s",
			"BERTH_WALK_SESSIONS=true",
		},
		worker: []string{"BERTH_LEASE=" + articleLease.String()},
	}
}

// runArticle measures both designs as the article has them. What pauses cost is reported and is no collateral.
func (r *rig) runArticle(ctx context.Context, report *Report) error {
	article := &Article{}
	report.Article = article
	for _, detector := range articleDetectors() {
		t := articleTuning(detector)
		err := r.within(ctx, t, r.cfg.Calls, func(ctx context.Context, s *scene) error {
			samples, err := s.kills(ctx, r.cfg.Kills, "article, kills, "+detector)
			article.Cases = append(article.Cases, newCase(PartArticle, "kill", detector, samples))
			if err != nil {
				return err
			}
			pauses, err := s.pauses(ctx, r.cfg.Pauses, "article, pauses, "+detector)
			article.Pauses = append(article.Pauses, pauses...)
			return err
		})
		if err != nil {
			return err
		}
		err = r.within(ctx, t, 0, func(ctx context.Context, s *scene) error {
			costs, err := s.cost(ctx, "article, cost, "+detector)
			article.Costs = append(article.Costs, costs...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
