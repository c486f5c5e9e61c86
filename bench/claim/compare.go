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
	report = &Report{Subjects: map[string]*Subject{}, order: cfg.Subjects}
	if report.Machine, err = r.machine(ctx); err != nil {
		return nil, err
	}
	for _, name := range cfg.Subjects {
		report.Subjects[name] = &Subject{}
	}
	for round := range cfg.Rounds {
		for i := range cfg.Subjects {
			name := cfg.Subjects[(i+round)%len(cfg.Subjects)]
			m, err := r.measureOnce(ctx, name)
			if err != nil {
				return nil, err
			}
			cfg.Logger.InfoContext(ctx, "subject measured", "subject", name, "round", round+1,
				"rps", int(m.RPS), "p50_ms", m.P50, "p99_ms", m.P99)
			report.Subjects[name].Rounds = append(report.Subjects[name].Rounds, m)
		}
	}
	report.summarize()
	return report, nil
}

// medians takes the median of each number over the rounds.
func medians(rounds []measurement) measurement {
	over := func(number func(measurement) float64) float64 {
		values := make([]float64, len(rounds))
		for i, m := range rounds {
			values[i] = number(m)
		}
		return load.Median(values)
	}
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
