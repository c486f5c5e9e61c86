package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berthdev/berth/bench/load"
)

// measurement is one subject, measured once.
type measurement struct {
	RPS     float64       `json:"rps"`
	P50     float64       `json:"p50_ms"`
	P99     float64       `json:"p99_ms"`
	CPU     cpuPerRequest `json:"cpu_us_per_request"`
	Samples int           `json:"requests"`
}

// cpuPerRequest is in microseconds.
type cpuPerRequest struct {
	Server float64 `json:"server"`
	Store  float64 `json:"store"`
	Load   float64 `json:"load"`
}

func newMeasurement(result load.Result, spent cpuReading) measurement {
	per := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) / float64(result.Calls) }
	return measurement{
		RPS: result.Rate, P50: milliseconds(result.P50), P99: milliseconds(result.P99), Samples: result.Calls,
		CPU: cpuPerRequest{Server: per(spent.server), Store: per(spent.store), Load: per(spent.load)},
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// lane is a share of the connections: to one server, with one key.
type lane struct {
	address, key string
}

// measure drives a scene and checks what it did. before is how many sessions its store holds already. Connections are
// dealt out to the lanes in turn.
func (s *scene) measure(ctx context.Context, lanes []lane, before int) (measurement, error) {
	cfg := s.rig.cfg
	var callers []load.Caller
	for i := range cfg.Connections {
		to := lanes[i%len(lanes)]
		placer, err := dialPlacer(ctx, to.address, to.key, fmt.Sprintf("r%d-c%d-", s.rig.postgres.Copies(), i), cfg.Warmup+cfg.Window)
		if err != nil {
			return measurement{}, err
		}
		defer func() { _ = placer.client.Close() }() // its answers are all there
		callers = append(callers, s.caller(placer))
	}
	var begin, end cpuReading
	result, err := load.Run(ctx, load.Plan{
		Callers: callers, Warmup: cfg.Warmup, Window: cfg.Window,
		Begin: func() { begin = s.cpu() }, End: func() { end = s.cpu() },
	})
	if err == nil {
		err = s.audit(ctx, before+result.Total)
	}
	if err != nil {
		return measurement{}, fmt.Errorf("measure %s: %w", s.subject, err)
	}
	return newMeasurement(result, end.since(begin)), nil
}

func (s *scene) caller(p *placer) load.Caller {
	if s.subject != Lifecycle {
		return p
	}
	return &liver{placer: p, store: s.store, instances: s.fleet.instances}
}

// measureOnce raises a subject, measures it and ends it.
func (r *rig) measureOnce(ctx context.Context, subject string) (measurement, error) {
	switch subject {
	case Berth, Lifecycle:
		return r.measureOn(ctx, subject, berthTemplate, 0)
	default:
		return r.measureOn(ctx, subject, naiveTemplate, 0)
	}
}

// measureOn measures a subject on a copy of template, which holds a number of sessions before.
func (r *rig) measureOn(ctx context.Context, subject, template string, before int) (m measurement, err error) {
	s, err := r.raise(ctx, subject, template, 1)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	return s.measure(ctx, []lane{{s.servers[0].address, r.key(0)}}, before)
}
