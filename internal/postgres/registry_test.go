package postgres_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

func TestRegisteredWorkerIsClosedUntilItOpens(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.newInstance("w1")
	held, err := r.register(w, "brand-new", 2)
	if err != nil || held {
		t.Fatalf("held %v, %v", held, err)
	}
	got, err := r.store.Worker(t.Context(), "w1")
	if err != nil || got.State != berth.WorkerStarting || got.Region != "brand-new" || got.Capacity != 2 || got.Free() != 0 ||
		got.LeaseExpiresAt.Sub(got.RenewedAt) != lease || got.ControlURL != "http://w1" || got.Version != "test" {
		t.Errorf("got %+v, %v", got, err)
	}
	r.placeRefused(berth.CodeAtCapacity, start("a"))
	r.ok(r.store.Open(t.Context(), w.id, w.number))
	r.ok(r.store.Open(t.Context(), w.id, w.number)) // its answer may have been lost
	r.place(start("a"))
}

func TestWorkerWithoutSlotsIsReadyAndNeverPicked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 0)
	r.placeRefused(berth.CodeAtCapacity, start("a"))
}

func TestScenario_C13_OldInstanceHasNoSayOnceANewOneRegistered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.worker("w1", 4)
	before := r.place(start("a")).Session
	r.connect(before, "c1")
	r.late("w1") // paused: present, but its lease ran out
	current := r.workerIn("eu", "w1", 4)
	r.expect(before.Key, berth.SessionAwaitingRejoin, "")
	placed := r.place(start("a")).Session
	r.connect(placed, "c2")

	answer, err := r.store.Renew(t.Context(), berth.Renewal{WorkerID: "w1", Instance: old.number, Lease: time.Hour})
	if err != nil || answer.Verdict != berth.RenewalReplaced {
		t.Errorf("renewal: got %+v, %v", answer, err)
	}
	_, connectErr := r.store.ConnectPeer(t.Context(), connectOf(before, "p1", "c3"))
	_, registerErr := r.register(old, "eu", 100)
	for what, err := range map[string]error{
		"connect":  connectErr,
		"drain":    r.store.Drain(t.Context(), "w1", old.number, time.Second),
		"leave":    r.store.Leave(t.Context(), "w1", old.number),
		"open":     r.store.Open(t.Context(), "w1", old.number),
		"register": registerErr,
	} {
		if !errors.Is(err, berth.ErrStale) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	r.ok(r.store.EndSessions(t.Context(), []berth.End{{Held: heldOf(before), Reason: berth.EndedIdle}}))
	r.ok(r.store.Displace(t.Context(), "w1", old.number, []berth.SessionKey{placed.Key}))
	r.ok(r.store.DisconnectPeer(t.Context(), berth.Disconnect{Held: heldOf(before), PeerID: "p1", ConnectionID: "c1"}))
	dropped, err := r.store.Reconcile(t.Context(), "w1", old.number, []berth.Held{heldOf(before)})
	if err != nil || len(dropped) != 1 || dropped[0].Held != heldOf(before) || dropped[0].Ended {
		t.Errorf("reconciliation: got %+v, %v", dropped, err)
	}

	got := r.session(placed.Key)
	if got.State != berth.SessionActive || got.Instance != current.number || got.Generation != placed.Generation {
		t.Errorf("got %+v", got)
	}
	_, peers, err := r.store.Session(t.Context(), "t1", "a")
	if err != nil || peers[0].ConnectionID != "c2" {
		t.Errorf("got %+v, %v", peers, err)
	}
	worker, err := r.store.Worker(t.Context(), "w1")
	if err != nil || worker.State != berth.WorkerReady || worker.Capacity != 4 || worker.Instance != current.number {
		t.Errorf("got %+v, %v", worker, err)
	}
}

func TestKnownIDIsHeldWhileItsInstanceIsPresentAndItsLeaseRuns(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*rig, instance)
		held   bool
	}{
		"present, lease runs":     {func(*rig, instance) {}, true},
		"present, lease over":     {func(r *rig, w instance) { r.late(w.id) }, false},
		"gone, lease runs":        {func(r *rig, w instance) { r.vanish(w) }, false},
		"present, left":           {func(r *rig, w instance) { r.ok(r.store.Leave(r.Context(), w.id, w.number)) }, false},
		"present, a drain is set": {func(r *rig, w instance) { r.ok(r.store.Drain(r.Context(), w.id, w.number, time.Hour)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			old := r.worker("w1", 1)
			test.change(r, old)
			if held, err := r.register(r.newInstance("w1"), "eu", 1); err != nil || held != test.held {
				t.Errorf("held %v, %v", held, err)
			}
			answer, err := r.store.Renew(t.Context(), berth.Renewal{WorkerID: "w1", Instance: old.number, Lease: lease})
			if err != nil || (answer.Verdict == berth.RenewalYours) != test.held {
				t.Errorf("the old one renews: got %+v, %v", answer, err)
			}
		})
	}
}

func TestInstanceThatIsOverCannotRegisterAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 1)
	r.ok(r.store.Leave(t.Context(), w.id, w.number))
	if _, err := r.register(w, "eu", 1); !errors.Is(err, berth.ErrStale) {
		t.Errorf("got %v", err)
	}
	if err := r.store.Open(t.Context(), w.id, w.number); !errors.Is(err, berth.ErrStale) {
		t.Errorf("got %v", err)
	}
}

func TestNewInstanceMayHaveAnotherCapacityAndRegion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.region("us")
	for i, capacity := range []int{4, 2, 7, 0, 3} {
		region := []string{"eu", "us"}[i%2]
		w := r.workerIn(region, "w1", capacity)
		free := read[int](r, "select free::int from berth.capacity where region = $1", region)
		if total := r.free(); free != capacity || total != capacity {
			t.Errorf("capacity %d in %s, but %d free there, %d in all", capacity, region, free, total)
		}
		for _, id := range ids(fmt.Sprintf("s%d-", i), capacity) {
			s := start(id)
			s.Region, s.Spill = region, false
			r.place(s)
		}
		r.vanish(w)
	}
}

// A session whose row is locked while its worker's id gets a new instance stays behind with the old one.
func TestLeftoversOfAnOldInstanceDoNotCostTheNewOneItsSessions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.worker("w1", 6)
	left := r.place(start("left-behind")).Session
	r.vanish(old)
	release := r.hold("select from berth.sessions where id = 'left-behind' for update")
	r.workerIn("eu", "w1", 2)
	fine := r.place(start("fine")).Session
	release()
	unfinished, err := r.store.Unfinished(t.Context())
	if err != nil || len(unfinished) != 1 || unfinished[0].Instance != old.number {
		t.Fatalf("got %+v, %v", unfinished, err)
	}
	n, err := r.store.DisplaceLost(t.Context(), unfinished[0].WorkerID, unfinished[0].Instance, 100)
	if err != nil || n != 1 {
		t.Errorf("displaced %d, %v", n, err)
	}
	r.expect(left.Key, berth.SessionAwaitingRejoin, "")
	r.expect(fine.Key, berth.SessionAssigned, "")
	if rest, err := r.store.Unfinished(t.Context()); err != nil || len(rest) != 0 {
		t.Errorf("got %+v, %v", rest, err)
	}
}

func TestRenewalExtendsTheLeaseAndTellsOfDrain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 2)
	renew := func() berth.RenewalAnswer {
		t.Helper()
		answer, err := r.store.Renew(t.Context(), berth.Renewal{WorkerID: "w1", Instance: w.number, Lease: time.Minute})
		r.ok(err)
		return answer
	}
	got := renew()
	if got.Verdict != berth.RenewalYours || got.State != berth.WorkerReady || !got.Matched || got.ExpiresAt.Sub(got.At) != time.Minute {
		t.Errorf("got %+v", got)
	}
	drained, err := r.store.DrainWorker(t.Context(), "w1", time.Hour, false)
	r.ok(err)
	if got = renew(); got.State != berth.WorkerDraining || !got.DrainDeadline.Equal(drained.DrainDeadline) {
		t.Errorf("got %+v", got)
	}
	r.ok(r.store.Leave(t.Context(), w.id, w.number))
	if got = renew(); got.Verdict != berth.RenewalOver {
		t.Errorf("after leaving: %+v", got)
	}
	stranger, err := r.store.Renew(t.Context(), berth.Renewal{WorkerID: "nobody", Instance: 1, Lease: lease})
	if err != nil || stranger.Verdict != berth.RenewalOver {
		t.Errorf("unknown: %+v, %v", stranger, err)
	}
}

func TestScenario_C16_PlacementTrustsSlotsAndNotReports(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 1)
	r.place(start("a"))
	answer, err := r.store.Renew(t.Context(), berth.Renewal{WorkerID: "w1", Instance: w.number, Count: 0, Lease: lease})
	if err != nil || !answer.Matched {
		t.Errorf("nobody connected yet, so nothing is held: %+v, %v", answer, err)
	}
	r.placeRefused(berth.CodeAtCapacity, start("b"))
	answer, err = r.store.Renew(t.Context(), berth.Renewal{WorkerID: "w1", Instance: w.number, Count: 1 << 20, Lease: lease})
	if err != nil || answer.Matched {
		t.Errorf("got %+v, %v", answer, err)
	}
}

