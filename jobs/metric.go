package jobs

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/berth"
)

type reaperMetrics struct {
	ticks     *prometheus.CounterVec
	duration  prometheus.Histogram
	looks     *prometheus.HistogramVec
	lookedAt  *prometheus.GaugeVec
	distrusts prometheus.Counter
	doubts    prometheus.Counter
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
		looks: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_detector_look_seconds", Help: "Duration of the reaper's looks, by detector.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}, []string{"detector"}),
		lookedAt: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "berth_detector_looked_at",
			Help: "How much the last look of this process looked at: workers, sockets, sessions, and sessions of missing workers.",
		}, []string{"detector", "what"}),
		distrusts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_reaper_distrusts_total", Help: "Ticks that ended because a clock was moved.",
		}),
		doubts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_reaper_doubts_total",
			Help: "Looks by which so many workers would be lost without proof that a fresh connection was asked.",
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
	for _, c := range []prometheus.Collector{
		m.ticks, m.duration, m.looks, m.lookedAt, m.distrusts, m.doubts, m.lost, m.displaced, m.overdue,
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register reaper metrics: %w", err)
		}
	}
	// A rate sees the first event only where there was a zero before it.
	for _, result := range []string{"acted", "elsewhere", "failed"} {
		m.ticks.WithLabelValues(result)
	}
	for _, evidence := range confirmations() {
		m.lost.WithLabelValues(evidence)
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

func (m *reaperMetrics) looked(detector string, sight Sight, took time.Duration) {
	m.looks.WithLabelValues(detector).Observe(took.Seconds())
	for what, count := range map[string]int{
		"workers": len(sight.Workers), "sockets": sight.Sockets, "sessions": sight.Sessions, "orphans": sight.Orphans,
	} {
		m.lookedAt.WithLabelValues(detector, what).Set(float64(count))
	}
}

type sentinelMetrics struct {
	holding prometheus.Gauge
	looks   prometheus.Histogram
	alarms  *prometheus.CounterVec
}

func newSentinelMetrics(registry prometheus.Registerer) (*sentinelMetrics, error) {
	m := &sentinelMetrics{
		holding: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_sentinel_holding", Help: "1 while this process is the one that watches workers between ticks.",
		}),
		looks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "berth_sentinel_look_seconds", Help: "Duration of the sentinel's looks.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}),
		alarms: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_sentinel_alarms_total",
			Help: "Times that the reaper was woken: gap, ripe (a gap was left behind), blind (nobody looked), overdue (no periodic tick).",
		}, []string{"alarm"}),
	}
	for _, c := range []prometheus.Collector{m.holding, m.looks, m.alarms} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register sentinel metrics: %w", err)
		}
	}
	for _, alarm := range []berth.Alarm{berth.AlarmGap, berth.AlarmRipe, berth.AlarmBlind, berth.AlarmOverdue} {
		m.alarms.WithLabelValues(string(alarm))
	}
	return m, nil
}
