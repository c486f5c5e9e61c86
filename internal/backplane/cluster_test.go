package backplane_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/testkit"
)

// clusterOver starts a process's backplane over several databases, closed when the test ends.
func clusterOver(t *testing.T, dbs []*testkit.DB) (*backplane.Cluster, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	var buses []*backplane.Bus
	for i, db := range dbs {
		bus, err := backplane.New(backplane.Config{
			DirectURL: db.SocketURL, Database: i, Logger: testkit.Logger(t), Registerer: registry,
			Linger: 50 * time.Millisecond, CountInterval: 20 * time.Millisecond, ListeningAge: time.Nanosecond, ProbeInterval: 250 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		buses = append(buses, bus)
	}
	cluster, err := backplane.NewCluster(backplane.ClusterConfig{
		Meeting: dbs[0].Pool, MeetingInterval: 50 * time.Millisecond, Logger: testkit.Logger(t), Registerer: registry,
	}, buses...)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cluster.Check(t.Context()), cluster.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster, registry
}

func clusterWorld(t *testing.T) world {
	t.Helper()
	dbs := []*testkit.DB{databases.Database(t), databases.Database(t)}
	a, _ := clusterOver(t, dbs)
	b, _ := clusterOver(t, dbs)
	return world{t: t, a: a, b: b, forget: func() {
		for _, db := range dbs {
			run(t, db, "truncate berth.topics, berth.topic_log, berth.topic_interest")
		}
	}}
}

func TestTopicsOfAClusterAreInOneDatabaseEach(t *testing.T) {
	t.Parallel()
	dbs := []*testkit.DB{databases.Database(t), databases.Database(t), databases.Database(t)}
	a, _ := clusterOver(t, dbs)
	b, registry := clusterOver(t, dbs)
	const topics = 90
	var out []backplane.Outgoing
	var spies []*spy
	for i := range topics {
		spies = append(spies, spyOn(t, b, fmt.Sprint("t", i), nil))
		out = append(out, backplane.Outgoing{Topic: fmt.Sprint("t", i), Data: fmt.Append(nil, i)})
	}
	slices.Reverse(out)
	published, err := a.Publish(t.Context(), out...)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range spies {
		got := s.count(1)[0]
		if told := published[topics-1-i]; got.Position != told.Position || told.Processes != 1 || string(got.Data) != fmt.Sprint(i) {
			t.Errorf("topic %d: given %+v, published %+v", i, got, told)
		}
	}
	all := 0
	for i, db := range dbs {
		n := value[int](t, db, "select count(*) from berth.topics")
		if n < topics/6 {
			t.Errorf("%d of %d topics in database %d", n, topics, i)
		}
		all += n
	}
	if all != topics || metric(t, registry, "berth_backplane_delivered_total") != topics {
		t.Errorf("%d topics, %v delivered", all, metric(t, registry, "berth_backplane_delivered_total"))
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "berth_backplane_delivered_total" && len(family.GetMetric()) != len(dbs) {
			t.Errorf("metrics of %d databases: %v", len(family.GetMetric()), family)
		}
	}
}

// One database that is away takes along only the topics that it has.
func TestOneDatabaseAwayLeavesTheOthers(t *testing.T) {
	t.Parallel()
	dbs := []*testkit.DB{databases.Database(t), databases.Database(t)}
	net := testkit.NewNetwork(t, dbs[1])
	dbs[1].SocketURL = net.URL
	a, _ := clusterOver(t, dbs)
	b, _ := clusterOver(t, dbs)
	const topics = 20
	var spies []*spy
	for i := range topics {
		spies = append(spies, spyOn(t, b, fmt.Sprint(i), nil))
	}
	away := map[int]bool{}
	net.Cut(true)
	for i := range topics {
		_, err := a.Publish(t.Context(), backplane.Outgoing{Topic: fmt.Sprint(i), Data: []byte("1")})
		away[i] = err != nil
		if err != nil && (!errors.Is(err, backplane.ErrUnavailable) || strings.Contains(err.Error(), "password")) {
			t.Errorf("topic %d: %v", i, err)
		}
		if err == nil {
			spies[i].last("1")
		}
	}
	net.Cut(false)
	lost := 0
	for i, s := range spies {
		if !away[i] {
			continue
		}
		lost++
		testkit.Eventually(t, patience, func() error {
			_, err := a.Publish(t.Context(), backplane.Outgoing{Topic: fmt.Sprint(i), Data: []byte("2")})
			return err
		})
		s.last("2")
	}
	if lost == 0 || lost == topics {
		t.Errorf("%d of %d topics were away", lost, topics)
	}
}

func TestStartLearnsOfAPooler(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	for url, want := range map[string]error{
		db.URL: nil, testkit.StartPooler(t, db): backplane.ErrPooled,
		"postgres://nobody:hidden@127.0.0.1:1/none": backplane.ErrUnavailable,
	} {
		bus, err := backplane.New(backplane.Config{DirectURL: url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(bus.Close)
		if err := bus.Check(t.Context()); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if n := value[int](t, db, "select count(*) from berth.topic_interest"); n != 0 {
		t.Errorf("%d rows are left behind", n)
	}
}
