package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

func TestScenario_C01_FiftyParallelStartsOfOneIDAreOnePlacement(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 8)
	r.worker("w2", 8)
	stores := r.stores(3)
	placements := make([]berth.Placement, 50)
	errs := parallel(50, func(i int) (err error) {
		placements[i], err = stores[i%3].Place(t.Context(), start("a"))
		return err
	})
	if counts := r.count(errs); counts[""] != 50 {
		t.Fatalf("got %v", counts)
	}
	created := 0
	for _, p := range placements {
		if p.Created {
			created++
		}
		if p.Session.Key != placements[0].Session.Key || p.Session.Generation != placements[0].Session.Generation ||
			p.Session.WorkerID != placements[0].Session.WorkerID {
			t.Errorf("got %+v and %+v", p.Session, placements[0].Session)
		}
	}
	if used := 16 - r.free(); created != 1 || used != 1 || r.live("t1") != 1 {
		t.Errorf("%d created, %d slots used, %d live", created, used, r.live("t1"))
	}
}

func TestScenario_C01_OneSlotAndFiftyIDsIsOnePlacement(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 1)
	stores := r.stores(3)
	errs := parallel(50, func(i int) error {
		_, err := stores[i%3].Place(t.Context(), start(ids("s", 50)[i]))
		return err
	})
	if counts := r.count(errs); counts[""] != 1 || counts[berth.CodeAtCapacity] != 49 {
		t.Errorf("got %v", counts)
	}
	for _, err := range errs {
		var refusal *berth.Refusal
		if errors.As(err, &refusal) && (!refusal.Retryable || refusal.RetryAfter < time.Second) {
			t.Errorf("got %+v", refusal)
		}
	}
}

func TestScenario_C03_AsManyStartsAsSlotsAllFindOne(t *testing.T) {
	t.Parallel()
	for round := range 3 {
		r := newRig(t)
		for _, id := range ids("w", 5) {
			r.worker(id, 8)
		}
		stores := r.stores(3)
		errs := parallel(40, func(i int) error {
			_, err := stores[i%3].Place(t.Context(), start(ids("s", 40)[i]))
			return err
		})
		if counts := r.count(errs); counts[""] != 40 {
			t.Errorf("round %d: got %v", round, counts)
		}
		r.placeRefused(berth.CodeAtCapacity, start("one-more"))
	}
}

// hold keeps what a statement locks until the returned function is called.
func (r *rig) hold(statement string) (release func()) {
	r.Helper()
	tx, err := r.db.Pool.Begin(r.Context())
	r.ok(err)
	_, err = tx.Exec(r.Context(), statement)
	r.ok(err)
	released := false
	release = func() {
		if !released {
			released = true
			if err := tx.Rollback(context.WithoutCancel(r.Context())); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
				r.Errorf("release: %v", err)
			}
		}
	}
	r.Cleanup(release)
	return release
}

func TestScenario_C03_LockedWorkerRowHindersNoPlacement(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 4)
	r.worker("w2", 4)
	r.hold("select from berth.workers where id = 'w1' for update")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	errs := parallel(8, func(i int) error {
		_, err := r.store.Place(ctx, start(ids("s", 8)[i]))
		return err
	})
	if counts := r.count(errs); counts[""] != 8 {
		t.Errorf("got %v", counts)
	}
}

func TestScenario_C03_LockedSlotIsNeitherTakenNorCalledFull(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 2)
	release := r.hold("select from berth.slots where ordinal = 1 for update")
	if placed := r.place(start("a")); !placed.Created {
		t.Errorf("got %+v", placed)
	}
	results, err := r.store.ClaimSessions(t.Context(), []berth.Start{start("b")})
	if err != nil || !results[0].Contended || results[0].Err != nil {
		t.Errorf("got %+v, %v: a refusal would not be true", results, err)
	}
	impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.store.Place(impatient, start("b")); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	placed := make(chan error)
	go func() {
		_, err := r.store.Place(t.Context(), start("b"))
		placed <- err
	}()
	release()
	r.ok(<-placed)
	r.placeRefused(berth.CodeAtCapacity, start("c"))
}

// mostAtOnce is the largest number of a tenant's sessions that lived at one time. Both times are taken under the lock
// of the tenant.
const mostAtOnce = `
select coalesce(max(n), 0)::int from (
    select sum(d) over (order by at, d) as n from (
        select created_at as at, 1 as d from berth.sessions where tenant_id = $1
        union all
        select ended_at, -1 from berth.sessions where tenant_id = $1 and ended_at is not null) edges) levels`

