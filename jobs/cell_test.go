package jobs_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/jobs"
)

// cell is a real database with workers whose processes are played by HTTP servers.
type cell struct {
	*testing.T

	db    *testkit.DB
	store *postgres.Store
}

// process is one start of a worker.
type process struct {
	cell     *cell
	id       string
	number   berth.Instance
	presence berth.Presence
	server   *httptest.Server
}

func newCell(t *testing.T) *cell {
	t.Helper()
	c := &cell{T: t, db: databases.Database(t)}
	c.store = c.open()
	c.ok(c.store.SetTenant(t.Context(), berth.Tenant{ID: "t1"}))
	return c
}

func (c *cell) open() *postgres.Store {
	c.Helper()
	store, err := postgres.Open(c.Context(), postgres.Config{URL: c.db.SocketURL})
	c.ok(err)
	c.Cleanup(store.Close)
	return store
}

func (c *cell) ok(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *cell) exec(statement string, args ...any) {
	c.Helper()
	_, err := c.db.Pool.Exec(c.Context(), statement, args...)
	c.ok(err)
}

func (c *cell) count(query string, args ...any) (n int) {
	c.Helper()
	c.ok(c.db.Pool.QueryRow(c.Context(), query, args...).Scan(&n))
	return n
}

// worker starts a worker that answers on its control address.
func (c *cell) worker(id string, capacity int) *process {
	c.Helper()
	number, err := c.store.NextInstance(c.Context())
	c.ok(err)
	p := &process{cell: c, id: id, number: number}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", says(200, fmt.Sprintf(`{"worker_id":%q,"instance":%d}`, id, number)))
	mux.HandleFunc("GET /sockets", says(200, fmt.Sprintf(`{"worker_id":%q,"instance":%d,"sockets":[{"id":"c1","session":"s1"}]}`, id, number)))
	p.server = httptest.NewServer(mux)
	c.Cleanup(p.server.Close)
	p.presence, err = c.store.Presence(c.Context(), number)
	c.ok(err)
	c.Cleanup(p.vanish)
	held, err := c.store.Register(c.Context(), berth.Registration{
		WorkerID: id, Instance: number, Region: "eu", Capacity: capacity, SignalingURL: "ws://" + id,
		ControlURL: p.server.URL, Lease: detection.Lease,
	})
	if err != nil || held {
		c.Fatalf("register: held %v, %v", held, err)
	}
	c.ok(c.store.Open(c.Context(), id, number))
	return p
}

// terminate ends the presence connection from the server's side. pg_locks is of all databases.
func (c *cell) terminate(w *process) {
	c.Helper()
	c.exec(`select pg_terminate_backend(l.pid, 5000) from pg_locks l join pg_database d on d.oid = l.database
		where l.locktype = 'advisory' and l.classid::bigint = 1650815592 and l.objid::bigint = $1
		  and d.datname = current_database()`, int64(w.number))
}

// vanish takes the presence away, die the control address as well.
func (p *process) vanish() {
	p.cell.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.cell.Context()), 10*time.Second)
	defer cancel()
	p.cell.ok(p.presence.Close(ctx))
}

func (p *process) die() {
	p.cell.Helper()
	p.server.Close()
	p.vanish()
}

func (c *cell) place(id string, onLoss berth.OnWorkerLoss) berth.Session {
	c.Helper()
	placed, err := c.store.Place(c.Context(), berth.Start{
		TenantID: "t1", ID: id, Kind: berth.KindMedia, Peer: berth.Peer{ID: "p1", Role: berth.RoleOffer}, Spill: true,
		Handler: "echo", TTL: time.Hour, IdleTimeout: time.Minute, OnWorkerLoss: onLoss,
	})
	c.ok(err)
	return placed.Session
}

func (c *cell) expect(s berth.Session, state berth.SessionState, reason berth.EndedReason) berth.Session {
	c.Helper()
	got, err := c.store.SessionByKey(c.Context(), s.Key)
	if err != nil || got.State != state || got.EndedReason != reason {
		c.Errorf("%s is %s %s, %v; want %s %s", s.ID, got.State, got.EndedReason, err, state, reason)
	}
	return got
}

// looked makes the next tick one that is not blind.
func (c *cell) looked() {
	c.Helper()
	c.exec("update berth.reaper_state set last_look_at = clock_timestamp(), server_start = pg_postmaster_start_time()")
}

// reaper is one of a process of its own.
func (c *cell) reaper() (*jobs.Reaper, *prometheus.Registry) {
	c.Helper()
	registry := prometheus.NewRegistry()
	return c.reaperOf(detection, c.open(), testkit.Logger(c.T), registry), registry
}

// reaperOf is one that detects in another way.
func (c *cell) reaperOf(
	numbers berth.Detection, store *postgres.Store, logger *slog.Logger, registry *prometheus.Registry,
) *jobs.Reaper {
	c.Helper()
	detector, err := jobs.NewDetector(numbers, store, jobs.NewHTTPProber(5*time.Second), jobs.NewHTTPAsker(5*time.Second, unsigned))
	c.ok(err)
	reaper, err := jobs.NewReaper(store, detector, backplane.NewMemory(), numbers, logger, registry)
	c.ok(err)
	return reaper
}

// unsigned is for workers that believe everybody.
func unsigned(context.Context, string, berth.Instance, time.Time) (string, error) {
	return "trust me", nil
}
