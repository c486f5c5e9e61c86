package storm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/berthdev/berth/bench/lab"
	"github.com/berthdev/berth/internal/openfile"
)

// Run measures what the configuration asks for. With an error, the report holds what was measured before it.
func Run(ctx context.Context, cfg Config) (report *Report, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := room(cfg.clients()); err != nil {
		return nil, err
	}
	defer lab.CollectRarely()()
	r, err := openRig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	host, err := r.postgres.Describe(ctx, cfg.Version)
	if err != nil {
		return nil, err
	}
	report = &Report{Machine: Machine{Host: host, Workers: cfg.Workers, APIs: cfg.APIs}}
	for _, name := range cfg.Cases {
		c, err := r.run(ctx, name)
		if err != nil {
			return report, fmt.Errorf("%s: %w", name, err)
		}
		report.Cases = append(report.Cases, c)
		cfg.Logger.InfoContext(ctx, "measured", "case", name, "lost", c.Lost, "back", c.Back, "cleared_s", c.ClearedS,
			"round_trip_ratio", c.RoundTrip.Ratio, "faults", c.Faults())
	}
	return report, nil
}

// clients is how many sockets this process has at most.
func (c Config) clients() int { return max(c.N, c.Drained) }

// room makes sure that this process may open so many sockets, and each again while its last one ends.
func room(clients int) error {
	limit, err := openfile.Raise()
	if errors.Is(err, openfile.ErrUnknown) {
		return nil // not on this system
	}
	if err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	if need := clients + clients/2 + 200; limit.Room() < need {
		return fmt.Errorf("%d clients need %d open files, and this process may have %d more: raise ulimit -n, or have fewer clients", clients, need, limit.Room())
	}
	return nil
}

func (r *rig) run(ctx context.Context, name string) (Case, error) {
	switch name {
	case CaseKill:
		return r.kill(ctx, name, manner{})
	case CaseExpired:
		return r.kill(ctx, name, manner{aged: true})
	case CaseNoJitter:
		return r.kill(ctx, name, manner{random: whole})
	case CaseDrain:
		return r.drain(ctx)
	default:
		return r.shed(ctx)
	}
}

// whole is all of a window.
func whole() float64 { return math.Nextafter(1, 0) }

// within runs use on a fleet with a crowd.
func (r *rig) within(ctx context.Context, name string, workers int, m manner, use func(context.Context, *scene) (Case, error)) (c Case, err error) {
	s, err := r.raise(ctx, name, workers, m)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	return use(ctx, s)
}

// kill kills one of all workers.
func (r *rig) kill(ctx context.Context, name string, m manner) (Case, error) {
	return r.within(ctx, name, r.cfg.Workers, m, func(ctx context.Context, s *scene) (c Case, err error) {
		if err := s.crowd.fill(ctx, r.cfg.N); err != nil {
			return c, err
		}
		victim := s.fleet.Workers[0]
		storm := storm{
			crowd: s.crowd, victim: victim.ID, cpu: func() CPU { return s.cpu(victim) },
			kill: func(context.Context) error {
				victim.Kill()
				return nil
			},
		}
		c, err = storm.run(ctx, name)
		if err != nil {
			return c, err
		}
		model := newModel(c.Lost, (r.cfg.Workers-1)*r.cfg.UpgradeRate, r.cfg.APIs*r.cfg.RejoinRate, c.Filled)
		c.Model, c.Ratio = &model, c.ClearedS/model.ClearsS
		c.SecondDeaths, err = s.deaths(ctx, victim.ID)
		return c, err
	})
}

// storm is one worker's end and what it does to a crowd that is connected to all.
type storm struct {
	crowd  *crowd
	victim string // its worker id
	kill   func(context.Context) error
	cpu    func() CPU // of everybody but the victim; nil: unknown
}

// run kills the victim and waits until everybody who lost it is back. The crowd gives way to servers and to the witness.
func (s *storm) run(ctx context.Context, name string) (c Case, err error) {
	if err := s.crowd.watch(ctx, haven{Not: s.victim}); err != nil {
		return c, err
	}
	victims := s.crowd.at(s.victim)
	if len(victims) == 0 {
		return c, fmt.Errorf("no client is on %s", s.victim)
	}
	gave, takeBack, err := lab.GiveWay(len(s.crowd.listeners))
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, takeBack()) }()
	mib := memory()
	s.crowd.progress(0, len(victims), "all is quiet")
	about := span{from: time.Now(), gone: s.victim}
	if err := rest(ctx, s.crowd.cfg.Before); err != nil {
		return c, err
	}
	used := func() *CPU { return nil }
	if s.cpu != nil {
		before := s.cpu()
		used = func() *CPU { return s.cpu().minus(before) }
	}
	about.fault = time.Now()
	if err := s.kill(ctx); err != nil {
		return c, err
	}
	await(ctx, s.crowd, victims, about.fault, s.crowd.cfg.Patience, func(*listener) bool { return true })
	about.ended = time.Now()
	cpu := used()
	seen, err := s.crowd.hush(ctx)
	if err != nil {
		return c, err
	}
	c = tally(name, s.crowd, about, seen)
	c.ClientMiB, c.GaveWay, c.CPU = mib, gave, cpu
	return c, ctx.Err()
}

// await returns once clients are back and hear their topics again, and whatever else is asked of them, or patience is over.
func await(ctx context.Context, c *crowd, some []*listener, since time.Time, patience time.Duration, and func(*listener) bool) {
	here := map[*listener]bool{}
	_ = eventually(ctx, patience, func() bool { // the tally says who is not
		for _, l := range some {
			if !here[l] && l.trace.returned(since) && l.heard.resumed(since) && and(l) {
				here[l] = true
			}
		}
		c.progress(len(here), len(some), "clients are back")
		return len(here) == len(some)
	})
}
