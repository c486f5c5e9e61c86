package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/devpg"
	"github.com/berthdev/berth/internal/postgres"
)

// cityDatabase is the database of a city.
const cityDatabase = "city"

// settled is for how many ticks the reaper is watched after a fault: it would have lost somebody by then.
const settled = 5

// shortLease are settings of workers, and the first also of API processes, that shorten what has to pass until a lease is
// over. shortTerm is that lease.
var shortLease = []string{"BERTH_LEASE=2s", "BERTH_RENEW_INTERVAL=500ms"}

const shortTerm = 2 * time.Second

// cityPlan is what a city is built of.
type cityPlan struct {
	apis    int
	workers int
	slots   int // of each worker

	api      []string          // settings of API processes
	worker   []string          // settings of workers
	postgres map[string]string // settings of the server
	data     string            // directory of the server's files; empty: one of the run
	// address tells processes and the test how to reach the database; nil: where the server listens.
	address func(c *city) string
}

// city is a deployment that one test has to itself: Postgres, API processes and workers, each of which it may stop. The
// first API process stands for its stack.
type city struct {
	*quarter

	plan    cityPlan
	config  devpg.Config
	server  *devpg.Server
	apis    []*apiServer
	workers []*workerProcess
}

// apiServer is a `berth api` that a test started.
type apiServer struct {
	*process

	url string
}

// newCity builds a deployment, and takes it down when the test ends, after a look at its invariants.
func newCity(t testing.TB, plan cityPlan) *city {
	t.Helper()
	dir, err := newDir()
	if err != nil {
		t.Fatal(err)
	}
	c := &city{plan: plan, quarter: &quarter{stack: &stack{dir: dir}}}
	if c.plan.data == "" {
		c.plan.data = filepath.Join(dir, "pg")
	}
	c.openDatabase(t)
	for range plan.apis {
		c.addAPI(t)
	}
	c.stack.process, c.APIURL = c.apis[0].process, c.apis[0].url
	c.OperatorKey = c.newKey(t, auth.RoleOperator, "")
	c.quarter = newQuarter(t, c.stack, nil)
	for i := range plan.workers {
		c.workers = append(c.workers, c.launchWorker(t, c.name(fmt.Sprintf("w%d", i)), plan.slots, plan.worker...))
	}
	for _, w := range c.workers {
		c.awaitReady(t, w, 0)
	}
	c.soundAtEnd(t)
	return c
}

// openDatabase starts the server, makes the schema and connects the test.
func (c *city) openDatabase(t testing.TB) {
	t.Helper()
	settings := map[string]string{"synchronous_commit": "on"} // the servers of these tests are killed, and remember
	maps.Copy(settings, c.plan.postgres)
	c.config = devpg.Config{Dir: c.plan.data, TempDir: c.dir, MaxConnections: 400, Settings: settings}
	c.startPostgres(t)
	t.Cleanup(func() { c.stopPostgres(t) })
	if err := c.server.CreateDatabase(t.Context(), cityDatabase); err != nil {
		t.Fatal(err)
	}
	p, err := startProcess(c.dir, []string{"BERTH_DATABASE_URL=" + c.server.URL(cityDatabase)}, "migrate", "up")
	if err == nil {
		err = p.endWell()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.DatabaseURL = c.server.URL(cityDatabase)
	if c.plan.address != nil {
		c.DatabaseURL = c.plan.address(c)
	}
	store, err := postgres.Open(t.Context(), postgres.Config{URL: c.DatabaseURL, Name: "e2e", PoolSize: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	c.store = store
}

// startPostgres starts the server, after the first time where it was.
func (c *city) startPostgres(t testing.TB) {
	t.Helper()
	server, err := devpg.Start(t.Context(), c.config)
	if err != nil {
		t.Fatal(err)
	}
	c.server, c.config.Port = server, server.Port()
}

// stopPostgres stops the server as an operator does: connections are cut, and what was committed is kept.
func (c *city) stopPostgres(t testing.TB) {
	t.Helper()
	if err := c.server.Stop(detached(t)); err != nil {
		t.Errorf("stop postgres: %v", err)
	}
}

// crashPostgres stops the server at once and without a checkpoint.
func (c *city) crashPostgres(t testing.TB) {
	t.Helper()
	_ = syscall.Kill(c.server.PID(), syscall.SIGQUIT) // it runs, or Done is closed
	<-c.server.Done()
	c.stopPostgres(t)
}

// freezePostgres pauses the server and every process of it, so that nothing answers and no connection ends, until thaw.
func (c *city) freezePostgres(t testing.TB) (thaw func()) {
	t.Helper()
	_ = syscall.Kill(c.server.PID(), syscall.SIGSTOP) // first, so that it makes no more children
	frozen := append(children(c.server.PID()), c.server.PID())
	signal := func(sig syscall.Signal) {
		for _, pid := range frozen {
			_ = syscall.Kill(pid, sig) // a child may have ended
		}
	}
	signal(syscall.SIGSTOP)
	thaw = sync.OnceFunc(func() { signal(syscall.SIGCONT) })
	t.Cleanup(thaw)
	return thaw
}

// children lists the processes that a process started.
func children(parent int) []int {
	var found []int
	for _, p := range all() {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid)) // it may have ended
		_, rest, _ := strings.Cut(string(status), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			found = append(found, p.pid)
		}
	}
	return found
}

// addAPI starts one more API process.
func (c *city) addAPI(t testing.TB) {
	t.Helper()
	c.apis = append(c.apis, c.launchAPI(t, "127.0.0.1:0"))
}

// launchAPI starts an API process and waits until it serves.
func (c *city) launchAPI(t testing.TB, listen string) *apiServer {
	t.Helper()
	p, err := startProcess(c.dir, append([]string{
		"BERTH_DATABASE_URL=" + c.DatabaseURL, "BERTH_LISTEN=" + listen, "BERTH_DEV=true",
	}, c.plan.api...), "api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !p.ended() {
			p.signal(syscall.SIGCONT) // the test may have ended while it was paused
			if err := p.stop(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		}
		p.showAfterFailure(t)
	})
	at, err := p.awaitURL()
	if err != nil {
		t.Fatal(err)
	}
	return &apiServer{process: p, url: at}
}

