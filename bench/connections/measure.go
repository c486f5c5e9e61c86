package connections

import (
	"context"
	"errors"
	"time"

	"github.com/berthdev/berth/bench/lab"
)

// Measurement is one subject, measured once: KiB for each connection.
type Measurement struct {
	Subject string  `json:"subject"`
	RSS     float64 `json:"rss_kib"`
	Heap    float64 `json:"heap_kib"`
	Stack   float64 `json:"stack_kib"`
	Kernel  float64 `json:"kernel_kib"`
	// IdleRSS is that of the whole process without connections, in MiB.
	IdleRSS float64 `json:"idle_rss_mib"`
	// Goroutines for each connection.
	Goroutines float64 `json:"goroutines"`
	// Opening is how long it took until all were connected, subscribed and pinged, in seconds.
	Opening float64 `json:"opening_seconds"`
}

// reading is what a process uses, in bytes.
type reading struct {
	rss, heap, stack, kernel, goroutines float64
}

func read(ctx context.Context, p *lab.Process) (reading, error) {
	metrics, err := lab.Scrape(ctx, p.Address)
	kernel, _ := lab.SocketMemory()
	return reading{
		rss: float64(lab.Resident(p.PID())), kernel: float64(kernel),
		heap:       metrics.Sum("go_memstats_heap_inuse_bytes", ""),
		stack:      metrics.Sum("go_memstats_stack_inuse_bytes", ""),
		goroutines: metrics.Sum("go_goroutines", ""),
	}, err
}

func (r *rig) measure(ctx context.Context, s subject) (m Measurement, err error) {
	at, err := r.raise(ctx, s)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, at.close(ctx)) }()
	idle, err := read(ctx, at.holder)
	if err != nil {
		return m, err
	}
	began := time.Now()
	crowd, err := r.fill(ctx, s, at)
	if err != nil {
		return m, err
	}
	defer crowd.Close()
	opening := time.Since(began)
	full, err := read(ctx, at.holder)
	if err != nil {
		return m, err
	}
	m = newMeasurement(s.name, r.cfg.N, idle, full)
	m.Opening = opening.Seconds()
	return m, crowd.Whole()
}

// ends of a connection that are on this machine.
const ends = 2

func newMeasurement(name string, n int, idle, full reading) Measurement {
	kib := func(before, after float64) float64 { return (after - before) / float64(n) / (1 << 10) }
	return Measurement{
		Subject: name,
		RSS:     kib(idle.rss, full.rss), Heap: kib(idle.heap, full.heap), Stack: kib(idle.stack, full.stack),
		Kernel:     kib(idle.kernel, full.kernel) / ends,
		IdleRSS:    idle.rss / (1 << 20),
		Goroutines: (full.goroutines - idle.goroutines) / float64(n),
	}
}
