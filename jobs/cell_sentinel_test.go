package jobs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/devpg"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/jobs"
	"github.com/berthdev/berth/migrations"
)

// noticed is what a busy machine may need, at the most, for what takes two seconds at the most on a quiet one.
const noticed = 10 * time.Second

// guardAt is an API process as far as detection goes, without River: what happens is the sentinel's doing.
func (c *cell) guardAt(address string, numbers berth.Detection) guard {
	c.Helper()
	store, err := postgres.Open(c.Context(), postgres.Config{URL: address})
	c.ok(err)
	c.Cleanup(store.Close)
	registry, logger := prometheus.NewRegistry(), testkit.Logger(c.T)
	g := guard{reaper: c.reaperOf(numbers, store, logger, registry), registry: registry}
	g.sentinel, err = jobs.NewSentinel(store, g.reaper, numbers, logger, registry)
	c.ok(err)
	g.start(c.Context())
	c.Cleanup(g.stop)
	return g
}

func (c *cell) holds(g guard) bool {
	c.Helper()
	return gauge(c.T, g.registry, "berth_sentinel_holding", nil) == 1
}

// onGuard waits until somebody looks, and no longer blindly.
func (c *cell) onGuard(g guard) {
	c.Helper()
	testkit.EventuallyTrue(c.T, soon, "nobody is on guard", func() bool {
		return c.holds(g) && c.count("select tick::int from berth.reaper_state") >= 2
	})
}

// untilLost waits until so many workers are lost, and returns how long after began the last was, by the database.
func (c *cell) untilLost(workers int, began time.Time) time.Duration {
	c.Helper()
	testkit.EventuallyTrue(c.T, soon, "workers are lost", func() bool {
		return c.count("select count(*) from berth.gaps where confirmed_at is not null") >= workers
	})
	var at time.Time
	c.ok(c.db.Pool.QueryRow(c.Context(), "select max(confirmed_at) from berth.gaps").Scan(&at))
	return at.Sub(began)
}

func TestSentinelFindsKilledWorkers(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.onGuard(c.guardAt(c.db.SocketURL, detection))
	for i := range 5 {
		w := c.worker(fmt.Sprintf("w%d", i), 2)
		placed := c.place(fmt.Sprintf("s%d", i), berth.LossRejoin)
		began := time.Now()
		w.die()
		took := c.untilLost(i+1, began)
		t.Logf("kill %d: lost after %v", i+1, took)
		if took > noticed {
			t.Error("too late")
		}
		testkit.EventuallyTrue(t, soon, "its session is displaced", func() bool {
			return c.count("select count(*) from berth.sessions where key = $1 and state = 'awaiting_rejoin'", placed.Key) == 1
		})
	}
}

func TestSentinelFindsTwoOfThreeKilledAtOnce(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	w1, w2 := c.worker("w1", 2), c.worker("w2", 2)
	c.worker("w3", 2)
	g := c.guardAt(c.db.SocketURL, detection)
	c.onGuard(g)
	began := time.Now()
	w1.die()
	w2.die()
	took := c.untilLost(2, began)
	t.Logf("both lost after %v", took)
	if took > noticed || counter(t, g.registry, "berth_reaper_doubts_total", "") > 0 {
		t.Error("too late, or in doubt")
	}
	if n := c.count("select count(*) from berth.workers where state = 'ready'"); n != 1 {
		t.Errorf("%d are left", n)
	}
}

// The sentinel's connection is terminated while a worker dies: whoever stands by goes on.
func TestSentinelWhoseConnectionIsTerminatedDelaysNothing(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	w := c.worker("w1", 2)
	first := c.guardAt(c.db.SocketURL, detection)
	c.onGuard(first)
	c.guardAt(c.db.SocketURL, detection)
	began := time.Now()
	c.exec(`select pg_terminate_backend(l.pid) from pg_locks l join pg_database d on d.oid = l.database
		where l.locktype = 'advisory' and l.classid::bigint = 1650815602 and l.objid = 2 and d.datname = current_database()`)
	w.die()
	took := c.untilLost(1, began)
	t.Logf("lost after %v", took)
	if took > noticed {
		t.Error("too late")
	}
}

