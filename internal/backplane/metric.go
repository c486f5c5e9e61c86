package backplane

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Causes of a resync.
const (
	causeConnected = "connected" // the listener's connection is new
	causeOverflow  = "overflow"  // notifications were dropped at the bound
	causeInterest  = "interest"  // the process's interest was deleted
	causeMalformed = "malformed" // a notification could not be read
)

// metrics of one process. received is to be compared with delivered: where they differ, notifications went to a process
// that had no use for them.
type metrics struct {
	published prometheus.Counter
	unheard   prometheus.Counter
	received  prometheus.Counter
	delivered prometheus.Counter
	recalls   prometheus.Counter
	recalled  prometheus.Counter
	resyncs   *prometheus.CounterVec
	queued    prometheus.Gauge
	inbox     prometheus.GaugeFunc
}

func newMetrics(reg prometheus.Registerer, inbox func() int) (*metrics, error) {
	const depth, help = "berth_backplane_queue_depth", "What waits: messages to be published, notifications to be dispatched."
	m := &metrics{
		published: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_backplane_published_total", Help: "Messages published by this process.",
		}),
		unheard: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_backplane_unheard_total", Help: "Messages published by this process that no process had a subscriber for.",
		}),
		received: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_backplane_received_total", Help: "Messages that notifications told this process of.",
		}),
		delivered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_backplane_delivered_total", Help: "Messages for which this process had a subscriber, each counted once.",
		}),
		recalls: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_backplane_history_reads_total", Help: "Statements that read history for subscribers which resume.",
		}),
		recalled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_backplane_history_pages_total", Help: "Pages of history that subscribers got, of however few statements.",
		}),
		resyncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_backplane_resyncs_total",
			Help: "Times that all topics were read again, by cause: connected, overflow, interest or malformed.",
		}, []string{"cause"}),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: depth, Help: help, ConstLabels: prometheus.Labels{"queue": "publish"},
		}),
		inbox: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: depth, Help: help, ConstLabels: prometheus.Labels{"queue": "dispatch"},
		}, func() float64 { return float64(inbox()) }),
	}
	for _, cause := range []string{causeConnected, causeOverflow, causeInterest, causeMalformed} {
		m.resyncs.WithLabelValues(cause) // so that a rate exists before the first of its kind
	}
	if reg == nil {
		return m, nil
	}
	var failed error
	for _, c := range []prometheus.Collector{m.published, m.unheard, m.received, m.delivered, m.recalls, m.recalled, m.resyncs, m.queued, m.inbox} {
		failed = errors.Join(failed, reg.Register(c))
	}
	return m, failed
}

// count adds what was published.
func (m *metrics) count(published []Published) {
	m.published.Add(float64(len(published)))
	for _, p := range published {
		if p.Processes == 0 {
			m.unheard.Inc()
		}
	}
}
