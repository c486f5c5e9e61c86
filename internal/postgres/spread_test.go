package postgres_test

import (
	"testing"

	"github.com/berthdev/berth/internal/berth"
)

// loads are the used slots of each worker.
func (r *rig) loads() map[string]int {
	r.Helper()
	workers, err := r.store.Workers(r.Context())
	r.ok(err)
	loads := map[string]int{}
	for _, w := range workers {
		loads[w.ID] = w.Used
	}
	return loads
}

func (r *rig) spread() int {
	r.Helper()
	least, most := 1<<30, 0
	for _, used := range r.loads() {
		least, most = min(least, used), max(most, used)
	}
	return most - least
}

func TestOneAfterAnotherFillsWorkersEvenly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range ids("w", 10) {
		r.worker(id, 25)
	}
	last := berth.Generation(0)
	for i, id := range ids("s", 200) {
		placed := r.place(start(id)).Session
		if placed.Generation <= last {
			t.Fatalf("generation %d after %d", placed.Generation, last)
		}
		last = placed.Generation
		if i%50 == 49 && r.spread() > 1 {
			t.Errorf("after %d: %v", i+1, r.loads())
		}
	}
}

func TestEvenlyMeansByCapacity(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("large", 12)
	r.worker("small", 4)
	for _, id := range ids("s", 8) {
		r.place(start(id))
	}
	if loads := r.loads(); loads["large"] != 6 || loads["small"] != 2 {
		t.Errorf("got %v, want both half full", loads)
	}
}

func TestBatchesFillWorkersEvenly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range ids("w", 10) {
		r.worker(id, 16)
	}
	var starts []berth.Start
	for _, id := range ids("s", 100) {
		starts = append(starts, start(id))
	}
	for len(starts) > 0 {
		n := min(len(starts), 32)
		results, err := r.store.ClaimSessions(t.Context(), starts[:n])
		r.ok(err)
		for _, result := range results {
			r.ok(result.Err)
		}
		starts = starts[n:]
	}
	if r.spread() > 1 {
		t.Errorf("got %v", r.loads())
	}
}

func TestIdleWorkersShareByChance(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range ids("w", 10) {
		r.worker(id, 4)
	}
	first := map[string]int{}
	for range 40 {
		placed := r.place(start("a")).Session
		first[placed.WorkerID]++
		_, err := r.store.EndSession(t.Context(), "t1", "a")
		r.ok(err)
	}
	if len(first) < 4 {
		t.Errorf("40 sessions, one after another on idle workers, went to %v", first)
	}
}

func TestReleaseKeepsLowOrdinalsFilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 12)
	r.worker("w2", 12)
	for _, id := range ids("s", 24) {
		r.place(start(id))
	}
	for i, id := range ids("s", 24) {
		if i%3 == 0 {
			continue
		}
		_, err := r.store.EndSession(t.Context(), "t1", id)
		r.ok(err)
		if holes := read[int](r, holes); holes > 0 {
			t.Fatalf("%d holes after the end of %s", holes, id)
		}
	}
	if free := r.free(); free != 16 {
		t.Errorf("%d free", free)
	}
}

// holes counts workers that have a free slot below a used one.
const holes = `select count(*)::int from (
    select from berth.slots where session is not null group by worker_id having max(ordinal) <> count(*)) w`

// Requests that may use different regions, or avoid different workers, look for slots one after another in one call.
func TestUnlikeRequestsOfABatchGetDifferentSlots(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.region("us", "eu")
	w := r.worker("w1", 4)
	lost := []berth.Session{r.displaced(w, start("lost1")), r.displaced(w, start("lost2"))}
	r.workerIn("us", "w2", 2)
	r.worker("w3", 1)
	var batch []berth.Start
	for i, region := range []string{"", "eu", "us", "", "eu"} {
		s := start(ids("s", 5)[i])
		s.Region, s.Spill = region, i%2 == 0
		batch = append(batch, s)
	}
	for _, s := range lost {
		batch = append(batch, start(s.ID))
	}
	results, err := r.store.ClaimSessions(t.Context(), batch)
	r.ok(err)
	for i, result := range results {
		if result.Err != nil || result.Contended {
			t.Errorf("start %d: %+v", i, result)
		}
	}
	if free := r.free(); free != 0 {
		t.Errorf("%d free", free)
	}
}
