package postgres_test

import (
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

func TestLabelsAndSoftCordonAreRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.newInstance("w1")
	_, err := r.store.Register(t.Context(), berth.Registration{
		WorkerID: w.id, Instance: w.number, Region: "eu", Capacity: 1, SignalingURL: "ws://w1", ControlURL: "http://w1",
		Labels: map[string]string{"gpu": "a10", "zone": "b"}, Lease: lease,
	})
	r.ok(err)
	r.exec("update berth.workers set suspect_reason = 'odd'")
	got, err := r.store.Worker(t.Context(), "w1")
	if err != nil || len(got.Labels) != 2 || got.Labels["gpu"] != "a10" || got.SuspectReason != "odd" {
		t.Errorf("got %+v, %v", got, err)
	}
	r.worker("w2", 1)
	if got, err := r.store.Worker(t.Context(), "w2"); err != nil || len(got.Labels) != 0 || got.SuspectReason != "" {
		t.Errorf("without labels: got %+v, %v", got, err)
	}
}

// established makes workers ones that have been open for an hour.
func (r *rig) established(n, capacity int) {
	r.Helper()
	for _, id := range ids("old", n) {
		r.worker(id, capacity)
	}
	r.exec("update berth.workers set ready_at = ready_at - interval '1 hour', registered_at = registered_at - interval '1 hour'")
}

// newcomer opens a worker that starts slowly.
func (r *rig) newcomer(id string, capacity int, slowStart time.Duration) instance {
	r.Helper()
	w := r.newInstance(id)
	held, err := r.register(w, "eu", capacity)
	if err != nil || held {
		r.Fatalf("register %s: held %v, %v", id, held, err)
	}
	r.ok(openStore(r.T, r.db, postgres.Config{SlowStart: slowStart}).Open(r.Context(), id, w.number))
	return w
}

// passed lets a part of the slow start of a worker pass.
func (r *rig) passed(id string, seconds int) {
	r.Helper()
	r.exec(`update berth.workers set ready_at = ready_at - make_interval(secs => $2),
		slow_start_until = slow_start_until - make_interval(secs => $2) where id = $1`, id, seconds)
	r.ok(r.store.WarmWorkers(r.Context()))
}

func (r *rig) placeMany(prefix string, n int) {
	r.Helper()
	for _, id := range ids(prefix, n) {
		r.place(start(id))
	}
}

func TestNewWorkerBesideOthersStartsSlowly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.established(2, 20)
	r.placeMany("a", 10)
	r.newcomer("new", 20, 100*time.Second)
	r.placeMany("b", 10)
	if got := r.loads()["new"]; got != 1 {
		t.Errorf("at its start it has %d sessions, want 1: its share so far", got)
	}
	r.passed("new", 20)
	r.placeMany("c", 10)
	if got := r.loads()["new"]; got < 4 || got > 5 {
		t.Errorf("after a fifth of its slow start it has %d sessions, want a fifth of 20 slots", got)
	}
	r.passed("new", 80)
	if left := read[int](r, "select count(*)::int from berth.workers where slow_start_until is not null"); left != 0 {
		t.Error("the slow start does not end")
	}
	r.placeMany("d", 15)
	if r.spread() > 1 {
		t.Errorf("after its slow start: %v", r.loads())
	}
}

func TestSlowStartRefusesNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.established(1, 3)
	r.newcomer("new", 4, 10*time.Minute)
	r.placeMany("a", 7)
	r.placeRefused(berth.CodeAtCapacity, start("b"))
}

func TestWorkersThatStartTogetherStartAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range ids("w", 3) {
		r.newcomer(id, 8, 10*time.Minute)
	}
	r.placeMany("a", 12)
	if r.spread() != 0 {
		t.Errorf("got %v", r.loads())
	}
}

func TestSlowStartPassesOverLockedSlotsAndComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.established(1, 2)
	r.newcomer("new", 4, 10*time.Minute)
	tx, err := r.db.Pool.Begin(t.Context())
	r.ok(err)
	_, err = tx.Exec(t.Context(), "select from berth.slots where worker_id = 'new' and ordinal = 4 for update")
	r.ok(err)
	r.passed("new", 600)
	cold := func() int { return read[int](r, "select count(*)::int from berth.slots where handicap > 0") }
	if n := cold(); n != 1 {
		t.Errorf("%d slots are handicapped, want the locked one", n)
	}
	r.ok(tx.Rollback(t.Context()))
	r.ok(r.store.WarmWorkers(t.Context()))
	if n := cold(); n != 0 {
		t.Errorf("%d slots are still handicapped", n)
	}
}