// The process that is sentinel is paused at the moment at which a worker dies.
func TestPausedSentinelDelaysNothingNoticeable(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	w := c.worker("w1", 2)
	way := newLink(t, c.db.URL)
	first := c.guardAt(way.url, detection)
	c.onGuard(first)
	second := c.guardAt(c.db.SocketURL, detection)
	defer way.close() // so that nobody waits for what is frozen
	began := time.Now()
	way.freeze()
	w.die()
	took := c.untilLost(1, began)
	t.Logf("lost after %v", took)
	if took > noticed || !c.holds(second) {
		t.Errorf("too late, or the second does not watch: %v", c.holds(second))
	}
}

// The process that is sentinel and in the middle of a tick is paused: its gap is open, and its lock held.
func TestPausedReaperDelaysNothingNoticeable(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	w := c.worker("w1", 2)
	placed := c.place("a", berth.LossRejoin)
	way := newLink(t, c.db.URL)
	c.onGuard(c.guardAt(way.url, detection))
	c.guardAt(c.db.SocketURL, detection)
	w.die()
	testkit.EventuallyTrue(t, soon, "a gap is open", func() bool { return c.count("select count(*) from berth.gaps") == 1 })
	defer way.close() // so that nobody waits for what is frozen
	began := time.Now()
	way.freeze()
	took := c.untilLost(1, began)
	t.Logf("lost %v after the pause began", took)
	if took > noticed {
		t.Error("too late")
	}
	testkit.EventuallyTrue(t, soon, "its session is displaced", func() bool {
		return c.count("select count(*) from berth.sessions where key = $1 and state = 'awaiting_rejoin'", placed.Key) == 1
	})
	if n := c.count("select count(*) from berth.session_events where type = 'displaced'"); n != 1 {
		t.Errorf("%d displacements", n)
	}
}

// Rule 9.4: a terminated database connection of a live worker costs nothing, however often, and nobody is asked for ever.
func TestSentinelLeavesAWorkerAloneThatLostItsConnection(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	w := c.worker("w1", 2)
	placed := c.place("a", berth.LossRejoin)
	c.onGuard(c.guardAt(c.db.SocketURL, detection))
	c.terminate(w)
	<-w.presence.Done()
	testkit.EventuallyTrue(t, soon, "its gap is cleared", func() bool {
		return c.count("select count(*) from berth.gaps where cleared_at is not null") >= 1
	})
	before := c.count("select tick::int from berth.reaper_state")
	<-time.After(3 * time.Second)
	if ticks := c.count("select tick::int from berth.reaper_state") - before; ticks > 8 {
		t.Errorf("%d ticks in 3 s", ticks)
	}
	if got := c.expect(placed, berth.SessionAssigned, ""); got.Generation != placed.Generation {
		t.Errorf("got %+v", got)
	}
}

// Each design finds a killed worker on a real database, and nobody else.
func TestEveryDetectorFindsAKilledWorker(t *testing.T) {
	t.Parallel()
	for _, kind := range detectors {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			c := newCell(t)
			numbers := detection
			numbers.Detector = kind
			w, other := c.worker("w1", 2), c.worker("w2", 2)
			g := c.guardAt(c.db.SocketURL, numbers)
			c.onGuard(g)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go other.live(ctx)
			c.ok(w.renew(t.Context()))
			began := time.Now()
			w.die()
			took := c.untilLost(1, began)
			t.Logf("%s: lost after %v", kind, took)
			if took > noticed+detection.Lease {
				t.Error("too late")
			}
			if n := c.count("select count(*) from berth.workers where state = 'ready' and id = 'w2' and cordoned_reason is null"); n != 1 {
				t.Error("the other is lost, or cordoned")
			}
			what := map[string]string{"detector": string(kind), "what": "workers"}
			if got := gauge(t, g.registry, "berth_detector_looked_at", what); got < 1 {
				t.Errorf("looked at %v workers", got)
			}
		})
	}
}

