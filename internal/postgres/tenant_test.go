package postgres_test

import (
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
