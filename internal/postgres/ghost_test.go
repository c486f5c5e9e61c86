package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
)

// haunt makes a session a ghost: nobody connected, and the time to do so is nearly over.
func (r *rig) haunt(key berth.SessionKey) {
	r.Helper()
	r.exec("update berth.sessions set connect_by = clock_timestamp() + interval '1 s' where key = $1", int64(key))
}

func (r *rig) deadlocks() int {
	r.Helper()
	return read[int](r, "select deadlocks::int from pg_stat_database where datname = current_database()")
}

func TestStartEndsTheOldestGhostOfItsTenant(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.quota("t1", 3)
	r.tenant("t2")
	r.worker("w1", 8)
	keys := map[string]berth.SessionKey{}
	for _, id := range []string{"older", "old", "alive"} {
		keys[id] = r.place(start(id)).Session.Key
	}
	r.connect(r.session(keys["alive"]), "c1")
	elsewhere := r.place(startOf("t2", "elsewhere")).Session
	r.haunt(keys["older"])
	r.haunt(keys["old"])
	r.haunt(elsewhere.Key)
	r.place(start("next"))
	r.expect(keys["older"], berth.SessionEnded, berth.EndedNoShow)
	r.expect(keys["old"], berth.SessionAssigned, "")
	r.place(start("another"))
	r.expect(keys["old"], berth.SessionEnded, berth.EndedNoShow)
	r.expect(elsewhere.Key, berth.SessionAssigned, "")
	// What is left was heard of lately: the quota stands.
	r.placeRefused(berth.CodeConcurrentSessions, start("one-more"))
	if live, free := r.live("t1"), r.free(); live != 3 || free != 4 {
		t.Errorf("%d live, %d free", live, free)
	}
	r.ok(noViolations(t.Context(), r.db.Pool))
}

// What ends ghosts locks workers' slots in the order in which releases do, though ghosts come tenant by tenant.
func TestGhostsOfTwoTenantsAndAReleaseDoNotDeadlock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 1)
	r.quota("ta", 1)
	r.quota("tb", 1)
	b := r.place(startOf("tb", "b")).Session // the first tenant's ghost is on the later worker
	r.worker("w2", 1)
	a := r.place(startOf("ta", "a")).Session
	r.haunt(a.Key)
	r.haunt(b.Key)
	tx, err := r.db.Pool.Begin(t.Context())
	r.ok(err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // it has failed already, or is committed
	const lock = "select pg_advisory_xact_lock(1650815593, num) from berth.workers where id = $1"
	_, err = tx.Exec(t.Context(), lock, "w1")
	r.ok(err)
	answered := make(chan error, 1)
	go func() {
		results, err := r.store.ClaimSessions(t.Context(), []berth.Start{startOf("ta", "a2"), startOf("tb", "b2")})
		for _, result := range results {
			if err == nil {
				err = result.Err
			}
		}
		answered <- err
	}()
	testkit.EventuallyTrue(t, 10*time.Second, "the claim does not wait for the release", func() bool {
		return read[bool](r, `select exists (select from pg_locks l join pg_database d on d.oid = l.database
			where d.datname = current_database() and not granted)`)
	})
	if _, err = tx.Exec(t.Context(), lock, "w2"); err != nil {
		t.Errorf("the release: %v", err)
	}
	r.ok(tx.Commit(t.Context()))
	r.ok(<-answered)
	if n := r.deadlocks(); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}

func TestGhostsOfManyTenantsEndBesideReleases(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range ids("w", 6) {
		r.worker(id, 40)
	}
	tenants := ids("tenant", 8)
	for _, id := range tenants {
		r.quota(id, 4)
	}
	stores := r.stores(3)
	errs := parallel(9, func(i int) error {
		for n := range 25 {
			if err := r.churn(stores[i%3], tenants, i, n); err != nil {
				return fmt.Errorf("process %d, step %d: %w", i, n, err)
			}
		}
		return nil
	})
	for _, err := range errs {
		r.ok(err)
	}
	if n := r.deadlocks(); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// churn starts sessions of all tenants at once, each process in another order, or makes ghosts, or ends sessions.
func (r *rig) churn(store *postgres.Store, tenants []string, process, n int) error {
	if process < 6 {
		var batch []berth.Start
		for k := range tenants {
			batch = append(batch, startOf(tenants[(k*(1+2*(process%2))+process)%8], fmt.Sprintf("s%d-%d", process, n)))
		}
		if _, err := store.ClaimSessions(r.Context(), batch); err != nil {
			return err
		}
		_, err := r.db.Pool.Exec(r.Context(), `update berth.sessions set connect_by = clock_timestamp() + interval '5 s' where key in (
			select key from berth.sessions where state = 'assigned' order by key limit 6 for no key update skip locked)`)
		return err
	}
	sessions, err := store.ListSessions(r.Context(), berth.SessionFilter{State: berth.SessionAssigned, Limit: 20})
	var ends []berth.End
	for _, s := range sessions {
		ends = append(ends, berth.End{Held: heldOf(s), Reason: berth.EndedLeft})
	}
	if err != nil || len(ends) < 2 {
		return err
	}
	return store.EndSessions(r.Context(), ends[:len(ends)/2])
}
