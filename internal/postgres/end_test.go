package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

func TestScenario_C06_RepeatedEndsReleaseOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tenant("t2")
	r.worker("w1", 3)
	placed := r.place(start("a")).Session
	r.place(start("b"))
	stores := r.stores(3)
	r.ok(errors.Join(parallel(20, func(i int) error {
		_, err := stores[i%3].EndSession(t.Context(), "t1", "a")
		return err
	})...))
	if n := read[int](r, "select count(*)::int from berth.session_events where session = $1 and type = 'ended'", placed.Key); n != 1 {
		t.Errorf("ended %d times", n)
	}
	before, err := r.store.EndSession(t.Context(), "t1", "a")
	if err != nil || before.State != berth.SessionEnded {
		t.Errorf("again: got %+v, %v", before, err)
	}
	_, err = r.store.EndSession(t.Context(), "t2", "a")
	r.refused(berth.CodeNotFound, err)
	for _, id := range ids("refill", 2) {
		r.place(start(id))
	}
	r.placeRefused(berth.CodeAtCapacity, start("one-more"))
	if live := r.live("t1"); live != 3 {
		t.Errorf("%d live", live)
	}
}

func TestEndAnswersTheRowAsItWas(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 1)
	placed := r.place(start("a")).Session
	r.connect(placed, "c1")
	before, err := r.store.EndSession(t.Context(), "t1", "a")
	if err != nil || before.State != berth.SessionActive || before.WorkerID != "w1" || before.Instance != w.number {
		t.Errorf("got %+v, %v", before, err)
	}
	after := r.session(placed.Key)
	if after.EndedReason != berth.EndedDeleted || after.WorkerID != "" || after.LastWorkerID != "w1" || after.EndedAt.IsZero() {
		t.Errorf("got %+v", after)
	}
	_, peers, err := r.store.Session(t.Context(), "t1", "a")
	if err != nil || len(peers) != 1 || peers[0].ConnectionID != "" {
		t.Errorf("got %+v, %v", peers, err)
	}
}

func TestOwnersEndCountsOnlyAtItsGeneration(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 2)
	r.worker("w2", 2)
	end := func(s berth.Session) {
		t.Helper()
		r.ok(r.store.EndSessions(t.Context(), []berth.End{{Held: heldOf(s), Reason: berth.EndedIdle}}))
	}
	first := r.place(start("a")).Session
	if first.WorkerID != "w1" {
		w = instance{id: "w2", number: first.Instance}
	}
	r.ok(r.store.Displace(t.Context(), w.id, w.number, []berth.SessionKey{first.Key}))
	end(first)
	r.expect(first.Key, berth.SessionAwaitingRejoin, "") // it is no owner any more
	second := r.place(start("a")).Session
	end(first)
	r.expect(first.Key, berth.SessionAssigned, "")
	end(second)
	end(second)
	r.expect(first.Key, berth.SessionEnded, berth.EndedIdle)
}

func TestEndsOfOneCallAreOneTransaction(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tenant("t2")
	r.worker("w1", 4)
	a, b, c := r.place(start("a")).Session, r.place(startOf("t2", "b")).Session, r.place(start("c")).Session
	r.ok(r.store.EndSessions(t.Context(), []berth.End{
		{Held: heldOf(c), Reason: berth.EndedLeft},
		{Held: berth.Held{Key: a.Key, Generation: a.Generation + 1000}, Reason: berth.EndedLeft},
		{Held: heldOf(b), Reason: berth.EndedIdle},
		{Held: heldOf(b), Reason: berth.EndedLeft},
		{Held: berth.Held{Key: 1 << 40, Generation: 1}, Reason: berth.EndedLeft},
	}))
	r.expect(a.Key, berth.SessionAssigned, "")
	r.expect(c.Key, berth.SessionEnded, berth.EndedLeft)
	if s := r.session(b.Key); s.State != berth.SessionEnded {
		t.Errorf("got %+v", s)
	}
	r.ok(r.store.EndSessions(t.Context(), nil))
}

// overdue moves a deadline of a session into the past.
func (r *rig) overdue(key berth.SessionKey, column string) {
	r.Helper()
	r.exec("update berth.sessions set "+column+" = clock_timestamp() - interval '1 second' where key = $1", key)
}