func TestDigestMatchesExactlyWhatIsActive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 4)
	a, b := r.place(start("a")).Session, r.place(start("b")).Session
	r.place(start("not-connected"))
	r.connect(a, "c1")
	r.connect(b, "c1")
	stale := heldOf(b)
	stale.Generation--
	for name, test := range map[string]struct {
		held    []berth.Held
		matched bool
	}{
		"all":           {[]berth.Held{heldOf(b), heldOf(a)}, true},
		"one is absent": {[]berth.Held{heldOf(a)}, false},
		"one is stale":  {[]berth.Held{heldOf(a), stale}, false},
		"none":          {nil, false},
	} {
		answer, err := r.store.Renew(t.Context(), berth.Renewal{
			WorkerID: "w1", Instance: w.number, Count: len(test.held), Digest: berth.Digest(test.held), Lease: lease,
		})
		if err != nil || answer.Matched != test.matched {
			t.Errorf("%s: got %+v, %v", name, answer, err)
		}
	}
}

func TestReconciliationSaysWhatToDropAndWhy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 8)
	kept, ended := r.place(start("kept")).Session, r.place(start("ended")).Session
	moved, again := r.displaced(w, start("moved")), r.displaced(w, start("again"))
	r.connect(kept, "c1")
	_, err := r.store.EndSession(t.Context(), "t1", "ended")
	r.ok(err)
	r.connect(r.place(start("again")).Session, "c1")
	unheardOf := berth.Held{Key: 1 << 40, Generation: 7}
	dropped, err := r.store.Reconcile(t.Context(), "w1", w.number,
		[]berth.Held{heldOf(kept), heldOf(ended), heldOf(moved), heldOf(again), unheardOf})
	r.ok(err)
	got := map[berth.Held]berth.Dropped{}
	for _, d := range dropped {
		got[d.Held] = d
	}
	want := map[berth.Held]berth.Dropped{
		heldOf(ended): {Held: heldOf(ended), Ended: true, Reason: berth.EndedDeleted},
		heldOf(moved): {Held: heldOf(moved)},
		heldOf(again): {Held: heldOf(again)},
		unheardOf:     {Held: unheardOf, Ended: true},
	}
	if len(got) != len(want) {
		t.Errorf("got %+v", dropped)
	}
	for held, d := range want {
		if got[held] != d {
			t.Errorf("got %+v, want %+v", got[held], d)
		}
	}
}

func TestSessionIsForgottenAtTheSecondReconciliationThatLacksIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 4)
	a, b, c := r.place(start("a")).Session, r.place(start("b")).Session, r.place(start("c")).Session
	for _, s := range []berth.Session{a, b, c} {
		r.connect(s, "c1")
	}
	reconcile := func(held ...berth.Held) {
		t.Helper()
		_, err := r.store.Reconcile(t.Context(), "w1", w.number, held)
		r.ok(err)
	}
	pass := func() {
		t.Helper()
		r.exec("update berth.sessions set forgotten_at = forgotten_at - interval '2 seconds'")
	}
	reconcile(heldOf(c))
	reconcile(heldOf(c)) // too soon after
	r.expect(a.Key, berth.SessionActive, "")
	pass()
	reconcile(heldOf(b), heldOf(c)) // b is back
	r.expect(a.Key, berth.SessionEnded, berth.EndedWorkerForgot)
	r.expect(b.Key, berth.SessionActive, "")
	reconcile(heldOf(c))
	pass()
	r.connect(b, "c2") // a peer connected since
	reconcile(heldOf(c))
	r.expect(b.Key, berth.SessionActive, "")
	pass()
	reconcile(heldOf(c))
	r.expect(b.Key, berth.SessionEnded, berth.EndedWorkerForgot)
	r.expect(c.Key, berth.SessionActive, "")
	if r.live("t1") != 1 || r.free() != 3 {
		t.Errorf("%d live, %d free", r.live("t1"), r.free())
	}
}

func TestReconciliationWaitsForNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 2)
	placed := r.place(start("a")).Session
	r.connect(placed, "c1")
	r.hold("select from berth.sessions for update")
	_, err := r.store.Reconcile(t.Context(), "w1", w.number, nil)
	r.ok(err)
}
