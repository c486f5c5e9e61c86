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

// metrics of one backplane of a process. received is to be compared with delivered: where they differ, notifications went to a
// process that had no use for them.
type metrics struct {
	published prometheus.Counter
	refused   prometheus.Counter
	unheard   prometheus.Counter
	received  prometheus.Counter
	delivered prometheus.Counter
	recalls   prometheus.Counter
	recalled  prometheus.Counter
	behind    prometheus.Counter
	resyncs   *prometheus.CounterVec
	drops     *prometheus.CounterVec
	usage     prometheus.Gauge
	connected prometheus.Gauge
	queued    prometheus.Gauge
	inbox     prometheus.GaugeFunc
}

func newMetrics(reg prometheus.Registerer, inbox func() int) (*metrics, error) {
	m := &metrics{
		published: counter("published_total", "Messages published by this process."),
		refused:   counter("refused_total", "Calls of publish that were refused as too much waited already, of their sender or of all."),
		unheard:   counter("unheard_total", "Messages published by this process that no process had a subscriber for."),
		received:  counter("received_total", "Messages that notifications told this process of."),
		delivered: counter("delivered_total", "Messages for which this process had a subscriber, each counted once."),
		recalls:   counter("history_reads_total", "Statements that read history for subscribers which resume."),
		recalled:  counter("history_pages_total", "Pages of history that subscribers got, of however few statements."),
		behind:    counter("behind_total", "Topics that a comparison with the tables found behind, so that they were read."),
		resyncs: counters("resyncs_total", "Times that all topics were read again, by cause.",
			"cause", causeConnected, causeOverflow, causeInterest, causeMalformed),
		drops: counters("listener_drops_total", "Times that this process dropped its listener for the sake of others, by reason.",
			"reason", reasonBlocked, reasonQueue),
		usage: gauge("notify_queue_ratio", "How full the queue of notifications of the database server is, from 0 to 1.", nil),
		connected: gauge("listening",
			"Whether this process hears notifications: 1 or 0. One without subscribers does not.", nil),
		queued: gauge("queue_depth", depth, prometheus.Labels{"queue": "publish"}),
		inbox: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: prefix + "queue_depth", Help: depth, ConstLabels: prometheus.Labels{"queue": "dispatch"},
		}, func() float64 { return float64(inbox()) }),
	}
	return m, m.register(reg)
}

const (
	prefix = "berth_backplane_"
	depth  = "What waits: messages to be published, notifications to be dispatched."
)

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
}

// counters has a counter for each value of a label from the start, so that a rate exists before the first of its kind.
func counters(name, help, label string, values ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, []string{label})
	for _, value := range values {
		vec.WithLabelValues(value)
	}
	return vec
}

func gauge(name, help string, labels prometheus.Labels) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + name, Help: help, ConstLabels: labels})
}

func (m *metrics) register(reg prometheus.Registerer) (failed error) {
	if reg == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{
		m.published, m.refused, m.unheard, m.received, m.delivered, m.recalls, m.recalled, m.behind, m.resyncs, m.drops,
		m.usage, m.connected, m.queued, m.inbox,
	} {
		failed = errors.Join(failed, reg.Register(c))
	}
	return failed
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
