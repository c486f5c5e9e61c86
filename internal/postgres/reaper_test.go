package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

const blindAfter = 2 * time.Second

func (r *rig) tick() berth.Tick {
	r.Helper()
	tick, err := r.store.BeginTick(r.Context(), blindAfter, lease)
	r.ok(err)
	return tick
}

// look is what a tick sees of one worker.
func (r *rig) look(tick berth.Tick, id string) berth.Sighting {
	r.Helper()
	view, err := r.store.Look(r.Context(), berth.Look{Tick: tick.Number, Presence: true})
	r.ok(err)
	for _, s := range view.Workers {
		if s.WorkerID == id {
			return s
		}
	}
	r.Fatalf("%s was not seen in %+v", id, view)
	return berth.Sighting{}
}

func (r *rig) openGap(tick berth.Tick, w instance, evidence string) {
	r.Helper()
	r.ok(r.store.OpenGap(r.Context(), tick.Number, w.id, w.number, evidence, time.Second))
}

func (r *rig) markLost(tick berth.Tick, w instance) bool {
	r.Helper()
	lost, err := r.store.MarkLost(r.Context(), tick.Number, w.id, w.number, "probe_refused")
	r.ok(err)
	return lost
}

func TestReaperIsBlindAtFirstAndAfterALongPause(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 1)
	first, second := r.tick(), r.tick()
	if !first.Blind || second.Blind || second.Number != first.Number+1 {
		t.Errorf("got %+v then %+v", first, second)
	}
	for name, change := range map[string]string{
		"looked long ago":       "update berth.reaper_state set last_look_at = clock_timestamp() - interval '3 seconds'",
		"the clock went back":   "update berth.reaper_state set last_look_at = clock_timestamp() + interval '1 hour'",
		"the server is another": "update berth.reaper_state set server_start = server_start - interval '1 day'",
	} {
		r.late("w1")
		r.openGap(r.tick(), w, "test")
		r.exec(change)
		tick := r.tick()
		got := r.look(tick, "w1")
		if !tick.Blind || got.GapOpen || got.Late > -5*time.Second {
			t.Errorf("%s: tick %+v sees %+v: want no gap and a full lease", name, tick, got)
		}
	}
}

func TestBlindTickShortensNoLease(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 1)
	_, err := r.store.Renew(t.Context(), berth.Renewal{WorkerID: "w1", Instance: w.number, Lease: time.Hour})
	r.ok(err)
	if got := r.look(r.tick(), "w1"); got.Late > -59*time.Minute {
		t.Errorf("got %+v", got)
	}
}

func TestGenerationsJumpOnAnotherTimeline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 2)
	r.tick()
	before := r.place(start("a")).Session.Generation
	r.exec("update berth.reaper_state set timeline = 'another'")
	r.tick()
	if after := r.place(start("b")).Session.Generation; after < before+1<<20 {
		t.Errorf("from %d to %d", before, after)
	}
	r.tick()
	if again := r.place(startOf("t1", "a")).Session.Generation; again != before {
		t.Errorf("the live session is at %d", again)
	}
}

func TestOvertakenTickHasNoSay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 1)
	r.vanish(w)
	old := r.tick()
	r.openGap(old, w, "test")
	current := r.tick()
	if _, err := r.store.Look(t.Context(), berth.Look{Tick: old.Number, Presence: true}); !errors.Is(err, berth.ErrStale) {
		t.Errorf("look: %v", err)
	}
	if r.markLost(old, w) {
		t.Error("an overtaken tick declared a worker lost")
	}
	r.openGap(current, w, "test")
	r.ok(r.store.ClearGap(t.Context(), old.Number, w.id, w.number))
	if got := r.look(current, "w1"); !got.GapOpen {
		t.Error("an overtaken tick cleared a gap")
	}
	r.ok(r.store.ClearGap(t.Context(), current.Number, w.id, w.number))
	r.openGap(old, w, "test")
	if got := r.look(current, "w1"); got.GapOpen {
		t.Error("an overtaken tick opened a gap")
	}
	r.late("w1")
	if cordoned, err := r.store.CordonLate(t.Context(), old.Number, w.id, w.number); err != nil || cordoned {
		t.Errorf("cordon: %v, %v", cordoned, err)
	}
}