// renew is what a worker does every two seconds.
func (p *process) renew(ctx context.Context) error {
	_, err := p.cell.store.Renew(ctx, berth.Renewal{WorkerID: p.id, Instance: p.number, Digest: berth.Digest(nil), Lease: detection.Lease})
	return err
}

// live renews, and takes its presence again when it is lost, until ctx ends.
func (p *process) live(ctx context.Context) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		_ = p.renew(ctx) // the database may be away
		select {
		case <-p.presence.Done():
			if presence, err := p.cell.store.Presence(ctx, p.number); err == nil {
				p.presence = presence
			}
		default:
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// A restart frees the presence locks of all workers at once, which says nothing about any of them.
func TestRestartOfTheDatabaseLosesNobody(t *testing.T) {
	t.Parallel()
	const workers = 20
	config := devpg.Config{Dir: keptDir(t)}
	ctx := t.Context()
	server, err := devpg.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	config.Port = server.Port()
	stop := func() {
		if err := server.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}
	defer func() { stop() }()
	c := cellOf(t, server)
	c.guardAt(server.URL("postgres"), detection)
	c.guardAt(server.URL("postgres"), detection)
	living, die := context.WithCancel(ctx)
	var fleet []*process
	done := make(chan struct{}, workers)
	for i := range workers {
		w := c.worker(fmt.Sprintf("w%d", i), 2)
		c.place(fmt.Sprintf("s%d", i), berth.LossRejoin)
		fleet = append(fleet, w)
		go func() { w.live(living); done <- struct{}{} }()
	}
	defer func() {
		die()
		for range fleet {
			<-done
		}
	}()
	for restart := range 2 {
		stop()
		if server, err = devpg.Start(ctx, config); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		testkit.Eventually(t, soon, func() error {
			var ticks, present int
			err := c.db.Pool.QueryRow(ctx, `select tick, (select count(*) from berth.liveness where present)
				from berth.reaper_state where server_start = pg_postmaster_start_time()`).Scan(&ticks, &present)
			if err == nil && present < workers {
				err = fmt.Errorf("%d present", present)
			}
			return err
		})
		t.Logf("restart %d: all is well after %v", restart+1, time.Since(began))
		before := c.count("select tick::int from berth.reaper_state")
		testkit.EventuallyTrue(t, soon, "ticks go on", func() bool {
			return c.count("select tick::int from berth.reaper_state") > before+2
		})
		if lost := c.count("select count(*) from berth.gaps where confirmed_at is not null"); lost > 0 {
			t.Errorf("%d lost", lost)
		}
		if n := c.count("select count(*) from berth.sessions where state = 'assigned'"); n != workers {
			t.Errorf("%d sessions are left", n)
		}
	}
}

// keptDir is a place for a server's data that outlives the server.
func keptDir(t *testing.T) string {
	t.Helper()
	root, err := os.MkdirTemp(devpg.MemoryDir(), "jobs-test-") //nolint:usetesting // t.TempDir is closed to the server's user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(root, 0o711); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "data")
}

// cellOf is a cell on a server of its own.
func cellOf(t *testing.T, server *devpg.Server) *cell {
	t.Helper()
	address := server.URL("postgres") // the socket is elsewhere after a restart
	if err := migrations.Up(t.Context(), address, testkit.Logger(t)); err != nil {
		t.Fatal(err)
	}
	c := &cell{T: t, db: &testkit.DB{URL: address, SocketURL: address}}
	c.store = c.open()
	c.db.Pool = c.store.Pool()
	c.ok(c.store.SetTenant(t.Context(), berth.Tenant{ID: "t1"}))
	return c
}
