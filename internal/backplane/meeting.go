package backplane

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// meetingReminder is how often it is said again that processes have other databases.
const meetingReminder = time.Minute

// meeting finds out whether all processes have the same databases in the same order. Those that have not would lose each other's
// messages without an error. They meet in a database that all of them have.
type meeting struct {
	store    *store
	buses    []*Bus
	interval time.Duration
	log      *slog.Logger
	mismatch prometheus.Gauge

	databases []*string // identities, as far as they are known
	others    int       // processes that have other ones
	said      time.Time // when that was logged
}

func newMeeting(config ClusterConfig, buses []*Bus) *meeting {
	return &meeting{
		store: &store{pool: config.Meeting, process: buses[0].config.Process}, buses: buses, interval: config.MeetingInterval, log: config.Logger,
		mismatch:  gauge("list_mismatch", "Other living processes whose list of databases for topics is another than this one's.", nil),
		databases: make([]*string, len(buses)),
	}
}

// run meets the others now and then, until ctx ends.
func (m *meeting) run(ctx context.Context) {
	for ctx.Err() == nil {
		m.identify(ctx)
		// Given up, the statement might come to its end after the farewell.
		others, err := m.store.meet(context.WithoutCancel(ctx), m.databases, 3*m.interval)
		if err == nil {
			m.compare(ctx, others)
		} else {
			m.log.WarnContext(ctx, "backplane databases not compared with other processes", "err", err)
		}
		sleep(ctx, m.interval*3/4+rand.N(m.interval/2))
	}
	if err := m.store.part(context.WithoutCancel(ctx)); err != nil { // it is forgotten soon
		m.log.WarnContext(ctx, "backplane process not signed off", "err", err)
	}
}

// identify asks the databases who they are. One that is away is who it was.
func (m *meeting) identify(ctx context.Context) {
	var asking sync.WaitGroup
	for i, bus := range m.buses {
		asking.Go(func() {
			name, err := bus.store.identity(ctx)
			switch {
			case err == nil:
				m.databases[i] = &name
			case ctx.Err() == nil:
				m.log.WarnContext(ctx, "backplane database not identified", "backplane_database", i, "err", err)
			}
		})
	}
	asking.Wait()
}

// compare tells people of others that have other databases.
func (m *meeting) compare(ctx context.Context, others int) {
	m.mismatch.Set(float64(others))
	switch {
	case others > 0 && (others != m.others || time.Since(m.said) >= meetingReminder):
		m.said = time.Now()
		m.log.ErrorContext(ctx, "other processes have other backplane databases, or another order: messages are lost between them; "+
			"give all the same BERTH_BACKPLANE_URLS and restart them together", "processes", others, "databases", m.names())
	case others == 0 && m.others > 0:
		m.log.InfoContext(ctx, "all processes have the same backplane databases again")
	}
	m.others = others
}

func (m *meeting) names() []string {
	names := make([]string, len(m.databases))
	for i, name := range m.databases {
		names[i] = "unknown"
		if name != nil {
			names[i] = *name
		}
	}
	return names
}
