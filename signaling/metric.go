package signaling

import (
	"errors"
	"strconv"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one hub. Labels come from the closed sets of close codes, frame types and refusals.
type metrics struct {
	connections   prometheus.Gauge
	sessions      prometheus.Gauge
	subscriptions prometheus.Gauge
	shed          prometheus.Counter
	topicFailures prometheus.Counter
	refusals      *prometheus.CounterVec
	closes        *prometheus.CounterVec
	frames        *prometheus.CounterVec
	settles       *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_signaling_connections",
			Help: "Peers that are connected now.",
		}),
		sessions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_signaling_sessions",
			Help: "Sessions that this worker serves now.",
		}),
		subscriptions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_signaling_subscriptions",
			Help: "Topics that connections listen to now, each counted once per connection.",
		}),
		shed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_signaling_shed_total",
			Help: "Connections closed with 1012 so that their clients move to other workers.",
		}),
		topicFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_signaling_topic_failures_total",
			Help: "Frames about topics that the backplane did not serve in time, and that were answered with unavailable.",
		}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_signaling_refusals_total",
			Help: "Connections refused before the upgrade, by reason.",
		}, []string{"reason"}),
		closes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_signaling_closes_total",
			Help: "Connections closed by this worker, by close code.",
		}, []string{"code"}),
		frames: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_signaling_frames_total",
			Help: "Frames received, by type; wrong ones count as invalid.",
		}, []string{"type"}),
		settles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_signaling_settles_total",
			Help: "Ends and disconnects written to the database, by what and result.",
		}, []string{"what", "result"}),
	}
	var failed error
	for _, c := range []prometheus.Collector{
		m.connections, m.sessions, m.subscriptions, m.shed, m.topicFailures, m.refusals, m.closes, m.frames, m.settles,
	} {
		failed = errors.Join(failed, reg.Register(c))
	}
	return m, failed
}

func (m *metrics) closed(code websocket.StatusCode) {
	m.closes.WithLabelValues(strconv.Itoa(int(code))).Inc()
}

func (m *metrics) refused(reason string) { m.refusals.WithLabelValues(reason).Inc() }

func (m *metrics) settled(what string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.settles.WithLabelValues(what, result).Inc()
}
