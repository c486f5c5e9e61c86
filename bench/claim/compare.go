package claim

import (
	"context"
	"errors"

	"github.com/berthdev/berth/bench/load"
)

// Compare measures every subject once in each round and reports the medians.
func Compare(ctx context.Context, cfg Config) (report *Report, err error) {
	cfg = cfg.withDefaults()
	r, err := openRig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	report = &Report{order: cfg.Subjects}
	if report.Machine, err = r.machine(ctx); err != nil {
		return nil, err
	}
	if report.Subjects, err = r.rounds(ctx, cfg.Subjects, r.measureOnce); err != nil {
		return nil, err
	}
	report.compare()
	return report, nil
}

// rounds measures each of names once per round. The order turns by one from round to round.
func (r *rig) rounds(
	ctx context.Context, names []string, once func(context.Context, string) (measurement, error),
) (map[string]*Subject, error) {
	subjects := map[string]*Subject{}
	for _, name := range names {
		subjects[name] = &Subject{}
	}
	for round := range r.cfg.Rounds {
		for i := range names {
			name := names[(i+round)%len(names)]
			m, err := once(ctx, name)
			if err != nil {
				return nil, err
			}
			r.cfg.Logger.InfoContext(ctx, "measured", "subject", name, "round", round+1,
				"rps", int(m.RPS), "p50_ms", m.P50, "p99_ms", m.P99)
			subjects[name].Rounds = append(subjects[name].Rounds, m)
		}
	}
	for _, s := range subjects {
		s.Median = medians(s.Rounds)
	}
	return subjects, nil
}

// medians takes the median of each number over the rounds.
func medians(rounds []measurement) measurement {
	over := func(number func(measurement) float64) float64 { return medianOf(rounds, number) }
	return measurement{
		RPS: over(func(m measurement) float64 { return m.RPS }),
		P50: over(func(m measurement) float64 { return m.P50 }),
		P99: over(func(m measurement) float64 { return m.P99 }),
		CPU: cpuPerRequest{
			Server: over(func(m measurement) float64 { return m.CPU.Server }),
			Store:  over(func(m measurement) float64 { return m.CPU.Store }),
			Load:   over(func(m measurement) float64 { return m.CPU.Load }),
		},
		Samples: int(over(func(m measurement) float64 { return float64(m.Samples) })),
	}
}

// medianOf is the median of one number of many values.
func medianOf[T any](values []T, number func(T) float64) float64 {
	numbers := make([]float64, len(values))
	for i, value := range values {
		numbers[i] = number(value)
	}
	return load.Median(numbers)
}