// noShows places n sessions that nobody reaches on w, behind the store's back as to the clock.
func (r *rig) noShows(w string, n int) {
	r.Helper()
	for _, id := range ids("lost-"+w, n) {
		placed := r.place(start(id)).Session
		for placed.WorkerID != w {
			r.connect(placed, "c") // this one is well
			id += "x"
			placed = r.place(start(id)).Session
		}
		r.exec("update berth.sessions set connect_by = clock_timestamp() - interval '1 ms' where key = $1", int64(placed.Key))
		_, err := r.store.EndOverdue(r.Context(), 100)
		r.ok(err)
	}
}

// everybodyServes gives each of n idle workers a session, so that each has a rate to be compared by.
func (r *rig) everybodyServes(n int) {
	r.Helper()
	for _, id := range ids("well", n) {
		r.connect(r.place(start(id)).Session, "c")
	}
}

func (r *rig) judge() []berth.Suspicion {
	r.Helper()
	verdicts, err := r.store.JudgeWorkers(r.Context(), 10*time.Minute, 5)
	r.ok(err)
	return verdicts
}

func TestWorkerThatNobodyReachesIsUsedLast(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range []string{"bad", "w1", "w2"} {
		r.worker(id, 20)
	}
	if got := r.judge(); len(got) != 0 {
		t.Errorf("nobody was bad: %+v", got)
	}
	r.everybodyServes(3)
	r.noShows("bad", 6)
	got := r.judge()
	if len(got) != 1 || got[0] != (berth.Suspicion{WorkerID: "bad", Suspect: true, Faults: 6}) {
		t.Fatalf("got %+v", got)
	}
	if got := r.judge(); len(got) != 0 {
		t.Errorf("said twice: %+v", got)
	}
	before := r.loads()
	room := 40 - before["w1"] - before["w2"]
	r.placeMany("a", room)
	if loads := r.loads(); loads["bad"] != before["bad"] {
		t.Errorf("a suspect was chosen while others had room: %v", loads)
	}
	r.placeMany("b", 20-before["bad"])
	r.placeRefused(berth.CodeAtCapacity, start("c"))

	r.exec("update berth.worker_faults set at = at - interval '10 minutes'")
	if got := r.judge(); len(got) != 1 || got[0] != (berth.Suspicion{WorkerID: "bad"}) {
		t.Fatalf("after ten minutes: %+v", got)
	}
	if n := read[int](r, "select count(*)::int from berth.slots where handicap > 0"); n != 0 {
		t.Errorf("%d slots are still handicapped", n)
	}
}

func TestNobodyIsSuspectWhereAllAreAlike(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 8)
	r.noShows("w1", 9) // alone: there is nobody to compare with
	if got := r.judge(); len(got) != 0 {
		t.Errorf("alone: %+v", got)
	}
	r.worker("w2", 8)
	r.noShows("w2", 8)
	if got := r.judge(); len(got) != 0 {
		t.Errorf("of two alike: %+v", got)
	}
}

// The fullest worker of a packed fleet has the most sessions and so the most faults.
func TestWorkerIsNotSuspectForHavingMostSessions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range []string{"w1", "w2"} {
		r.worker(id, 60)
	}
	r.noShows("w1", 2)
	r.noShows("w2", 2)
	r.exec("update berth.workers set cordoned_reason = 'test' where id = 'w2'")
	r.exec("select berth.set_open('w2')")
	r.placeMany("busy", 40)
	r.noShows("w1", 4)
	r.exec("update berth.workers set cordoned_reason = null where id = 'w2'")
	r.exec("select berth.set_open('w2')")
	if got := r.judge(); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestRestartClearsASuspect(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	bad := r.worker("bad", 20)
	r.worker("w1", 20)
	r.everybodyServes(2)
	r.noShows("bad", 6)
	if got := r.judge(); len(got) != 1 {
		t.Fatalf("got %+v", got)
	}
	r.vanish(bad)
	r.worker("bad", 20)
	if got := r.judge(); len(got) != 0 || read[int](r, "select count(*)::int from berth.slots where handicap > 0") != 0 {
		t.Errorf("a new instance is held to what the old one did: %+v", got)
	}
}
