package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
)

const lease = 6 * time.Second

// rig is a store on a database of its own, and short ways to what most tests need.
type rig struct {
	*testing.T

	db    *testkit.DB
	store *postgres.Store
}

// newRig has the tenant t1 without a quota and the region eu.
func newRig(t *testing.T) *rig {
	t.Helper()
	db := databases.Database(t)
	r := &rig{T: t, db: db, store: openStore(t, db, postgres.Config{})}
	r.region("eu")
	r.tenant("t1")
	return r
}

// openStore opens a store on db by its socket, unless config says otherwise.
func openStore(t testing.TB, db *testkit.DB, config postgres.Config) *postgres.Store {
	t.Helper()
	if config.URL == "" {
		config.URL = db.SocketURL
	}
	store, err := postgres.Open(t.Context(), config)
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	t.Cleanup(store.Close)
	return store
}

// stores are n processes' worth of stores.
func (r *rig) stores(n int) []*postgres.Store {
	r.Helper()
	stores := make([]*postgres.Store, n)
	for i := range stores {
		stores[i] = openStore(r.T, r.db, postgres.Config{})
	}
	return stores
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) region(id string, spill ...string) {
	r.Helper()
	r.ok(r.store.SetRegion(r.Context(), berth.Region{ID: id, Spill: spill}))
}

func (r *rig) tenant(id string) {
	r.Helper()
	r.ok(r.store.SetTenant(r.Context(), berth.Tenant{ID: id}))
}

func (r *rig) quota(id string, most int) {
	r.Helper()
	r.ok(r.store.SetTenant(r.Context(), berth.Tenant{ID: id, MaxConcurrentSessions: &most}))
}

// exec runs a statement behind the store's back.
func (r *rig) exec(statement string, args ...any) {
	r.Helper()
	if _, err := r.db.Pool.Exec(r.Context(), statement, args...); err != nil {
		r.Fatalf("%s: %v", statement, err)
	}
}

// read reads one value.
func read[T any](r *rig, query string, args ...any) T {
	r.Helper()
	var v T
	if err := r.db.Pool.QueryRow(r.Context(), query, args...).Scan(&v); err != nil {
		r.Fatalf("%s: %v", query, err)
	}
	return v
}

// instance is one start of a worker.
type instance struct {
	id       string
	number   berth.Instance
	presence berth.Presence
}

// worker starts a worker in eu.
func (r *rig) worker(id string, capacity int) instance {
	r.Helper()
	return r.workerIn("eu", id, capacity)
}

// workerIn starts a worker: present, registered and open.
func (r *rig) workerIn(region, id string, capacity int) instance {
	r.Helper()
	w := r.newInstance(id)
	held, err := r.register(w, region, capacity)
	if err != nil || held {
		r.Fatalf("register %s: held %v, %v", id, held, err)
	}
	r.ok(r.store.Open(r.Context(), id, w.number))
	return w
}

// newInstance draws an instance and makes it present until the test ends.
func (r *rig) newInstance(id string) instance {
	r.Helper()
	number, err := r.store.NextInstance(r.Context())
	r.ok(err)
	presence, err := r.store.Presence(r.Context(), number)
	r.ok(err)
	w := instance{id: id, number: number, presence: presence}
	r.Cleanup(func() { r.vanish(w) })
	return w
}

// vanish takes the instance's presence away, as its death would.
func (r *rig) vanish(w instance) {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 10*time.Second)
	defer cancel()
	if err := w.presence.Close(ctx); err != nil {
		r.Errorf("close presence of %s: %v", w.id, err)
	}
}

// terminate ends the instance's presence connection from the server's side. pg_locks is of all databases.
func (r *rig) terminate(w instance) {
	r.Helper()
	r.exec(`select pg_terminate_backend(l.pid, 5000) from pg_locks l join pg_database d on d.oid = l.database
		where l.locktype = 'advisory' and l.classid::bigint = 1650815592 and l.objid::bigint = $1
		  and d.datname = current_database()`, int64(w.number))
}

func (r *rig) register(w instance, region string, capacity int) (bool, error) {
	return r.store.Register(r.Context(), berth.Registration{
		WorkerID: w.id, Instance: w.number, Region: region, Capacity: capacity,
		SignalingURL: "ws://" + w.id, ControlURL: "http://" + w.id, Version: "test", Lease: lease,
	})
}

