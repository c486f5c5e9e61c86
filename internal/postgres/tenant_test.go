package postgres_test

import (
	"errors"
	"testing"

	"github.com/berthdev/berth/internal/berth"
)

func TestTenantsAreSetReadAndListed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 2)
	most := 7
	r.ok(r.store.SetTenant(t.Context(), berth.Tenant{ID: "t0", DefaultRegion: "eu", MaxConcurrentSessions: &most}))
	r.place(startOf("t0", "a"))
	got, err := r.store.Tenant(t.Context(), "t0")
	if err != nil || got.DefaultRegion != "eu" || *got.MaxConcurrentSessions != 7 || got.LiveSessions != 1 || got.CreatedAt.IsZero() {
		t.Errorf("got %+v, %v", got, err)
	}
	r.ok(r.store.SetTenant(t.Context(), berth.Tenant{ID: "t0"}))
	got, err = r.store.Tenant(t.Context(), "t0")
	if err != nil || got.DefaultRegion != "" || got.MaxConcurrentSessions != nil || got.LiveSessions != 1 {
		t.Errorf("changed: got %+v, %v", got, err)
	}
	all, err := r.store.Tenants(t.Context())
	if err != nil || len(all) != 2 || all[0].ID != "t0" || all[1].ID != "t1" {
		t.Errorf("got %+v, %v", all, err)
	}
	_, err = r.store.Tenant(t.Context(), "nobody")
	r.refused(berth.CodeNotFound, err)
	refusal := r.refused(berth.CodeInvalidArgument, r.store.SetTenant(t.Context(), berth.Tenant{ID: "t2", DefaultRegion: "mars"}))
	if refusal.Fields[0].Field != "default_region" {
		t.Errorf("got %+v", refusal)
	}
}

func TestRegionsSpillToKnownRegionsOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.region("us", "eu")
	r.region("eu", "us")
	refusal := r.refused(berth.CodeInvalidArgument, r.store.SetRegion(t.Context(), berth.Region{ID: "eu", Spill: []string{"us", "mars"}}))
	if refusal.Fields[0].Field != "spill" {
		t.Errorf("got %+v", refusal)
	}
	refusal = r.refused(berth.CodeInvalidArgument, r.store.SetRegion(t.Context(), berth.Region{ID: "eu", Spill: []string{"eu"}}))
	if refusal.Fields[0].Field != "spill" {
		t.Errorf("got %+v", refusal)
	}
	refusal = r.refused(berth.CodeInvalidArgument, r.store.SetRegion(t.Context(), berth.Region{ID: "eu", Spill: []string{"us", "us"}}))
	if refusal.Fields[0].Field != "spill" {
		t.Errorf("got %+v", refusal)
	}
	regions, err := r.store.Regions(t.Context())
	if err != nil || len(regions) != 2 || regions[0].ID != "eu" || regions[0].Spill[0] != "us" {
		t.Errorf("got %+v, %v", regions, err)
	}
	r.region("eu")
	regions, err = r.store.Regions(t.Context())
	if err != nil || len(regions[0].Spill) != 0 {
		t.Errorf("got %+v, %v", regions, err)
	}
}

func TestViewsShowPeopleWhatIsSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 3)
	placed := r.place(start("a")).Session
	r.connect(placed, "c1")
	capacity := read[string](r, "select concat_ws(' ', region, workers_ready, slots, used, free) from berth.capacity")
	if capacity != "eu 1 3 1 2" {
		t.Errorf("capacity: %s", capacity)
	}
	placement := read[string](r, "select concat_ws(' ', tenant_id, id, state, worker_id, slot, peers_connected) from berth.placements")
	if placement != "t1 a active w1 1 1" {
		t.Errorf("placements: %s", placement)
	}
	liveness := "select concat_ws(' ', worker_id, state, present, lease_left > interval '0', gap_evidence) from berth.liveness"
	if got := read[string](r, liveness); got != "w1 ready t t" {
		t.Errorf("liveness: %s", got)
	}
	r.vanish(w)
	r.late("w1")
	r.openGap(r.tickAfterLook(), w, "presence_gone")
	if got := read[string](r, liveness); got != "w1 ready f f presence_gone" {
		t.Errorf("liveness: %s", got)
	}
}

