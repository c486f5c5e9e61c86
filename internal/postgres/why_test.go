package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/berthdev/berth/internal/berth"
)

func (r *rig) explain(tenant, id string) berth.Explanation {
	r.Helper()
	explanation, err := r.store.Explain(r.Context(), tenant, id)
	r.ok(err)
	return explanation
}

func TestEachOwnerIsToldWithTheEvidenceForItsLoss(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w1 := r.worker("w1", 2)
	first := r.place(start("a")).Session
	r.lose(w1)
	w2 := r.worker("w2", 2)
	second := r.place(start("a")).Session
	r.ok(r.store.Displace(t.Context(), "w2", w2.number, nil))
	r.ok(r.store.Leave(t.Context(), "w2", w2.number))
	got := r.explain("t1", "a")
	if got.Session == nil || got.Session.State != berth.SessionAwaitingRejoin || got.Session.LastWorkerID != "w2" || len(got.Owners) != 2 {
		t.Fatalf("got %+v", got)
	}
	lost, drained := got.Owners[0], got.Owners[1]
	if lost.WorkerID != "w1" || lost.Instance != w1.number || lost.Generation != first.Generation || lost.Cause != "worker_lost" ||
		lost.Rank != 0.5 || lost.Gap == nil || lost.Gap.Evidence != "presence_gone; probe_refused" || lost.Gap.ConfirmedAt.IsZero() ||
		!lost.Until.After(lost.From) {
		t.Errorf("the first owner: %+v", lost)
	}
	if drained.WorkerID != "w2" || drained.Generation != second.Generation || drained.Cause != "drain_deadline" || drained.Gap != nil || drained.Ended {
		t.Errorf("the second owner: %+v", drained)
	}

	r.worker("w3", 2)
	r.worker("w2", 8)
	for i, c := range r.explain("t1", "a").Candidates {
		if c.Avoided != (c.WorkerID == "w2") || c.Fits && c.Avoided && i != 1 {
			t.Errorf("the worker that it lost last comes last: %d, %+v", i, c)
		}
	}
	r.place(start("a"))
	if last := r.explain("t1", "a").Owners[2]; last.WorkerID != "w3" || !last.Until.IsZero() || last.Cause != "" {
		t.Errorf("the owner now: %+v", last)
	}
	_, err := r.store.EndSession(t.Context(), "t1", "a")
	r.ok(err)
	got = r.explain("t1", "a")
	if last := got.Owners[2]; !last.Ended || last.Cause != "deleted" || got.Session.EndedReason != berth.EndedDeleted {
		t.Errorf("after its end: %+v", got)
	}
}

func TestCandidatesComeInTheOrderOfChoiceWithWhyNot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.region("us")
	r.region("eu", "us")
	for id, labels := range map[string]string{"busy": "a10", "idle": "a10", "plain": "l4", "closed": "a10", "full": "a10"} {
		r.worker(id, 4)
		r.exec("update berth.workers set labels = jsonb_build_object('gpu', $2::text) where id = $1", id, labels)
	}
	r.workerIn("us", "far", 4)
	r.exec("update berth.workers set labels = '{\"gpu\": \"a10\"}' where id = 'far'")
	r.exec("update berth.slots set session = 100 + ordinal where worker_id = 'full'")
	r.exec("update berth.slots set session = 199 where worker_id = 'busy' and ordinal = 1")
	r.exec("update berth.workers set cordoned_reason = 'lease_late' where id = 'closed'")
	s := start("a")
	s.Region, s.Selector, s.Slots = "eu", map[string]string{"gpu": "a10"}, 2
	placed := r.place(s).Session
	if placed.WorkerID != "idle" {
		t.Fatalf("placed on %s", placed.WorkerID)
	}
	got := r.explain("t1", "a")
	r.exec("update berth.slots set session = null where session between 100 and 199")
	r.exec("update berth.workers set cordoned_reason = null")
	if !slices.Equal(got.Search.Regions, []string{"eu", "us"}) || got.Search.Slots != 2 || got.Search.Selector["gpu"] != "a10" {
		t.Errorf("it asks for %+v", got.Search)
	}
	var order []string
	why := map[string]string{}
	for _, c := range got.Candidates {
		if c.Fits {
			order = append(order, c.WorkerID)
		}
		why[c.WorkerID] = c.Reason
		if c.Owner != (c.WorkerID == "idle") {
			t.Errorf("owner: %+v", c)
		}
	}
	if !slices.Equal(order, []string{"busy", "idle", "far"}) {
		t.Errorf("they would be chosen in this order: %v", order)
	}
	for worker, want := range map[string]string{"closed": "cordoned: lease_late", "full": "full", "plain": "labels", "idle": "", "far": ""} {
		if got := why[worker]; !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", worker, got, want)
		}
	}
}

func TestSessionThatNeverWasIsExplainedByWhatItWouldFind(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.populate()
	got := r.explain("t1", "never")
	if got.Session != nil || got.Queue != nil || len(got.Owners) != 0 {
		t.Errorf("got %+v", got)
	}
	if len(got.Refusals) == 0 || got.Refusals[0].Code != berth.CodeAtCapacity || got.Refusals[0].Refusals != 3 || got.Refusals[0].Region != "eu" {
		t.Errorf("refusals: %+v", got.Refusals)
	}
	if len(got.Candidates) != 2 || got.Candidates[0].Fits || got.Candidates[1].Fits {
		t.Errorf("candidates: %+v", got.Candidates)
	}
	waits := r.explain("t1", "e")
	if q := waits.Queue; waits.Session != nil || q == nil || q.Turn != 1 || q.Waiters != 1 || !q.OwnerPresent {
		t.Errorf("one that waits: %+v, %+v", waits, waits.Queue)
	}
	_, err := r.store.Explain(t.Context(), "nobody", "a")
	r.refused(berth.CodeNotFound, err)
}

func TestRoomIsKeptForThoseWhoWait(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w1 := r.worker("w1", 1)
	r.waiter("first", w1.number)
	for who, fits := range map[string]bool{"never": false, "first": true} {
		got := r.explain("t1", who).Candidates
		if len(got) != 1 || got[0].Fits != fits || got[0].Fits == strings.Contains(got[0].Reason, "wait") {
			t.Errorf("for %s: %+v", who, got)
		}
	}
}
