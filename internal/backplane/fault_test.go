package backplane_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/devpg"
	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/migrations"
)

// listeners is the part of pg_stat_activity that listens for processes.
const listeners = `from pg_stat_activity where datname = current_database() and application_name like 'berth backplane %'`

func run(t *testing.T, db *testkit.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Pool.Exec(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func value[T any](t *testing.T, db *testkit.DB, query string, args ...any) (v T) {
	t.Helper()
	if err := db.Pool.QueryRow(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// becomes waits until a query answers a number.
func becomes(t *testing.T, db *testkit.DB, want int, query string, args ...any) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		if got := value[int](t, db, query, args...); got != want {
			return fmt.Errorf("%s: %d, want %d", query, got, want)
		}
		return nil
	})
}

// metric is the sum of a metric over its labels.
func metric(t *testing.T, registry *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// writing publishes numbers to a topic, one after the other, until it is told to stop; then it returns how many.
func writing(t *testing.T, p plane, topic string) (stop func() int) {
	t.Helper()
	quit, count := make(chan struct{}), 0
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-quit:
				return
			default:
			}
			count++
			out := backplane.Outgoing{Topic: topic, Data: fmt.Append(nil, count)}
			if _, err := p.Publish(t.Context(), out); err != nil {
				t.Errorf("publish: %v", err)
				return
			}
		}
	})
	return func() int {
		close(quit)
		running.Wait()
		return count
	}
}

func TestKilledListenerMissesNothing(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	writer, _ := startBus(t, db, nil)
	reader, registry := startBus(t, db, nil)
	s := spyOn(t, reader, "t", nil)
	for round := 1; round <= 5; round++ {
		if killed := value[int](t, db, "select count(pg_terminate_backend(pid)) "+listeners); killed != 1 {
			t.Fatalf("round %d: %d listeners", round, killed)
		}
		sayMany(t, writer, "t", 20*round-19, 20*round)
		s.count(20 * round)
		becomes(t, db, 1, "select count(*) "+listeners)
	}
	got := s.count(100)
	dense(t, got, 1)
	if diff := cmp.Diff(numbers(1, 100), texts(got)); diff != "" {
		t.Error(diff)
	}
	if n := metric(t, registry, "berth_backplane_resyncs_total"); n != 6 {
		t.Errorf("%v resyncs", n)
	}
}

// A link on which packets vanish is no error to anybody: only asking for an answer finds it.
func TestBlackHoledListenerIsFoundByItsSilence(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	net := testkit.NewNetwork(t, db)
	writer, _ := startBus(t, db, nil)
	reader, _ := startBus(t, db, func(c *backplane.Config) {
		c.DirectURL, c.ProbeTimeout = net.URL, 500*time.Millisecond
	})
	s := spyOn(t, reader, "t", nil)
	say(t, writer, "t", "1")
	s.last("1")
	if frozen := net.Freeze(); frozen != 1 {
		t.Fatalf("%d connections", frozen)
	}
	began := time.Now()
	say(t, writer, "t", "2")
	dense(t, s.last("2"), 1)
	t.Logf("found after %v", time.Since(began))
	// The new listener ended the old one: its backend, blocked on a reader that never reads, would hold up the queue.
	becomes(t, db, 1, "select count(*) "+listeners)
	say(t, writer, "t", "3")
	dense(t, s.last("3"), 1)
}

func TestListenerThatHearsNothingIsReplaced(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	net := testkit.NewNetwork(t, db)
	writer, _ := startBus(t, db, nil)
	reader, _ := startBus(t, db, func(c *backplane.Config) {
		c.DirectURL, c.ProbeTimeout = net.URL, 500*time.Millisecond
	})
	s := spyOn(t, reader, "t", nil)
	backend := value[int](t, db, "select pid "+listeners)
	net.Mute(true)
	say(t, writer, "t", "1")
	becomes(t, db, 0, "select count(*) "+listeners+" and pid = $1", backend)
	net.Mute(false)
	dense(t, s.last("1"), 1)
}

func TestListenerThatNeverHearsIsRefused(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	net := testkit.NewNetwork(t, db)
	net.Mute(true)
	bus, _ := startBus(t, db, func(c *backplane.Config) {
		c.DirectURL, c.ProbeTimeout = net.URL, 200*time.Millisecond
	})
	if _, err := bus.Subscribe(t.Context(), "t", nil, nil); !errors.Is(err, backplane.ErrPooled) {
		t.Errorf("subscribe: %v", err)
	}
	net.Mute(false)
	spyOn(t, bus, "t", nil)
}

