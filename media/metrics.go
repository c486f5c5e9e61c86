package media

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of the process. No label names a session or peer.
type metrics struct {
	sessions, peers       prometheus.Gauge
	packetsIn, packetsOut prometheus.Counter
	bytesIn, bytesOut     prometheus.Counter
	messages              prometheus.Counter
	failed                *prometheus.CounterVec
	abandoned             prometheus.Counter
	connect               prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	packets := counterVec("rtp_packets_total", "RTP packets from (in) and to (out) peers.", "direction")
	octets := counterVec("rtp_bytes_total", "Bytes of RTP packets from (in) and to (out) peers.", "direction")
	m := &metrics{
		sessions:   gauge("sessions", "Open sessions."),
		peers:      gauge("peers", "Peers, closing ones included."),
		packetsIn:  packets.WithLabelValues("in"),
		packetsOut: packets.WithLabelValues("out"),
		bytesIn:    octets.WithLabelValues("in"),
		bytesOut:   octets.WithLabelValues("out"),
		messages:   counter("data_messages_total", "Data channel messages from peers."),
		failed:     counterVec("peers_failed_total", "Peers that failed, by reason.", "reason"),
		abandoned:  counter("close_timeouts_total", "Peers that did not close in time."),
		connect: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "berth_media_connect_seconds",
			Help:    "Time from the first offer of a peer to connected.",
			Buckets: []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
	}
	collectors := []prometheus.Collector{
		m.sessions, m.peers, packets, octets, m.messages, m.failed, m.abandoned, m.connect,
	}
	for _, c := range collectors {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("media: register metrics: %w", err)
		}
	}
	return m, nil
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: "berth_media_" + name, Help: help})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "berth_media_" + name, Help: help})
}

func counterVec(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_media_" + name, Help: help}, []string{label})
}

// Stats counts what a session has carried.
type Stats struct {
	// Peers is the number of peers, closing ones included.
	Peers int
	// PacketsIn and PacketsOut count RTP packets read from peers by the handler and sent to them.
	PacketsIn, PacketsOut uint64
	// BytesIn and BytesOut are the bytes of those packets.
	BytesIn, BytesOut uint64
	// Messages counts data channel messages from peers.
	Messages uint64
	// Since is when the session opened.
	Since time.Time
}

// traffic counts for one session and the process at once. Safe for concurrent use.
type traffic struct {
	metrics                                            *metrics
	packetsIn, packetsOut, bytesIn, bytesOut, messages atomic.Uint64
}

func (t *traffic) in(size int) {
	t.packetsIn.Add(1)
	t.bytesIn.Add(uint64(size))
	t.metrics.packetsIn.Inc()
	t.metrics.bytesIn.Add(float64(size))
}

func (t *traffic) out(size int) {
	t.packetsOut.Add(1)
	t.bytesOut.Add(uint64(size))
	t.metrics.packetsOut.Inc()
	t.metrics.bytesOut.Add(float64(size))
}

func (t *traffic) message() {
	t.messages.Add(1)
	t.metrics.messages.Inc()
}