func TestOverdueSessionsEndForTheirReason(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 8)
	noShow, expired := r.place(start("no-show")).Session, r.place(start("expired")).Session
	both, fine := r.place(start("both")).Session, r.place(start("fine")).Session
	gone := r.displaced(w, start("gone"))
	r.connect(expired, "c1")
	r.overdue(noShow.Key, "connect_by")
	r.overdue(expired.Key, "expires_at")
	r.overdue(both.Key, "connect_by")
	r.overdue(both.Key, "expires_at")
	r.overdue(gone.Key, "rejoin_by")
	for i, want := range []int{3, 1, 0} {
		if n, err := r.store.EndOverdue(t.Context(), 3); err != nil || n != want {
			t.Errorf("call %d ended %d, %v; want %d", i, n, err, want)
		}
	}
	r.expect(noShow.Key, berth.SessionEnded, berth.EndedNoShow)
	r.expect(expired.Key, berth.SessionEnded, berth.EndedExpired)
	r.expect(both.Key, berth.SessionEnded, berth.EndedExpired)
	r.expect(gone.Key, berth.SessionEnded, berth.EndedRejoinTimeout)
	r.expect(fine.Key, berth.SessionAssigned, "")
	if free := r.free(); free != 7 {
		t.Errorf("%d free", free)
	}
}

func TestScenario_F10_NothingEndsBeforeItsOwnDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 64)
	shortest := start("")
	shortest.TTL = berth.MinTTL
	for _, id := range ids("s", 40) {
		shortest.ID = id
		placed := r.place(shortest)
		n, err := r.store.EndOverdue(t.Context(), 100)
		r.ok(err)
		if s := r.session(placed.Session.Key); n != 0 || s.State != berth.SessionAssigned {
			t.Fatalf("%d ended, %s is %s", n, id, s.State)
		}
	}
}

func TestOverdueRowThatSomebodyWorksOnIsLeftForLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 2)
	a, b := r.place(start("a")).Session, r.place(start("b")).Session
	r.overdue(a.Key, "connect_by")
	r.overdue(b.Key, "connect_by")
	release := r.hold("select from berth.sessions where id = 'a' for update")
	if n, err := r.store.EndOverdue(t.Context(), 10); err != nil || n != 1 {
		t.Errorf("ended %d, %v", n, err)
	}
	release()
	if n, err := r.store.EndOverdue(t.Context(), 10); err != nil || n != 1 {
		t.Errorf("ended %d, %v", n, err)
	}
}

func TestPeerThatConnectsInTimeIsNoNoShow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 1)
	placed := r.place(start("a")).Session
	r.overdue(placed.Key, "connect_by")
	r.connect(placed, "c1")
	if n, err := r.store.EndOverdue(t.Context(), 10); err != nil || n != 0 {
		t.Errorf("ended %d, %v", n, err)
	}
}

func TestPurgeDeletesWhatEndedLongAgo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 8)
	for _, id := range ids("old", 5) {
		r.place(start(id))
		_, err := r.store.EndSession(t.Context(), "t1", id)
		r.ok(err)
	}
	r.exec("update berth.sessions set ended_at = clock_timestamp() - interval '25 hours'")
	r.place(start("live"))
	r.place(start("recent"))
	_, err := r.store.EndSession(t.Context(), "t1", "recent")
	r.ok(err)
	for i, want := range []int{3, 2, 0} {
		if n, err := r.store.PurgeSessions(t.Context(), 24*time.Hour, 3); err != nil || n != want {
			t.Errorf("call %d purged %d, %v; want %d", i, n, err, want)
		}
	}
	left := read[int](r, "select count(*)::int from berth.sessions")
	peers := read[int](r, "select count(*)::int from berth.peers")
	if left != 2 || peers != 2 {
		t.Errorf("left: %d sessions, %d peers", left, peers)
	}
}

func TestListPagesNewestFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tenant("t2")
	r.worker("w1", 16)
	for _, id := range ids("s", 5) {
		r.place(start(id))
	}
	r.place(startOf("t2", "other"))
	_, err := r.store.EndSession(t.Context(), "t1", "s001")
	r.ok(err)
	list := func(f berth.SessionFilter) (found []string, last berth.SessionKey) {
		t.Helper()
		sessions, err := r.store.ListSessions(t.Context(), f)
		r.ok(err)
		for _, s := range sessions {
			found, last = append(found, s.ID), s.Key
		}
		return found, last
	}
	page, last := list(berth.SessionFilter{TenantID: "t1", Limit: 3})
	rest, _ := list(berth.SessionFilter{TenantID: "t1", Limit: 3, Before: last})
	equal(r, append(page, rest...), []string{"s004", "s003", "s002", "s001", "s000"})
	ended, _ := list(berth.SessionFilter{TenantID: "t1", State: berth.SessionEnded, Limit: 9})
	equal(r, ended, []string{"s001"})
	everybodys, _ := list(berth.SessionFilter{WorkerID: "w1", Limit: 2})
	equal(r, everybodys, []string{"other", "s004"})
}