func TestScenario_C05_QuotaHoldsUnderParallelStartsAndEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.quota("t1", 5)
	r.tenant("t2")
	r.worker("w1", 64)
	r.worker("w2", 64)
	stores := r.stores(3)
	errs := parallel(100, func(i int) error {
		_, err := stores[i%3].Place(t.Context(), start(ids("s", 100)[i]))
		return err
	})
	counts := r.count(errs)
	if counts[""] != 5 || counts[berth.CodeConcurrentSessions] != 95 || r.live("t1") != 5 {
		t.Errorf("got %v, %d live", counts, r.live("t1"))
	}
	errs = parallel(90, func(i int) error {
		switch id := fmt.Sprintf("r%d", i); i % 3 {
		case 0: // another tenant is not affected
			_, err := stores[0].Place(t.Context(), startOf("t2", id))
			return err
		case 1:
			_, err := stores[1].Place(t.Context(), start(id))
			return err
		default:
			_, err := stores[2].EndSession(t.Context(), "t1", ids("s", 100)[i])
			if berth.RefusalCode(err) == berth.CodeNotFound {
				return nil // it was refused above
			}
			return err
		}
	})
	if counts := r.count(errs); counts[berth.CodeAtCapacity] != 0 || r.live("t2") != 30 {
		t.Errorf("got %v, the other tenant has %d", counts, r.live("t2"))
	}
	if most := read[int](r, mostAtOnce, "t1"); most != 5 {
		t.Errorf("%d sessions at one time", most)
	}
}

func TestScenario_C05_BatchesOfManyTenantsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tenants := ids("tenant", 6)
	for _, id := range tenants {
		r.quota(id, 5)
	}
	r.worker("w1", 64)
	stores := r.stores(3)
	errs := parallel(24, func(i int) error {
		var batch []berth.Start
		for j := range 12 { // every batch in another order
			batch = append(batch, startOf(tenants[(i*5+j*(1+i%2*4))%6], fmt.Sprintf("s%d-%d", i%4, j)))
		}
		for len(batch) > 0 {
			results, err := stores[i%3].ClaimSessions(t.Context(), batch)
			if err != nil {
				return err
			}
			var again []berth.Start
			for j, result := range results {
				if result.Contended {
					again = append(again, batch[j])
				} else if result.Err != nil && berth.RefusalCode(result.Err) != berth.CodeConcurrentSessions {
					return result.Err
				}
			}
			batch = again
		}
		return nil
	})
	r.ok(errors.Join(errs...))
	for _, id := range tenants {
		if live, most := r.live(id), read[int](r, mostAtOnce, id); live != 5 || most != 5 {
			t.Errorf("%s has %d live, %d at most", id, live, most)
		}
	}
}

func TestScenario_C10_NothingLandsOnAWorkerThatDrains(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 400)
	r.worker("w2", 500) // has room for all that come, however early the drain is
	stores := r.stores(2)
	half := make(chan struct{})
	errs := parallel(9, func(i int) error {
		if i == 8 {
			<-half
			_, err := r.store.DrainWorker(t.Context(), "w1", time.Minute, false)
			if err == nil {
				_, err = r.db.Pool.Exec(t.Context(), "create table drained as select clock_timestamp() as at")
			}
			return err
		}
		for j := range 60 {
			if i == 0 && j == 30 {
				close(half)
			}
			if _, err := stores[i%2].Place(t.Context(), start(fmt.Sprintf("s%d-%d", i, j))); err != nil {
				return err
			}
		}
		return nil
	})
	r.ok(errors.Join(errs...))
	late := read[int](r, `select count(*)::int from berth.sessions s, drained d
		where s.worker_id = 'w1' and s.placed_at > d.at`)
	before := read[int](r, `select count(*)::int from berth.sessions where worker_id = 'w1'`)
	if late > 0 || before == 0 {
		t.Errorf("%d of %d landed after the drain", late, before)
	}
}

func TestScenario_C18_OneConnectionIsEnough(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 16)
	single := openStore(t, r.db, postgres.Config{PoolSize: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	errs := parallel(51, func(i int) error {
		if i == 50 {
			_, err := single.WithReaperLock(ctx, func(ctx context.Context) error {
				_, err := single.EndOverdue(ctx, 10)
				return err
			})
			return err
		}
		placed, err := single.Place(ctx, start(ids("s", 8)[i%8]))
		if err != nil {
			return err
		}
		if _, err := single.ConnectPeer(ctx, connectOf(placed.Session, "p1", "c")); err != nil &&
			!errors.Is(err, berth.ErrStale) && berth.RefusalCode(err) != berth.CodeSessionEnded {
			return err
		}
		_, err = single.EndSession(ctx, "t1", placed.Session.ID)
		return err
	})
	r.ok(errors.Join(errs...))
}
