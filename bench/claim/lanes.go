package claim

import (
	"context"
	"errors"
)

const (
	// The cases of Lanes.
	caseOneTenant = "one_tenant"
	caseDisjoint  = "disjoint_tenants"
	// laneServers is how many API processes share the work.
	laneServers = 3
)

// Lanes measures three API processes that place for one tenant, next to three that place for a tenant each. Every
// commit takes 2 ms longer than the disk needs, as with a synchronous standby nearby: whoever writes the log waits
// that long first, and takes those along who come meanwhile.
func Lanes(ctx context.Context, cfg Config) (*Contrast, error) {
	cfg.databaseSettings = map[string]string{"commit_delay": "2000", "commit_siblings": "0"}
	return withRig(ctx, cfg, func(r *rig) (*Contrast, error) {
		return r.contrast(ctx, caseOneTenant, caseDisjoint, r.measureLanes)
	})
}

func (r *rig) measureLanes(ctx context.Context, name string) (m measurement, err error) {
	s, err := r.raise(ctx, Berth, berthTemplate, laneServers)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	lanes := make([]lane, len(s.servers))
	for i, server := range s.servers {
		lanes[i] = lane{server.address, r.key(0)}
		if name == caseDisjoint {
			lanes[i].key = r.key(i)
		}
	}
	return s.measure(ctx, lanes, 0)
}
