package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

func startThat(id string, onLoss berth.OnWorkerLoss) berth.Start {
	s := start(id)
	s.OnWorkerLoss = onLoss
	return s
}

func TestDisplacedSessionsDoWhatTheyAskedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 4)
	rejoin := r.place(startThat("rejoin", berth.LossRejoin)).Session
	replace := r.place(startThat("replace", berth.LossReplace)).Session
	end := r.place(startThat("end", berth.LossEnd)).Session
	r.connect(rejoin, "c1")
	n, err := r.store.DisplaceLost(t.Context(), w.id, w.number, 100)
	if err != nil || n != 3 {
		t.Fatalf("displaced %d, %v", n, err)
	}
	r.expect(end.Key, berth.SessionEnded, berth.EndedWorkerLost)
	r.expect(replace.Key, berth.SessionAwaitingRejoin, "")
	got := r.session(rejoin.Key)
	if got.State != berth.SessionAwaitingRejoin || got.WorkerID != "" || got.LastWorkerID != "w1" ||
		got.Generation != rejoin.Generation || !got.ConnectBy.IsZero() {
		t.Errorf("got %+v", got)
	}
	if window := read[float64](r, "select extract(epoch from rejoin_by - clock_timestamp())::float8 from berth.sessions where key = $1",
		int64(rejoin.Key)); window < 50 || window > 60 {
		t.Errorf("rejoin window of %v s", window)
	}
	if connected := read[int](r, "select count(connection_id)::int from berth.peers"); connected != 0 {
		t.Errorf("%d peers still connected", connected)
	}
	if r.live("t1") != 2 || r.free() != 4 {
		t.Errorf("%d live, %d free", r.live("t1"), r.free())
	}
}

func TestReplacementIsPlacedElsewhereAtOnceOrLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 2)
	placed := r.displaced(w, startThat("a", berth.LossReplace))
	waits := r.displaced(w, startThat("b", berth.LossRejoin))
	r.ok(r.store.Leave(t.Context(), w.id, w.number))
	if n, err := r.store.ReplaceLost(t.Context(), 10); err != nil || n != 0 {
		t.Errorf("no slot, but replaced %d, %v", n, err)
	}
	r.worker("w2", 2)
	if n, err := r.store.ReplaceLost(t.Context(), 10); err != nil || n != 1 {
		t.Errorf("replaced %d, %v", n, err)
	}
	if got := r.session(placed.Key); got.WorkerID != "w2" || got.Generation <= placed.Generation {
		t.Errorf("got %+v", got)
	}
	r.expect(waits.Key, berth.SessionAwaitingRejoin, "")
}

func TestDisplacementTakesChunksAndOnlyWhatIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 8)
	var keys []berth.SessionKey
	for _, id := range ids("s", 6) {
		keys = append(keys, r.place(start(id)).Session.Key)
	}
	r.ok(r.store.Displace(t.Context(), w.id, w.number, keys[:1]))
	r.ok(r.store.Displace(t.Context(), w.id, w.number-1, keys)) // an instance before owns none of them
	r.ok(r.store.Displace(t.Context(), w.id, w.number, []berth.SessionKey{}))
	if free := r.free(); free != 3 {
		t.Errorf("%d free, want those of one displaced session and two unused", free)
	}
	for _, want := range []int{4, 1, 0} {
		if n, err := r.store.DisplaceDrained(t.Context(), w.id, w.number, 4); err != nil || n != want {
			t.Errorf("displaced %d, %v; want %d", n, err, want)
		}
	}
	for _, id := range ids("t", 3) {
		r.place(start(id))
	}
	r.ok(r.store.Displace(t.Context(), w.id, w.number, nil)) // all that is there
	if free := r.free(); free != 8 {
		t.Errorf("%d free, want all", free)
	}
}

func TestDrainKeepsSessionsAndTheFirstDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 4)
	placed := r.place(start("a")).Session
	first, err := r.store.DrainWorker(t.Context(), "w1", time.Hour, false)
	if err != nil || first.State != berth.WorkerDraining || first.Used != 1 || first.Free() != 0 {
		t.Fatalf("got %+v, %v", first, err)
	}
	again, err := r.store.DrainWorker(t.Context(), "w1", time.Minute, false)
	if err != nil || !again.DrainDeadline.Equal(first.DrainDeadline) {
		t.Errorf("got %+v, %v; the first deadline was %v", again, err, first.DrainDeadline)
	}
	sooner, err := r.store.DrainWorker(t.Context(), "w1", time.Minute, true)
	if err != nil || !sooner.DrainDeadline.Before(first.DrainDeadline) {
		t.Errorf("got %+v, %v", sooner, err)
	}
	r.placeRefused(berth.CodeAtCapacity, start("b"))
	r.expect(placed.Key, berth.SessionAssigned, "")
	r.connect(placed, "c1") // whoever has a place may still take it
	ready, err := r.store.UndrainWorker(t.Context(), "w1")
	if err != nil || ready.State != berth.WorkerReady || !ready.DrainDeadline.IsZero() || ready.Free() != 3 {
		t.Errorf("got %+v, %v", ready, err)
	}
	r.place(start("b"))
}

func TestDrainOfUnknownAndOfOverWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := r.store.DrainWorker(t.Context(), "nobody", time.Minute, false)
	r.refused(berth.CodeNotFound, err)
	_, err = r.store.UndrainWorker(t.Context(), "nobody")
	r.refused(berth.CodeNotFound, err)
	w := r.worker("w1", 1)
	r.ok(r.store.Leave(t.Context(), w.id, w.number))
	for name, call := range map[string]func() (berth.Worker, error){
		"drain":   func() (berth.Worker, error) { return r.store.DrainWorker(t.Context(), "w1", time.Minute, false) },
		"undrain": func() (berth.Worker, error) { return r.store.UndrainWorker(t.Context(), "w1") },
	} {
		if got, err := call(); err != nil || got.State != berth.WorkerGone {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestWorkerDrainedBeforeItOpenedOpensLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.newInstance("w1")
	held, err := r.register(w, "eu", 2)
	if err != nil || held {
		t.Fatalf("held %v, %v", held, err)
	}
	_, err = r.store.DrainWorker(t.Context(), "w1", time.Minute, false)
	r.ok(err)
	r.ok(r.store.Open(t.Context(), w.id, w.number))
	r.placeRefused(berth.CodeAtCapacity, start("a"))
	_, err = r.store.UndrainWorker(t.Context(), "w1")
	r.ok(err)
	r.place(start("a"))
}

func TestOverdueDrainsAreListedAfterTheirGrace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 1)
	r.worker("w2", 1)
	placed := r.place(start("a")).Session
	for _, id := range []string{"w1", "w2"} {
		_, err := r.store.DrainWorker(t.Context(), id, time.Minute, false)
		r.ok(err)
	}
	overdue := func(grace time.Duration) (found []string) {
		t.Helper()
		list, err := r.store.OverdueDrains(t.Context(), grace)
		r.ok(err)
		for _, s := range list {
			found = append(found, s.WorkerID)
		}
		return found
	}
	equal(r, overdue(0), nil)
	r.exec("update berth.workers set drain_deadline = clock_timestamp() - interval '2 seconds'")
	equal(r, overdue(time.Minute), nil)
	equal(r, overdue(time.Second), []string{placed.WorkerID})
}

func TestLeavingWorkerGivesUpWhatItHas(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 3)
	rejoin, end := r.place(start("a")).Session, r.place(startThat("b", berth.LossEnd)).Session
	r.ok(r.store.Leave(t.Context(), w.id, w.number))
	r.expect(rejoin.Key, berth.SessionAwaitingRejoin, "")
	r.expect(end.Key, berth.SessionEnded, berth.EndedDrained)
	r.placeRefused(berth.CodeAtCapacity, start("c"))
	left, err := r.store.Worker(t.Context(), "w1")
	if err != nil || left.State != berth.WorkerGone || left.Used != 0 || !left.RenewedAt.IsZero() {
		t.Errorf("got %+v, %v", left, err)
	}
	if slots := read[int](r, "select count(*)::int from berth.slots"); slots != 0 {
		t.Errorf("%d slots left", slots)
	}
	r.ok(r.store.Leave(t.Context(), w.id, w.number))
}

func TestScenario_C11_OnlyAnUnavailableWorkerIsNeverPicked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 8)
	lost := r.displaced(w, start("lost"))
	_, err := r.store.DrainWorker(t.Context(), "w1", time.Minute, false)
	r.ok(err)
	refusedTo := func(what string) {
		t.Helper()
		errs := parallel(20, func(i int) error {
			if i%2 == 0 {
				_, err := r.rejoin(lost, true)
				return err
			}
			_, err := r.store.Place(t.Context(), start(ids("s", 20)[i]))
			return err
		})
		if counts := r.count(errs); counts[berth.CodeAtCapacity] != 20 {
			t.Errorf("%s: got %v", what, counts)
		}
	}
	refusedTo("draining")
	tick, err := r.store.BeginTick(t.Context(), lease, lease)
	r.ok(err)
	r.ok(r.store.OpenGap(t.Context(), tick.Number, w.id, w.number, "test", 0))
	gone, err := r.store.MarkLost(t.Context(), tick.Number, w.id, w.number, "test")
	if err != nil || !gone {
		t.Fatalf("mark lost: %v, %v", gone, err)
	}
	refusedTo("lost")
}

func TestRejoinWindowIsConfigured(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 1)
	hasty := openStore(t, r.db, postgres.Config{RejoinWindow: 5 * time.Second, ConnectWindow: 7 * time.Second})
	placed, err := hasty.Place(t.Context(), start("a"))
	r.ok(err)
	if window := placed.Session.ConnectBy.Sub(placed.Session.CreatedAt); window != 7*time.Second {
		t.Errorf("connect window of %v", window)
	}
	_, err = hasty.DisplaceLost(t.Context(), w.id, w.number, 1)
	r.ok(errors.Join(err))
	if left := read[float64](r, "select extract(epoch from rejoin_by - clock_timestamp())::float8 from berth.sessions"); left > 5 {
		t.Errorf("rejoin window of %v s", left)
	}
}