// tickAfterLook is a tick that is not blind, so that leases stay as they are.
func (r *rig) tickAfterLook() berth.Tick {
	r.Helper()
	r.exec("update berth.reaper_state set last_look_at = clock_timestamp(), server_start = pg_postmaster_start_time()")
	return r.tick()
}

func TestViolationsAreSeen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 2)
	placed := r.place(start("a")).Session
	for invariant, breach := range map[string]string{
		"slot of none":      "update berth.slots set session = null where session is not null",
		"slot is missing":   "delete from berth.slots where session is null",
		"slot is closed":    "update berth.slots set open = false where session is null",
		"no slot for it":    "update berth.slots set session = null, part = 0",
		"count is off":      "update berth.tenant_lanes set live_sessions = 2 where lane = 0",
		"placed at a drain": "update berth.workers set state = 'draining', drain_started_at = now() - interval '1 hour', drain_deadline = now()",
		"no-show has slot":  "update berth.sessions set connect_by = now() - interval '1 hour'",
	} {
		tx, err := r.db.Pool.Begin(t.Context())
		r.ok(err)
		_, err = tx.Exec(t.Context(), breach)
		r.ok(err)
		var n int
		r.ok(tx.QueryRow(t.Context(), "select count(*) from berth.violations").Scan(&n))
		if n == 0 {
			t.Errorf("%s: not seen", invariant)
		}
		r.ok(tx.Rollback(t.Context()))
	}
	r.expect(placed.Key, berth.SessionAssigned, "")
}

func TestRegionGoesWithItsDeadWorkersOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.region("old")
	w := r.workerIn("old", "w1", 2)
	placed := r.place(start("a")).Session
	use, err := r.store.RemoveRegion(t.Context(), "old")
	if err != nil || use.None() || use.Workers[0] != "w1" {
		t.Errorf("with a worker that is ready: got %+v, %v", use, err)
	}
	r.vanish(w)
	r.ok(r.store.OpenGap(t.Context(), 0, "w1", w.number, "test", 0))
	r.exec("update berth.worker_leases set renewed_at = renewed_at - interval '1 hour'")
	if lost, err := r.store.MarkLost(t.Context(), 0, "w1", w.number, "test"); err != nil || !lost {
		t.Fatalf("lost %v, %v", lost, err)
	}
	if use, err := r.store.RemoveRegion(t.Context(), "old"); err != nil || use.None() {
		t.Errorf("with a worker that is lost and owns a session: got %+v, %v", use, err)
	}
	_, err = r.store.DisplaceLost(t.Context(), "w1", w.number, 10)
	r.ok(err)
	if use, err := r.store.RemoveRegion(t.Context(), "old"); err != nil || !use.None() {
		t.Errorf("with a worker that is over: got %+v, %v", use, err)
	}
	if _, err := r.store.Worker(t.Context(), "w1"); berth.RefusalCode(err) != berth.CodeNotFound {
		t.Errorf("the worker is still there: %v", err)
	}
	r.workerIn("old", "w1", 2)
	if again := r.place(start("a")).Session; again.WorkerID != "w1" || again.Generation <= placed.Generation {
		t.Errorf("in the region that its worker made again: %+v", again)
	}
}

func TestRegionIsNotRemovedUnderRegistrations(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	workers := make([]instance, 8)
	for i, id := range ids("w", len(workers)) {
		workers[i] = r.newInstance(id)
	}
	errs := parallel(2*len(workers), func(i int) error {
		if i%2 == 1 {
			_, err := r.store.RemoveRegion(t.Context(), "busy")
			if berth.RefusalCode(err) == berth.CodeNotFound {
				return nil
			}
			return err
		}
		held, err := r.register(workers[i/2], "busy", 1)
		if held {
			t.Errorf("held although it never was")
		}
		return err
	})
	r.ok(errors.Join(errs...))
	for _, w := range workers {
		r.ok(r.store.Open(t.Context(), w.id, w.number))
	}
	if n := read[int](r, "select count(*)::int from berth.workers where region = 'busy' and state = 'ready'"); n != len(workers) {
		t.Errorf("%d workers are ready", n)
	}
}