func TestLookSeesPresenceLeaseAndGap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 1)
	gone := r.worker("w2", 1)
	r.ok(r.store.Leave(t.Context(), gone.id, gone.number))
	tick := r.tick()
	got := r.look(tick, "w1")
	if got.Instance != w.number || !got.Present || got.Late > 0 || got.GapOpen || got.Cordoned || got.ControlURL != "http://w1" ||
		got.State != berth.WorkerReady {
		t.Errorf("well: %+v", got)
	}
	r.vanish(w)
	r.openGap(tick, w, "test")
	r.exec("update berth.gaps set opened_at = opened_at - interval '3 seconds'")
	r.late("w1")
	got = r.look(tick, "w1")
	if got.Present || got.Late < time.Second || !got.GapOpen || got.GapAge < 3*time.Second {
		t.Errorf("missing: %+v", got)
	}
	if got.GapUnseen != time.Second {
		t.Errorf("unseen for %v when the gap opened", got.GapUnseen)
	}
	for _, fresh := range []bool{false, true} {
		view, err := r.store.Look(t.Context(), berth.Look{Tick: tick.Number, Presence: true, Fresh: fresh})
		if err != nil || len(view.Workers) != 1 || view.Workers[0].Present {
			t.Errorf("fresh %v: who left is still looked at, or who is gone is present: %+v, %v", fresh, view, err)
		}
		view, err = r.store.Look(t.Context(), berth.Look{Tick: tick.Number, Fresh: fresh})
		if err != nil || len(view.Workers) != 1 || !view.Workers[0].Present {
			t.Errorf("fresh %v: locks were read, or not assumed: %+v, %v", fresh, view, err)
		}
	}
}

func TestLossTakesTheWorkerOutAtOnceAndItsSessionsInChunks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 4)
	placed := r.place(start("a")).Session
	r.vanish(w)
	tick := r.tick()
	if r.markLost(tick, w) {
		t.Fatal("lost without a gap")
	}
	r.openGap(tick, w, "presence_gone")
	if !r.markLost(tick, w) || r.markLost(tick, w) {
		t.Fatal("not lost once")
	}
	worker, err := r.store.Worker(t.Context(), "w1")
	if err != nil || worker.State != berth.WorkerLost || !worker.LeaseExpiresAt.IsZero() {
		t.Errorf("got %+v, %v", worker, err)
	}
	r.placeRefused(berth.CodeAtCapacity, start("b"))
	answer, err := r.store.Renew(t.Context(), berth.Renewal{WorkerID: "w1", Instance: w.number, Lease: lease})
	if err != nil || answer.Verdict != berth.RenewalOver {
		t.Errorf("it renews: %+v, %v", answer, err)
	}
	r.expect(placed.Key, berth.SessionAssigned, "")
	unfinished, err := r.store.Unfinished(t.Context())
	if err != nil || len(unfinished) != 1 || unfinished[0].Instance != w.number {
		t.Errorf("got %+v, %v", unfinished, err)
	}
	n, err := r.store.DisplaceLost(t.Context(), "w1", w.number, 10)
	if err != nil || n != 1 {
		t.Errorf("displaced %d, %v", n, err)
	}
	evidence := read[string](r, "select evidence from berth.gaps where confirmed_at is not null")
	if evidence != "presence_gone; probe_refused" {
		t.Errorf("evidence %q", evidence)
	}
}

func TestRenewalAfterTheGapOpenedIsAnAcquittal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 1)
	tick := r.tick()
	r.openGap(tick, w, "test")
	_, err := r.store.Renew(t.Context(), berth.Renewal{WorkerID: "w1", Instance: w.number, Lease: lease})
	r.ok(err)
	if got := r.look(tick, "w1"); got.GapOpen || r.markLost(tick, w) {
		t.Errorf("got %+v", got)
	}
	// Also if the renewal saw no gap yet: it only moved the lease.
	r.openGap(tick, w, "test")
	r.exec("update berth.worker_leases set renewed_at = clock_timestamp()")
	if r.markLost(tick, w) {
		t.Error("lost, though it renewed since")
	}
}

