package backplane_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/testkit"
)

// alarms counts what is logged as an error.
type alarms struct {
	slog.Handler

	mu    sync.Mutex // guards the rest
	count int
}

func (a *alarms) Handle(ctx context.Context, record slog.Record) error {
	if record.Level == slog.LevelError {
		a.mu.Lock()
		a.count++
		a.mu.Unlock()
	}
	return a.Handler.Handle(ctx, record)
}

func (a *alarms) all() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}

// member is a process that carries topics in databases of its own.
type member struct {
	cluster *backplane.Cluster
	metrics *prometheus.Registry
	alarms  *alarms
}

// meets starts a process with a list of databases, which meets others in one, until the test ends.
func meets(t *testing.T, in *testkit.DB, urls ...string) member {
	t.Helper()
	m := member{metrics: prometheus.NewPedanticRegistry(), alarms: &alarms{Handler: testkit.Logger(t).Handler()}}
	var buses []*backplane.Bus
	for i, url := range urls {
		bus, err := backplane.New(backplane.Config{DirectURL: url, Database: i})
		if err != nil {
			t.Fatal(err)
		}
		buses = append(buses, bus)
	}
	var err error
	m.cluster, err = backplane.NewCluster(backplane.ClusterConfig{
		Meeting: in.Pool, MeetingInterval: 100 * time.Millisecond, Logger: slog.New(m.alarms), Registerer: m.metrics,
	}, buses...)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.cluster.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.cluster.Close)
	return m
}

// differs waits until as many others have other databases.
func (m member) differs(t *testing.T, want float64) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		if got := metric(t, m.metrics, "berth_backplane_list_mismatch"); got != want {
			return fmt.Errorf("%v others differ, want %v", got, want)
		}
		return nil
	})
}

// known waits until so many processes have said so many databases by name.
func known(t *testing.T, db *testkit.DB, processes, databases int) {
	t.Helper()
	becomes(t, db, processes, `select count(*) from berth.backplane_processes
		where cardinality(array_remove(list, null)) = $1`, databases)
}

func TestProcessesNoticeThatOthersHaveOtherDatabases(t *testing.T) {
	t.Parallel()
	main, first, second := databases.Database(t), databases.Database(t), databases.Database(t)
	one, two := meets(t, main, first.SocketURL, second.SocketURL), meets(t, main, first.URL, second.URL)
	known(t, main, 2, 2)
	one.differs(t, 0)
	two.differs(t, 0)
	turned := meets(t, main, second.URL, first.URL)
	one.differs(t, 1)
	two.differs(t, 1)
	turned.differs(t, 2)
	forgot := meets(t, main, main.URL) // one without the setting: it has none of their databases
	one.differs(t, 2)
	forgot.differs(t, 3)
	if one.alarms.all() == 0 || forgot.alarms.all() == 0 {
		t.Error("nobody is told")
	}
	turned.cluster.Close()
	forgot.cluster.Close()
	one.differs(t, 0)
	known(t, main, 2, 2)
	run(t, main, `insert into berth.backplane_processes (process, list, at) values (7, '{x}', now() - interval '1 s')`)
	known(t, main, 1, 1)
	one.differs(t, 0) // it died
	if err := two.cluster.Purge(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDatabaseThatIsAwayIsNoOther(t *testing.T) {
	t.Parallel()
	main, first, second := databases.Database(t), databases.Database(t), databases.Database(t)
	net := testkit.NewNetwork(t, second)
	net.Cut(true)
	half := meets(t, main, first.URL, net.URL)
	known(t, main, 1, 1)
	whole := meets(t, main, first.URL, second.URL)
	known(t, main, 1, 2)
	whole.differs(t, 0)
	half.differs(t, 0)
	net.Cut(false)
	known(t, main, 2, 2)
	if n := half.alarms.all() + whole.alarms.all(); n != 0 {
		t.Errorf("%d alarms", n)
	}
}

// A process that stops while it says which databases it has is forgotten all the same.
func TestProcessThatStoppedIsForgotten(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	for i := range 20 {
		m := meets(t, db, db.URL)
		if i%2 == 0 {
			known(t, db, 1, 1)
		}
		m.cluster.Close()
		if n := value[int](t, db, "select count(*) from berth.backplane_processes"); n != 0 {
			t.Fatalf("round %d: %d processes are left", i, n)
		}
	}
}