// start is a valid Start of tenant t1.
func start(id string) berth.Start {
	return berth.Start{
		TenantID: "t1", ID: id, IDChosen: true, Kind: berth.KindMedia, Peer: berth.Peer{ID: "p1", Role: berth.RoleOffer},
		Spill: true, Handler: "echo", TTL: time.Hour, IdleTimeout: time.Minute, OnWorkerLoss: berth.LossRejoin,
	}
}

// startOf is a valid Start of another tenant.
func startOf(tenant, id string) berth.Start {
	s := start(id)
	s.TenantID = tenant
	return s
}

// place places a session that must find its place.
func (r *rig) place(s berth.Start) berth.Placement {
	r.Helper()
	placement, err := r.store.Place(r.Context(), s)
	if err != nil {
		r.Fatalf("place %s: %v", s.ID, err)
	}
	return placement
}

// refused expects a refusal with the code.
func (r *rig) refused(code berth.Code, err error) berth.Refusal {
	r.Helper()
	refusal, ok := errors.AsType[*berth.Refusal](err)
	if !ok || refusal.Code != code {
		r.Fatalf("got %v, want %s", err, code)
	}
	return *refusal
}

// placeRefused expects a start to be refused.
func (r *rig) placeRefused(code berth.Code, s berth.Start) berth.Refusal {
	r.Helper()
	_, err := r.store.Place(r.Context(), s)
	return r.refused(code, err)
}

// connect connects the peer p1 to the placement on its owner.
func (r *rig) connect(s berth.Session, connection string) {
	r.Helper()
	_, err := r.store.ConnectPeer(r.Context(), connectOf(s, "p1", connection))
	r.ok(err)
}

func connectOf(s berth.Session, peer, connection string) berth.Connect {
	return berth.Connect{
		Held: heldOf(s), WorkerID: s.WorkerID, Instance: s.Instance,
		Peer: berth.Peer{ID: peer, Role: berth.RoleOffer, ConnectionID: connection},
	}
}

func heldOf(s berth.Session) berth.Held { return berth.Held{Key: s.Key, Generation: s.Generation} }

// session reads the row of a placement again.
func (r *rig) session(key berth.SessionKey) berth.Session {
	r.Helper()
	s, err := r.store.SessionByKey(r.Context(), key)
	r.ok(err)
	return s
}

// expect compares a session's state and why it ended.
func (r *rig) expect(key berth.SessionKey, state berth.SessionState, reason berth.EndedReason) {
	r.Helper()
	if s := r.session(key); s.State != state || s.EndedReason != reason {
		r.Errorf("session %s is %s %s, want %s %s", s.ID, s.State, s.EndedReason, state, reason)
	}
}

// displaced places a session on w and takes it off.
func (r *rig) displaced(w instance, s berth.Start) berth.Session {
	r.Helper()
	placed := r.place(s).Session
	r.ok(r.store.Displace(r.Context(), w.id, w.number, []berth.SessionKey{placed.Key}))
	return placed
}

// free is the number of slots that a start could take.
func (r *rig) free() int {
	return read[int](r, "select coalesce(sum(free), 0)::int from berth.capacity")
}

func (r *rig) live(tenant string) int {
	return read[int](r, "select count(*)::int from berth.sessions where tenant_id = $1 and state <> 'ended'", tenant)
}

// ids are n different ids.
func ids(prefix string, n int) []string {
	made := make([]string, n)
	for i := range made {
		made[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	return made
}

// count counts the answers of parallel starts by refusal code; "" is a placement. Any other error fails the test.
func (r *rig) count(errs []error) map[berth.Code]int {
	r.Helper()
	counts := map[berth.Code]int{}
	for _, err := range errs {
		code := berth.RefusalCode(err)
		if err != nil && code == "" {
			r.Errorf("neither placed nor refused: %v", err)
		}
		counts[code]++
	}
	return counts
}

// parallel runs act n times at once and returns its errors in order.
func parallel(n int, act func(i int) error) []error {
	errs := make([]error, n)
	ready, done := make(chan struct{}), make(chan struct{})
	for i := range n {
		go func() {
			defer func() { done <- struct{}{} }()
			<-ready
			errs[i] = act(i)
		}()
	}
	close(ready)
	for range n {
		<-done
	}
	return errs
}

func equal[T comparable](r *rig, got, want []T) {
	r.Helper()
	if !slices.Equal(got, want) {
		r.Errorf("got %v, want %v", got, want)
	}
}
