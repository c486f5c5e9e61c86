package jobs

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type reaperMetrics struct {
	ticks     *prometheus.CounterVec
	duration  prometheus.Histogram
	workers   prometheus.Gauge
	lost      *prometheus.CounterVec
	displaced prometheus.Counter
	overdue   prometheus.Counter
}

func newReaperMetrics(registry prometheus.Registerer) (*reaperMetrics, error) {
	m := &reaperMetrics{
		ticks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_reaper_ticks_total", Help: "Ticks by result: acted, elsewhere (another process has the lock), failed.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "berth_reaper_tick_seconds", Help: "Duration of ticks that acted.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		workers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_reaper_looked_at_workers", Help: "Workers that the last look read.",
		}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_workers_lost_total", Help: "Workers declared lost, by evidence.",
		}, []string{"evidence"}),
		displaced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_sessions_displaced_total", Help: "Sessions taken off workers by the reaper.",
		}),
		overdue: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_sessions_overdue_total", Help: "Sessions ended because a deadline passed.",
		}),
	}
	for _, c := range []prometheus.Collector{m.ticks, m.duration, m.workers, m.lost, m.displaced, m.overdue} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register reaper metrics: %w", err)
		}
	}
	return m, nil
}

func (m *reaperMetrics) observe(ran bool, err error, took time.Duration) {
	switch {
	case err != nil:
		m.ticks.WithLabelValues("failed").Inc()
	case ran:
		m.ticks.WithLabelValues("acted").Inc()
		m.duration.Observe(took.Seconds())
	default:
		m.ticks.WithLabelValues("elsewhere").Inc()
	}
}