func TestPurgeWhileAwayIsMadeGood(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	net := testkit.NewNetwork(t, db)
	writer, _ := startBus(t, db, nil)
	reader, _ := startBus(t, db, func(c *backplane.Config) { c.DirectURL = net.URL })
	s := spyOn(t, reader, "t", nil)
	net.Cut(true)
	testkit.EventuallyTrue(t, patience, "interest is purged", func() bool {
		return writer.Purge(t.Context()) == nil && value[int](t, db, "select count(*) from berth.topic_interest") == 0
	})
	say(t, writer, "t", "missed")
	net.Cut(false)
	s.last("missed")
	say(t, writer, "t", "heard")
	dense(t, s.last("heard"), 1)
}

func TestDeletedInterestIsMadeAnewThoughNobodyPublishes(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	bus, registry := startBus(t, db, nil)
	s := spyOn(t, bus, "t", nil)
	say(t, bus, "t", "1")
	s.last("1")
	run(t, db, "truncate berth.topics, berth.topic_log, berth.topic_interest")
	got := s.count(2)
	if got[1].Recovery.Outcome != backplane.Reset || got[1].Position.Epoch == got[0].Position.Epoch {
		t.Errorf("given%s", brief(got))
	}
	say(t, bus, "t", "new 1", "new 2")
	dense(t, s.last("new 2")[2:], 1)
	if n := metric(t, registry, "berth_backplane_resyncs_total"); n != 2 {
		t.Errorf("%v resyncs: one at first, one when interest was gone", n)
	}
}

// ownDatabase is one of a server that the test may stop.
func ownDatabase(t *testing.T, server *devpg.Server) *testkit.DB {
	t.Helper()
	if err := server.CreateDatabase(t.Context(), "own"); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(t.Context(), server.URL("own"), testkit.Logger(t)); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), server.URL("own"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &testkit.DB{URL: server.URL("own"), SocketURL: server.URL("own"), Pool: pool}
}

// A crash empties unlogged tables, and cuts every connection.
func TestCrashOfTheDatabaseIsAReset(t *testing.T) {
	t.Parallel()
	db := ownDatabase(t, testkit.StartPostgres(t, devpg.Config{}))
	bus, _ := startBus(t, db, nil)
	s := spyOn(t, bus, "t", nil)
	say(t, bus, "t", "1", "2", "3")
	before := s.last("3")[2].Position
	if err := syscall.Kill(value[int](t, db, "select pg_backend_pid()"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := s.until("reset", func(got []backplane.Message) bool { return got[len(got)-1].Notice() })
	if last := got[len(got)-1]; last.Recovery.Outcome != backplane.Reset || last.Position.Epoch == before.Epoch {
		t.Errorf("given%s", brief(got))
	}
	testkit.Eventually(t, patience, func() error { // stale connections of the pool fail once each
		_, err := bus.Publish(t.Context(), backplane.Outgoing{Topic: "t", Data: []byte("after")})
		return err
	})
	dense(t, s.last("after")[4:], 1)
}

func TestDatabaseAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	bus, _ := startBus(t, db, func(c *backplane.Config) {
		pool, err := pgxpool.New(t.Context(), "postgres://nobody:hidden@127.0.0.1:1/none?connect_timeout=2")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		c.Pool = pool
		c.DirectURL = pool.Config().ConnString()
	})
	for what, err := range map[string]error{
		"publish":   func() error { _, err := bus.Publish(t.Context(), backplane.Outgoing{Topic: "t"}); return err }(),
		"subscribe": func() error { _, err := bus.Subscribe(t.Context(), "t", nil, nil); return err }(),
	} {
		if !errors.Is(err, backplane.ErrUnavailable) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestOverflowIsReadFromTheLog(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	writer, _ := startBus(t, db, nil)
	reader, registry := startBus(t, db, nil)
	const topics, each = 32, 250
	stuck := make(chan struct{})
	if _, err := reader.Subscribe(t.Context(), "stuck", nil, func(m backplane.Message) {
		if !m.Notice() {
			<-stuck
		}
	}); err != nil {
		t.Fatal(err)
	}
	var spies []*spy
	for i := range topics {
		spies = append(spies, spyOn(t, reader, fmt.Sprint(i), nil))
	}
	say(t, writer, "stuck", "now")
	body := strings.Repeat("x", 1500) // five in a notification
	for n := range topics {
		out := make([]backplane.Outgoing, each)
		for i := range out {
			out[i] = backplane.Outgoing{Topic: fmt.Sprint(n), Data: []byte(body)}
		}
		if _, err := writer.Publish(t.Context(), out...); err != nil {
			t.Fatal(err)
		}
	}
	testkit.EventuallyTrue(t, patience, "the inbox is full", func() bool {
		return metric(t, registry, "berth_backplane_queue_depth") == 1024
	})
	close(stuck)
	for _, s := range spies {
		dense(t, s.count(each), 1)
	}
	if n := metric(t, registry, "berth_backplane_resyncs_total"); n < 2 {
		t.Errorf("%v resyncs", n)
	}
}
