package connections

import (
	"context"
	"errors"
	"fmt"

	"github.com/berthdev/berth/bench/lab"
	"github.com/berthdev/berth/internal/devpg"
)

const (
	region   = "local"
	tenant   = "bench"
	template = "berth_template"
)

// rig is the server of a run.
type rig struct {
	cfg      Config
	postgres *lab.Server
	key      string // of the tenant
}

// Run measures what the configuration asks for. With an error, the report holds what was measured before it.
func Run(ctx context.Context, cfg Config) (report *Report, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &rig{cfg: cfg.withDefaults()}
	if r.postgres, err = lab.Open(ctx, devpg.Config{Durable: true}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.postgres.Close(ctx)) }()
	keys, err := r.postgres.Prepare(ctx, template, lab.Plan{Region: region, Tenants: []string{tenant}})
	if err != nil {
		return nil, fmt.Errorf("prepare database: %w", err)
	}
	r.key = keys[tenant]
	host, err := r.postgres.Describe(ctx, r.cfg.Version)
	if err != nil {
		return nil, err
	}
	report = newReport(r.cfg, host)
	return report, r.rounds(ctx, report)
}

func (r *rig) rounds(ctx context.Context, report *Report) error {
	total := r.cfg.Rounds * len(r.cfg.Subjects)
	for round := range r.cfg.Rounds {
		for i, name := range r.cfg.Subjects {
			m, err := r.measure(ctx, r.cfg.subject(name))
			if err != nil {
				return fmt.Errorf("measure %s: %w", name, err)
			}
			report.add(m)
			r.cfg.Logger.InfoContext(ctx, "measured", "subject", name, "round", round+1, "rss_kib", m.RSS, "heap_kib", m.Heap,
				"stack_kib", m.Stack, "kernel_kib", m.Kernel, "opening_seconds", m.Opening)
			r.cfg.Progress(round*len(r.cfg.Subjects)+i+1, total, name)
		}
	}
	return nil
}
