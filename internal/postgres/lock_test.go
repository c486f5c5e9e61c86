package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
)

// Somebody in psql holds what belongs to one tenant, session or worker. That delays its own, and nobody else.
func TestLockedRowDelaysItsOwnOnly(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]string{
		"tenant":           "select from berth.tenants where id = 't1' for update",
		"tenant's lanes":   "select from berth.tenant_lanes where tenant_id = 't1' for update",
		"session":          "select from berth.sessions where id = 'mine' for update",
		"worker":           "select from berth.workers where id = 'w1' for update",
		"session's slots":  "select from berth.slots where session = (select key from berth.sessions where id = 'mine') for update",
		"one free slot":    "select from berth.slots where worker_id = 'w1' and session is null order by ordinal limit 1 for update",
		"tenant's bucket":  "select from berth.start_buckets where tenant_id = 't1' for update",
		"key of a session": "select pg_advisory_xact_lock(hashtextextended('t1/mine', 0))",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.ok(r.store.SetTenant(t.Context(), berth.Tenant{ID: "t1", StartRate: 1000, StartBurst: 1000}))
			r.tenant("t2")
			r.worker("w1", 8)
			r.worker("w2", 8)
			r.place(start("mine"))
			release := r.hold(held)
			defer release()
			own := make(chan error, 2)
			go func() {
				_, err := r.store.EndSession(t.Context(), "t1", "mine")
				own <- err
			}()
			go func() {
				_, err := r.store.Place(t.Context(), start("mine"))
				own <- err
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			for i := range 12 { // in batches with those that wait
				_, err := r.store.Place(ctx, startOf("t2", "other"))
				if err == nil {
					_, err = r.store.EndSession(ctx, "t2", "other")
				}
				if err != nil {
					t.Fatalf("start %d of another tenant: %v", i, err)
				}
			}
			release()
			r.ok(errors.Join(<-own, <-own))
		})
	}
}

// A caller that leaves is not placed, or what it was given is free again at once.
func TestScenario_F20_CallersThatLeaveCostNothing(t *testing.T) {
	t.Parallel()
	const callers = 300
	r := newRig(t)
	r.worker("w1", 400)
	stores := r.stores(2)
	errs := parallel(callers, func(i int) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%50)*6*time.Millisecond)
		defer cancel()
		_, err := stores[i%2].Place(ctx, start(ids("s", callers)[i]))
		return err
	})
	answered := 0
	for i, err := range errs {
		switch {
		case err == nil:
			answered++
			_, err := r.store.EndSession(t.Context(), "t1", ids("s", callers)[i])
			r.ok(err)
		case !errors.Is(err, berth.ErrUnavailable): // a deadline that passed; that is no fault of the database
			t.Errorf("caller %d: %v", i, err)
		}
	}
	r.settled(400)
	for i, store := range stores {
		testkit.EventuallyTrue(t, 10*time.Second, fmt.Sprintf("store %d holds connections", i), func() bool {
			return store.Pool().Stat().AcquiredConns() == 0
		})
	}
	t.Logf("%d of %d callers stayed for their answer", answered, callers)
}
