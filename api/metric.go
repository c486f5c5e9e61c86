package api

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcomes of a direct message.
const (
	directSent   = "sent"   // a worker that holds the user was told
	directNobody = "nobody" // nobody is connected as the user
	directFailed = "failed" // the database or the backplane was away
)

// Reasons for which a topic's stream ends, beyond its client leaving and Stop.
const (
	streamSlow = "slow" // the client did not keep up
	streamLost = "lost" // its history could not be read to the end
)

// metrics are those of the API itself.
type metrics struct {
	direct *prometheus.CounterVec
	cut    *prometheus.CounterVec
}

// newMetrics registers with reg, unless that is nil. streams is how many streams of topics are open, and line how many rejoins
// wait for their turn.
func newMetrics(reg prometheus.Registerer, streams, line func() int) (*metrics, error) {
	m := &metrics{
		direct: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_direct_messages_total",
			Help: "Messages to users by outcome: sent to workers, nobody was connected, or failed.",
		}, []string{"outcome"}),
		cut: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_topic_streams_cut_total",
			Help: "Streams of topics that this process ended by reason: slow clients, or lost while their history was read.",
		}, []string{"reason"}),
	}
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_topic_streams", Help: "Streams of topics that are open.",
	}, func() float64 { return float64(streams()) })
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_rejoins_waiting", Help: "Rejoins that wait for their turn, since there are more than BERTH_REJOIN_RATE.",
	}, func() float64 { return float64(line()) })
	for _, outcome := range []string{directSent, directNobody, directFailed} {
		m.direct.WithLabelValues(outcome) // so that a rate exists before the first of its kind
	}
	for _, reason := range []string{streamSlow, streamLost} {
		m.cut.WithLabelValues(reason)
	}
	if reg == nil {
		return m, nil
	}
	if err := errors.Join(reg.Register(m.direct), reg.Register(m.cut), reg.Register(open), reg.Register(waiting)); err != nil {
		return nil, fmt.Errorf("api: register metrics: %w", err)
	}
	return m, nil
}