func TestGapOfAnOldInstanceDoesNotShieldTheNewOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.worker("w1", 1)
	r.vanish(old)
	tick := r.tick()
	current := r.workerIn("eu", "w1", 1)
	r.openGap(tick, old, "late look") // by a look that the registration overtook
	r.vanish(current)
	r.openGap(tick, current, "presence_gone")
	if got := r.look(tick, "w1"); !got.GapOpen {
		t.Errorf("got %+v", got)
	}
	if r.markLost(tick, old) || !r.markLost(tick, current) {
		t.Error("want the current instance lost, and not the old one")
	}
}

func TestLateWorkerIsCordonedUntilItRenews(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 2)
	placed := r.place(start("a")).Session
	tick := r.tick()
	cordon := func() bool {
		t.Helper()
		cordoned, err := r.store.CordonLate(t.Context(), tick.Number, w.id, w.number)
		r.ok(err)
		return cordoned
	}
	if cordon() {
		t.Error("cordoned though its lease runs")
	}
	r.late("w1")
	if !cordon() || cordon() {
		t.Error("not cordoned once")
	}
	got, err := r.store.Worker(t.Context(), "w1")
	if err != nil || got.CordonedReason != berth.CordonLeaseLate || got.State != berth.WorkerReady || got.Free() != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	r.placeRefused(berth.CodeAtCapacity, start("b"))
	r.expect(placed.Key, berth.SessionAssigned, "")
	_, err = r.store.DrainWorker(t.Context(), "w1", time.Hour, false)
	r.ok(err)
	_, err = r.store.UndrainWorker(t.Context(), "w1")
	r.ok(err)
	r.placeRefused(berth.CodeAtCapacity, start("b")) // an undo of the drain is none of the cordon
	_, err = r.store.Renew(t.Context(), berth.Renewal{WorkerID: "w1", Instance: w.number, Lease: lease})
	r.ok(err)
	r.place(start("b"))
}

func TestOneActorAtATime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stores := r.stores(2)
	ran, err := stores[0].WithReaperLock(t.Context(), func(ctx context.Context) error {
		for name, other := range map[string]int{"this process": 0, "another": 1} {
			ran, err := stores[other].WithReaperLock(ctx, func(context.Context) error { return nil })
			if err != nil || ran {
				t.Errorf("%s acted too: %v, %v", name, ran, err)
			}
		}
		return nil
	})
	if err != nil || !ran {
		t.Errorf("got %v, %v", ran, err)
	}
	failure := errors.New("act failed")
	ran, err = stores[1].WithReaperLock(t.Context(), func(context.Context) error { return failure })
	if !ran || !errors.Is(err, failure) {
		t.Errorf("got %v, %v", ran, err)
	}
	if ran, err = stores[0].WithReaperLock(t.Context(), func(context.Context) error { return nil }); err != nil || !ran {
		t.Errorf("the lock is not free: %v, %v", ran, err)
	}
}

func TestHistoryIsPurgedByAge(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 1)
	tick := r.tick()
	for range 2 {
		r.openGap(tick, w, "test")
		r.ok(r.store.ClearGap(t.Context(), tick.Number, w.id, w.number))
	}
	r.openGap(tick, w, "still open")
	r.ok(r.store.AddRefusals(t.Context(), []berth.RefusalCount{{TenantID: "t1", Code: berth.CodeAtCapacity, Refusals: 1}}))
	r.ok(r.store.PurgeHistory(t.Context(), time.Hour))
	history := "select (select count(*) from berth.gaps)::int + (select count(*) from berth.refusal_counts)::int"
	if n := read[int](r, history); n != 4 {
		t.Errorf("%d rows", n)
	}
	r.exec("update berth.gaps set opened_at = opened_at - interval '2 hours'")
	r.exec("update berth.refusal_counts set minute = minute - interval '2 hours'")
	r.ok(r.store.PurgeHistory(t.Context(), time.Hour))
	if n := read[int](r, history); n != 1 {
		t.Errorf("%d rows, want the open gap", n)
	}
}
