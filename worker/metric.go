package worker

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one worker.
type metrics struct {
	renewals *prometheus.CounterVec
	relays   *prometheus.CounterVec
	doubt    prometheus.Gauge
	pauses   prometheus.Counter
	presence prometheus.Counter
	dropped  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_worker_renewals_total",
			Help: "Renewals of the lease, by result: yours, replaced, over or error (nobody answered for the database).",
		}, []string{"result"}),
		relays: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_worker_relayed_renewals_total",
			Help: "Renewals that were left to API replicas, by result: yours, replaced, over, away (the database is, from there too) or silent.",
		}, []string{"result"}),
		doubt: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_worker_in_doubt",
			Help: "1 while the lease is over and nobody has answered.",
		}),
		pauses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_worker_pauses_total",
			Help: "Times that this process was paused for more than two seconds.",
		}),
		presence: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_worker_presence_losses_total",
			Help: "Times that the presence connection was lost.",
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_worker_sessions_dropped_total",
			Help: "Sessions dropped before their end here, by cause.",
		}, []string{"cause"}),
	}
	for _, result := range []string{"yours", "replaced", "over", "error"} {
		m.renewals.WithLabelValues(result) // so that a rate exists before the first of its kind
	}
	for _, result := range []string{"yours", "replaced", "over", "away", "silent"} {
		m.relays.WithLabelValues(result)
	}
	var failed error
	for _, c := range []prometheus.Collector{m.renewals, m.relays, m.doubt, m.pauses, m.presence, m.dropped} {
		failed = errors.Join(failed, reg.Register(c))
	}
	return m, failed
}
