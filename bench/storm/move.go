package storm

import (
	"context"
	"fmt"
	"time"

	sdk "github.com/berthdev/berth/sdk/go"
)

// drain drains a worker that has all clients, while others have none.
func (r *rig) drain(ctx context.Context) (Case, error) {
	return r.within(ctx, CaseDrain, r.cfg.Workers, manner{}, func(ctx context.Context, s *scene) (c Case, err error) {
		victim := s.fleet.Workers[0].ID
		is := func(worker string) bool { return worker == victim }
		if err := s.cordon(ctx, func(worker string) bool { return !is(worker) }); err != nil {
			return c, err
		}
		if err := s.crowd.fill(ctx, r.cfg.Drained); err != nil {
			return c, err
		}
		// It gets nothing new from now on, and is not compared with the empty ones.
		if err := s.cordon(ctx, is); err != nil {
			return c, err
		}
		if err := s.crowd.watch(ctx, haven{Not: victim}); err != nil {
			return c, err
		}
		mib, about := memory(), span{from: time.Now(), gone: victim}
		if err := rest(ctx, r.cfg.Before); err != nil {
			return c, err
		}
		about.fault = time.Now()
		if _, err := s.operator.DrainWorker(ctx, victim, sdk.DrainWorker{Deadline: r.cfg.Deadline}); err != nil {
			return c, fmt.Errorf("drain: %w", err)
		}
		await(ctx, s.crowd, s.crowd.listeners, about.fault, r.cfg.Deadline+r.cfg.Patience, func(l *listener) bool { return l.worker() != victim })
		return s.planned(ctx, CaseDrain, about, mib)
	})
}

// planned makes the case of a planned move that is over.
func (s *scene) planned(ctx context.Context, name string, about span, mib float64) (Case, error) {
	about.ended = time.Now()
	seen, err := s.crowd.hush(ctx)
	if err != nil {
		return Case{}, err
	}
	c := tally(name, s.crowd, about, seen)
	c.ClientMiB = mib
	c.SecondDeaths, err = s.deaths(ctx, "")
	return c, err
}

// shed adds a worker, and has the others shed what they have above the mean.
func (r *rig) shed(ctx context.Context) (Case, error) {
	before := r.cfg.Workers - 1
	return r.within(ctx, CaseShed, before, manner{}, func(ctx context.Context, s *scene) (c Case, err error) {
		if err := s.crowd.fill(ctx, r.cfg.N); err != nil {
			return c, err
		}
		if err := s.fleet.Add(ctx, 1); err != nil {
			return c, err
		}
		added := s.fleet.Workers[before].ID
		if err := s.crowd.watch(ctx, haven{Only: added}); err != nil {
			return c, err
		}
		mib, about := memory(), span{from: time.Now()}
		if err := rest(ctx, r.cfg.Before); err != nil {
			return c, err
		}
		about.fault = time.Now()
		ordered, err := s.order(ctx, before)
		if err != nil {
			return c, err
		}
		s.settleShed(ctx, about.fault, ordered)
		return s.planned(ctx, CaseShed, about, mib)
	})
}

// order has the first n workers shed, and returns how many connections.
func (s *scene) order(ctx context.Context, n int) (ordered int, err error) {
	mean := s.rig.cfg.N / (n + 1)
	for _, w := range s.fleet.Workers[:n] {
		count := len(s.crowd.at(w.ID)) - mean
		if count <= 0 {
			continue
		}
		if _, err := s.operator.ShedWorker(ctx, w.ID, count, s.rig.cfg.Spread); err != nil {
			return ordered, fmt.Errorf("shed: %w", err)
		}
		ordered += count
	}
	return ordered, nil
}

// settleShed waits until so many clients were shed, and everybody is back.
func (s *scene) settleShed(ctx context.Context, since time.Time, ordered int) {
	_ = eventually(ctx, s.rig.cfg.Spread+s.rig.cfg.Patience, func() bool { // the tally says who is not
		shed, settled := 0, 0
		for _, l := range s.crowd.listeners {
			events := l.trace.since(since)
			if len(events) == 0 {
				continue
			}
			shed++
			if l.trace.returned(since) && l.heard.resumed(since) {
				settled++
			}
		}
		s.crowd.progress(settled, max(ordered, shed), "clients are back")
		return shed >= ordered && settled == shed
	})
}
