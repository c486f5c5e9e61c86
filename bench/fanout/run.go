package fanout

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/berthdev/berth/bench/lab"
	"github.com/berthdev/berth/internal/devpg"
)

const (
	region   = "local"
	tenant   = "bench"
	template = "berth_template"
	// connections of Postgres: the pools, listeners and presence of all processes.
	connectionsBase = 100
	connectionsEach = 20
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
	most := connectionsBase + connectionsEach*r.cfg.Processes
	if r.postgres, err = lab.Open(ctx, devpg.Config{Durable: true, MaxConnections: most}); err != nil {
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

// rounds measures each load on all systems, in an order that changes from round to round.
func (r *rig) rounds(ctx context.Context, report *Report) error {
	systems := r.cfg.systems()
	total, done := r.cfg.Rounds*len(r.cfg.Loads)*len(systems), 0
	for round := range r.cfg.Rounds {
		for _, name := range r.cfg.Loads {
			for _, system := range systems {
				m, err := r.measure(ctx, r.cfg.shape(name), system)
				if err != nil {
					return fmt.Errorf("measure %s on %s: %w", name, system, err)
				}
				report.add(m)
				r.cfg.Logger.InfoContext(ctx, "measured", "load", name, "system", system, "round", round+1,
					"writes_per_s", m.Writes, "cpu_us_per_write", m.CPU, "p99_ms", m.P99, "ratio", m.Ratio, "missing", m.Missing)
				done++
				r.cfg.Progress(done, total, name+", "+system)
			}
		}
		slices.Reverse(systems)
	}
	return nil
}