// killAPIs kills every API process.
func (c *city) killAPIs(t testing.TB) {
	t.Helper()
	for _, a := range c.apis {
		a.signal(syscall.SIGKILL)
	}
	for _, a := range c.apis {
		if _, err := a.wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// restartAPIs starts every API process where it was.
func (c *city) restartAPIs(t testing.TB) {
	t.Helper()
	for i, a := range c.apis {
		at, err := url.Parse(a.url)
		if err != nil {
			t.Fatal(err)
		}
		c.apis[i] = c.launchAPI(t, at.Host)
	}
	c.stack.process = c.apis[0].process
}

// nobodyEnded checks that no process needed a restart.
func (c *city) nobodyEnded(t testing.TB) {
	t.Helper()
	for _, a := range c.apis {
		if a.ended() {
			t.Errorf("API process %s ended: %v", a.url, a.err)
		}
	}
	for _, w := range c.workers {
		if w.ended() {
			t.Errorf("worker %s ended: %v", w.id, w.err)
		}
	}
}

// soundAtEnd looks for broken invariants at the end, while everything still runs.
func (c *city) soundAtEnd(t testing.TB) {
	t.Helper()
	t.Cleanup(func() { c.sound(t) })
}

// sound waits for the database, which may just be back, and checks the invariants.
func (c *city) sound(t testing.TB) {
	t.Helper()
	ctx := detached(t)
	var found []string
	err := poll(patience, func() error {
		rows, err := c.texts(ctx, "select format('%s: %s (%s)', invariant, what, subject) from berth.violations")
		found = rows
		return err
	})
	if err != nil || len(found) > 0 {
		t.Errorf("berth.violations: %v %s", err, strings.Join(found, "; "))
	}
}

// texts reads one column.
func (c *city) texts(ctx context.Context, sql string, args ...any) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var found []string
	err := c.store.Pool().QueryRow(ctx, "select coalesce(array_agg(v order by v), '{}') from ("+sql+") as found(v)", args...).Scan(&found)
	return found, err
}

// owners says for each live session and peer who has it, and each worker's instance and state.
func (c *city) owners(ctx context.Context) ([]string, error) {
	sessions, err := c.texts(ctx, `select format('%s %s: %s %s %s generation %s', s.id, p.peer_id, s.state,
		coalesce(s.worker_id, p.worker_id), coalesce(s.instance, p.instance), s.generation)
		from berth.sessions s join berth.peers p on p.session = s.key
		where s.state <> 'ended' and p.connection_id is not null`)
	if err != nil {
		return nil, err
	}
	workers, err := c.texts(ctx, "select format('%s: %s %s %s', id, instance, state, cordoned_reason) from berth.workers")
	return append(sessions, workers...), err
}

// kept waits until everything is as it was before a fault: nobody lost, nobody reaped, nobody cordoned.
func (c *city) kept(t testing.TB, before []string) {
	t.Helper()
	err := poll(patience, func() error {
		after, err := c.owners(t.Context())
		if err != nil {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(before), func(line string) bool { return slices.Contains(after, line) })
		if len(missing) > 0 {
			return fmt.Errorf("%d lines of %d are not as before: %s\nnow: %s", len(missing), len(before),
				strings.Join(missing[:min(5, len(missing))], "; "), strings.Join(after[:min(12, len(after))], "; "))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// ticked waits until the reaper has had so many ticks more, and so has judged what it saw.
func (c *city) ticked(t testing.TB, ticks int) {
	t.Helper()
	read := func() (tick int) {
		eventually(t, func() error {
			return c.store.Pool().QueryRow(t.Context(), "select tick from berth.reaper_state").Scan(&tick)
		})
		return tick
	}
	first := read()
	eventually(t, func() error {
		if tick := read(); tick < first+ticks {
			return fmt.Errorf("%d ticks of %d", tick-first, ticks)
		}
		return nil
	})
}

// mustOwners is owners at a time when the database answers.
func (c *city) mustOwners(t testing.TB) []string {
	t.Helper()
	found, err := c.owners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// losses lists the verdicts of the reaper.
func (c *city) losses(t testing.TB) []string {
	t.Helper()
	var found []string
	eventually(t, func() (err error) {
		found, err = c.texts(t.Context(), `select format('%s instance %s: %s after %s ms', worker_id, instance, evidence,
			round(1000 * extract(epoch from confirmed_at - opened_at))) from berth.gaps where confirmed_at is not null`)
		return err
	})
	return found
}

// after returns when d is over: for faults that last.
func after(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
