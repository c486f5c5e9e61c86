package failover

import (
	"context"
	"fmt"
	"io"

	"github.com/berthdev/berth/bench/lab"
)

// Machine is where and with what a run was.
type Machine struct {
	lab.Host

	Workers int `json:"workers"`
	APIs    int `json:"apis"`
	Calls   int `json:"calls"`
	Crowd   int `json:"crowd"`
}

func (r *rig) machine(ctx context.Context) (Machine, error) {
	host, err := r.postgres.Describe(ctx, r.cfg.Version)
	return Machine{Host: host, Workers: r.cfg.Workers, APIs: r.cfg.APIs, Calls: r.cfg.Calls, Crowd: r.cfg.Crowd}, err
}

func (m Machine) write(w io.Writer) error {
	_, err := fmt.Fprintf(w, `machine     %d cores, %s, %s %s
versions    berth %s, %s, Postgres %s
fleet       %d workers, %d API processes, %d calls; a crowd is %d calls
`, m.Cores, m.CPU, m.OS, m.Kernel, m.Berth, m.Go, m.Postgres, m.Workers, m.APIs, m.Calls, m.Crowd)
	return err
}
