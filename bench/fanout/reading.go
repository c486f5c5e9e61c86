package fanout

import (
	"context"
	"os"
	"time"

	"github.com/berthdev/berth/bench/lab"
)

// reading is what processes have done so far.
type reading struct {
	at                  time.Time
	servers, store, own time.Duration // CPU; own is that of clients and publishers
	wakes, listening    int64         // of the store's processes, and of those that NOTIFY wakes
	received, delivered float64       // of all holders
}

// read takes metrics first: what that costs is not the load's.
func (s *scene) read(ctx context.Context, hearing []int) (r reading, err error) {
	for _, holder := range s.holders {
		metrics, err := lab.Scrape(ctx, holder.Address)
		if err != nil {
			return r, err
		}
		received, delivered := s.counters(metrics)
		r.received += received
		r.delivered += delivered
	}
	for _, pid := range s.store() {
		r.store += lab.ProcessCPU(pid)
		r.wakes += lab.Waits(pid)
	}
	for _, pid := range hearing {
		r.listening += lab.Waits(pid)
	}
	for _, server := range s.servers {
		r.servers += lab.ProcessCPU(server.PID())
	}
	r.own = lab.ProcessCPU(os.Getpid())
	r.at = time.Now()
	return r, nil
}
