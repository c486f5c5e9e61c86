package failover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/berthdev/berth/bench/lab"
)

// Run measures what the configuration asks for. With an error, the report holds what was measured before it.
func Run(ctx context.Context, cfg Config) (report *Report, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	defer lab.CollectRarely()()
	r, err := openRig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	machine, err := r.machine(ctx)
	if err != nil {
		return nil, err
	}
	report = &Report{Machine: machine}
	defer func() { report.Collateral = r.tally.sum }()
	for _, part := range []struct {
		name string
		run  func(context.Context, *Report) error
	}{
		{PartKills, r.runKills},
		{PartLeaders, r.runLeaders},
		{PartMany, r.runMany},
		{PartPauses, r.runPauses},
		{PartCost, r.runCost},
		{PartLengths, r.runLengths},
		{PartArticle, r.runArticle},
	} {
		if !has(cfg.Parts, part.name) {
			continue
		}
		if err := part.run(ctx, report); err != nil {
			return report, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	for _, finding := range r.tally.sum.Findings {
		cfg.Logger.WarnContext(ctx, "collateral", "finding", finding)
	}
	return report, nil
}

// within runs use on a fleet with live calls.
func (r *rig) within(
	ctx context.Context, t tuning, calls int, use func(context.Context, *scene) error,
) (err error) {
	s, err := r.raise(ctx, t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	if err := s.fill(ctx, calls); err != nil {
		return fmt.Errorf("make calls: %w", err)
	}
	return use(ctx, s)
}

// plain is a fleet with default settings but for the detector. A lease that is over is noticed some seconds late.
func plain(detector string) tuning { return tuning{detector: detector} }

func (r *rig) runKills(ctx context.Context, report *Report) error {
	for _, detector := range r.cfg.detectors() {
		err := r.within(ctx, plain(detector), r.cfg.Calls, func(ctx context.Context, s *scene) error {
			samples, err := s.kills(ctx, r.cfg.Kills, "kills, "+detector)
			report.add(ctx, r.cfg.Logger, newCase(PartKills, "kill", detector, samples))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Report) add(ctx context.Context, logger *slog.Logger, c Case) {
	r.Cases = append(r.Cases, c)
	logger.InfoContext(ctx, "measured", "part", c.Part, "case", c.Name, "detector", c.Detector, "n", c.N,
		"gap_p50_ms", c.Gap.P50, "confirm_p50_ms", c.Confirm.P50, "notified_p50_ms", c.Notified.P50,
		"notified_max_ms", c.Notified.Max, "missed", c.Missed)
}

func (r *rig) runLeaders(ctx context.Context, report *Report) error {
	for _, detector := range r.cfg.leaderDetectors() {
		err := r.within(ctx, plain(detector), r.cfg.Calls, func(ctx context.Context, s *scene) error {
			for _, c := range leaderCases() {
				err := s.repeat(ctx, report, PartLeaders, c.name(), func() (Sample, error) { return s.leaderKill(ctx, c) })
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// runMany kills two workers at once, and a worker with many calls.
func (r *rig) runMany(ctx context.Context, report *Report) error {
	for _, detector := range r.cfg.leaderDetectors() {
		err := r.within(ctx, plain(detector), r.cfg.Calls, func(ctx context.Context, s *scene) error {
			return s.repeat(ctx, report, PartMany, "two_workers", func() (Sample, error) {
				return s.kill(ctx, s.victims(2), nothing, nothing)
			})
		})
		if err != nil {
			return err
		}
		crowd, err := r.crowd(ctx, detector)
		if crowd.N > 0 {
			report.add(ctx, r.cfg.Logger, crowd)
		}
		if err != nil {
			return fmt.Errorf("crowd: %w", err)
		}
		r.step("crowd, " + detector)
	}
	return nil
}

// repeat has a fault happen as often as each case of leaders, and adds the case to the report.
func (s *scene) repeat(ctx context.Context, report *Report, part, name string, once func() (Sample, error)) error {
	var samples []Sample
	for range s.rig.cfg.LeaderKills {
		sample, err := once()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		samples = append(samples, sample)
		s.rig.step(name + ", " + s.tuning.detector)
	}
	report.add(ctx, s.rig.cfg.Logger, newCase(part, name, s.tuning.detector, samples))
	return nil
}

func (r *rig) runPauses(ctx context.Context, report *Report) error {
	for _, detector := range r.cfg.detectors() {
		err := r.within(ctx, plain(detector), r.cfg.Calls, func(ctx context.Context, s *scene) error {
			pauses, err := s.pauses(ctx, r.cfg.Pauses, "pauses, "+detector)
			report.Pauses = append(report.Pauses, pauses...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) runCost(ctx context.Context, report *Report) error {
	for _, detector := range r.cfg.detectors() {
		err := r.within(ctx, plain(detector), 0, func(ctx context.Context, s *scene) error {
			costs, err := s.cost(ctx, "cost, "+detector)
			report.Costs = append(report.Costs, costs...)
			return err
		})
		if err != nil {
			return err
		}
	}
	if !has(r.cfg.detectors(), Detectors()[0]) {
		return nil
	}
	costs, err := r.rowCosts(ctx, Detectors()[0])
	report.Costs = append(report.Costs, costs...)
	return err
}

// leased is a fleet with another lease, which is renewed three times, and ticks that are shorter than it.
func leased(detector string, lease time.Duration) tuning {
	variable := "BERTH_LEASE=" + lease.String()
	return tuning{
		detector: detector,
		api:      []string{variable, "BERTH_REAPER_TICK=" + min(defaultTick, lease/2).String()},
		worker:   []string{variable, "BERTH_RENEW_INTERVAL=" + (lease / 3).Round(time.Millisecond).String()},
	}
}

// runLengths kills workers at several lengths of the lease.
func (r *rig) runLengths(ctx context.Context, report *Report) error {
	for _, detector := range lengthDetectors() {
		for _, lease := range r.cfg.Leases {
			err := r.within(ctx, leased(detector, lease), r.cfg.Calls, func(ctx context.Context, s *scene) error {
				samples, err := s.kills(ctx, r.cfg.LengthKills, fmt.Sprintf("lease of %s, %s", lease, detector))
				c := newCase(PartLengths, "lease_"+lease.String(), detector, samples)
				report.Lengths = append(report.Lengths, Length{detector, lease.Seconds(), c.N, c.Notified})
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
