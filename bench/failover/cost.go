package failover

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// settleTime lets what a level brought come to rest before it is measured.
const settleTime = 3 * time.Second

// Cost is how long ticks and looks take at a number of sessions, in milliseconds.
type Cost struct {
	Detector string       `json:"detector"`
	Sessions int          `json:"sessions"`
	Workers  int          `json:"workers"`
	Tick     Distribution `json:"tick_ms"`
	Look     Distribution `json:"look_ms"`
	Ticks    int          `json:"ticks"`
	// Rows says that the sessions are rows without sockets, and the workers locks without processes.
	Rows bool `json:"rows_only"`
}

// cost measures one detector at every level of live calls.
func (s *scene) cost(ctx context.Context, what string) ([]Cost, error) {
	var out []Cost
	for _, level := range s.rig.cfg.Levels {
		if err := s.fill(ctx, level); err != nil {
			return out, fmt.Errorf("make %d calls: %w", level, err)
		}
		c, err := s.measure(ctx, len(s.calls), len(s.workers))
		if err != nil {
			return out, err
		}
		out = append(out, c)
		s.rig.step(what)
	}
	return out, nil
}

func (s *scene) measure(ctx context.Context, sessions, workers int) (Cost, error) {
	if err := rest(ctx, settleTime); err != nil {
		return Cost{}, err
	}
	durations, err := s.watch(ctx, s.rig.cfg.Ticks)
	if err != nil {
		return Cost{}, err
	}
	return Cost{
		Detector: s.tuning.detector, Sessions: sessions, Workers: workers, Ticks: len(durations[metricTick]),
		Tick: newDistribution(durations[metricTick]), Look: newDistribution(durations[metricLook]),
	}, nil
}

// rowCosts measures presence at numbers of sessions that are rows only.
func (r *rig) rowCosts(ctx context.Context, detector string) (out []Cost, err error) {
	s, err := r.raise(ctx, tuning{detector: detector, workers: -1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	rows, err := s.startRows(ctx, r.cfg.RowWorkers)
	if err != nil {
		return nil, fmt.Errorf("make workers: %w", err)
	}
	defer func() { err = errors.Join(err, rows.close(ctx)) }()
	for _, n := range r.cfg.Rows {
		if err := rows.fill(ctx, n); err != nil {
			return out, fmt.Errorf("make %d rows: %w", n, err)
		}
		c, err := s.measure(ctx, n, r.cfg.RowWorkers)
		if err != nil {
			return out, err
		}
		c.Rows = true
		out = append(out, c)
		r.step("cost of rows")
	}
	return out, nil
}
