package postgres_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

// calls tests calls on workers w1 and w2.
type calls struct {
	*rig
	workers map[string]instance
}

func newCalls(t *testing.T) calls {
	t.Helper()
	c := calls{rig: newRig(t), workers: map[string]instance{}}
	for _, id := range []string{"w1", "w2"} {
		c.workers[id] = c.worker(id, 4)
	}
	return c
}

// peer starts or joins call "c" as a peer.
func (c calls) peer(id string) (berth.Placement, error) {
	s := start("c")
	s.Kind, s.Peer.ID = berth.KindCall, id
	return c.store.Place(c.Context(), s)
}

// seat is peer for one who must find room.
func (c calls) seat(id string) berth.Placement {
	c.Helper()
	placed, err := c.peer(id)
	c.ok(err)
	return placed
}

// up connects a peer where it was placed.
func (c calls) up(p berth.Placement, connection string) berth.Connected {
	c.Helper()
	connected, err := c.store.ConnectPeer(c.Context(), connectOf(p.Session, p.Peer.ID, connection))
	c.ok(err)
	return connected
}

// both starts a call and connects its peers a and b, and returns their placements.
func (c calls) both() (a, b berth.Placement) {
	c.Helper()
	a, b = c.seat("a"), c.seat("b")
	c.up(a, "a1")
	c.up(b, "b1")
	c.expect(a.Session.Key, berth.SessionActive, "")
	return a, b
}

// kill is the loss of a worker as the reaper writes it.
func (c calls) kill(worker string) {
	c.Helper()
	c.vanish(c.workers[worker])
	c.exec("update berth.workers set state = 'lost' where id = $1", worker)
	c.exec("delete from berth.worker_leases where worker_id = $1", worker)
	c.exec("select berth.set_open($1)", worker)
	_, err := c.store.LoseCallPeers(c.Context(), worker, c.workers[worker].number, time.Time{}, 100)
	c.ok(err)
}

func (c calls) notices() []berth.CallNotice {
	c.Helper()
	notices, err := c.store.CallNotices(c.Context(), 10)
	c.ok(err)
	return notices
}

func TestCallBecomesActiveWithItsSecondPeer(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, b := c.seat("a"), c.seat("b")
	if !a.Created || b.Created || a.Session.Key != b.Session.Key || a.Session.Generation != b.Session.Generation {
		t.Fatalf("got %+v and %+v", a, b)
	}
	if a.Peer.Role != berth.RoleOffer || b.Peer.Role != berth.RoleAnswer || a.Session.WorkerID == "" || b.Session.SignalingURL == "" {
		t.Errorf("got %+v and %+v", a, b)
	}
	if c.free() != 8 {
		t.Errorf("%d slots are free, want all 8", c.free())
	}
	if first := c.up(a, "a1"); first.Again || len(first.Peers) != 0 {
		t.Errorf("got %+v", first)
	}
	c.expect(a.Session.Key, berth.SessionAssigned, "")
	second := c.up(b, "b1")
	if second.Again || len(second.Peers) != 1 || second.Peers[0].ID != "a" {
		t.Errorf("got %+v", second)
	}
	c.expect(a.Session.Key, berth.SessionActive, "")
	_, err := c.peer("third")
	c.refused(berth.CodeConflict, err)
	if again := c.seat("a"); again.Session.WorkerID != a.Session.WorkerID || again.Peer.Role != berth.RoleOffer {
		t.Errorf("got %+v, want %+v", again, a)
	}
}

func TestLostPeerOfACallRejoinsThroughAnotherWorker(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, b := c.both()
	for a.Session.WorkerID == b.Session.WorkerID { // until chance parts them
		c.ok(c.store.DisconnectPeer(t.Context(), berth.Disconnect{Held: heldOf(a.Session), PeerID: "b", ConnectionID: "b1", Left: true}))
		a, b = c.both()
	}
	c.kill(a.Session.WorkerID)
	c.expect(a.Session.Key, berth.SessionAwaitingRejoin, "")
	want := berth.CallNotice{Key: a.Session.Key, PeerID: "a", Role: berth.RoleOffer, Cause: "worker_lost", ConnectionID: "a1"}
	notices := c.notices()
	equal(c.rig, notices, []berth.CallNotice{want})
	c.ok(c.store.ClearCallNotices(t.Context(), notices))
	equal(c.rig, c.notices(), nil)
	if n, err := c.store.LoseCallPeers(t.Context(), a.Session.WorkerID, a.Session.Instance, time.Time{}, 100); n != 0 || err != nil {
		t.Errorf("lost %d more, %v", n, err)
	}
	answer, err := c.store.Rejoin(t.Context(), berth.Rejoin{Key: a.Session.Key, PeerID: "a", Generation: a.Session.Generation, Lost: true})
	c.ok(err)
	moved := answer.Placement
	if moved.Session.WorkerID != b.Session.WorkerID || moved.Session.Generation != a.Session.Generation || moved.Peer.Role != berth.RoleOffer {
		t.Fatalf("got %+v", answer)
	}
	if back := c.up(moved, "a2"); !back.Again || len(back.Peers) != 1 {
		t.Errorf("got %+v", back)
	}
	c.expect(a.Session.Key, berth.SessionActive, "")
	_, err = c.store.ConnectPeer(t.Context(), connectOf(a.Session, "a", "a3"))
	if !errors.Is(err, berth.ErrStale) {
		t.Errorf("the old owner connected it: %v", err)
	}
	err = c.store.DisconnectPeer(t.Context(), berth.Disconnect{Held: heldOf(a.Session), PeerID: "a", ConnectionID: "a1", Left: true})
	if !errors.Is(err, berth.ErrStale) {
		t.Errorf("an old connection's goodbye was taken: %v", err)
	}
	c.expect(a.Session.Key, berth.SessionActive, "")
}

func TestDrainedPeerOfACallMovesToAnotherWorker(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, _ := c.both()
	old := a.Session.WorkerID
	c.ok(c.store.Drain(t.Context(), old, a.Session.Instance, time.Minute))
	if stays := c.seat("a"); stays.Session.WorkerID != old {
		t.Errorf("moved to %s before the deadline", stays.Session.WorkerID)
	}
	c.ok(c.store.Displace(t.Context(), old, a.Session.Instance, []berth.SessionKey{a.Session.Key}))
	// It is told to come back to the same URL, where it would be moved again and again.
	if _, err := c.store.ConnectPeer(t.Context(), connectOf(a.Session, "a", "a1b")); !errors.Is(err, berth.ErrStale) {
		t.Errorf("the draining worker let it in again: %v", err)
	}
	moved := c.seat("a")
	if moved.Session.WorkerID == old {
		t.Errorf("placed on %s, which drains", old)
	}
	if back := c.up(moved, "a2"); !back.Again {
		t.Errorf("got %+v", back)
	}
}

func TestOwnedSessionsOfAWorkerAreJoinedByItsCallsOnce(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	media := c.place(start("m"))
	a, b := c.both()
	for _, placed := range []berth.Placement{a, b} {
		worker := placed.Session.WorkerID
		owned, err := c.store.OwnedBy(t.Context(), worker, c.workers[worker].number, 10)
		c.ok(err)
		want := []string{}
		if worker == media.Session.WorkerID {
			want = append(want, "m")
		}
		want = append(want, "c") // once, if both peers are there
		var got []string
		for _, s := range owned {
			got = append(got, s.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s owns %v, want %v", worker, got, want)
		}
	}
	worker := media.Session.WorkerID
	if owned, err := c.store.OwnedBy(t.Context(), worker, c.workers[worker].number, 1); len(owned) != 1 || err != nil {
		t.Errorf("one was asked for: %v %v", owned, err)
	}
}

func TestPeersThatWereToldOfLeaveNoNotice(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, b := c.both()
	c.exec("update berth.peers set connected_at = connected_at - interval '1 minute'")
	peers, told, err := c.store.CallPeers(t.Context(), a.Session.WorkerID, a.Session.Instance)
	c.ok(err)
	if peers[0].Survivor != b.Session.WorkerID && peers[0].Survivor != a.Session.WorkerID {
		t.Errorf("the survivor is on %q", peers[0].Survivor)
	}
	if alone := a.Session.WorkerID != b.Session.WorkerID; len(peers) != 2 && !alone || len(peers) != 1 && alone || peers[0].Cause != "worker_lost" {
		t.Errorf("got %+v", peers)
	}
	_, err = c.store.LoseCallPeers(t.Context(), a.Session.WorkerID, a.Session.Instance, told, 100)
	c.ok(err)
	equal(c.rig, c.notices(), nil)
	c.expect(a.Session.Key, berth.SessionAwaitingRejoin, "")
}

// Who connects while the others are told may have read that the lost peer is there.
func TestPeerThatConnectedWhileOthersWereToldHasANotice(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, b := c.both()
	c.exec("update berth.peers set connected_at = connected_at - interval '1 minute' where peer_id = 'a'")
	_, told, err := c.store.CallPeers(t.Context(), a.Session.WorkerID, a.Session.Instance)
	c.ok(err)
	c.ok(c.store.DisconnectPeer(t.Context(), berth.Disconnect{Held: heldOf(b.Session), PeerID: "b", ConnectionID: "b1"}))
	c.notices()
	c.up(b, "b2")
	_, err = c.store.LoseCallPeers(t.Context(), a.Session.WorkerID, a.Session.Instance, told, 100)
	c.ok(err)
	lost := slices.DeleteFunc(c.notices(), func(n berth.CallNotice) bool { return n.PeerID != "a" })
	if len(lost) != 1 || lost[0].ConnectionID != "a1" {
		t.Errorf("got %+v", lost)
	}
}

func TestPeerThatIsAloneAndLostHasTheRejoinWindow(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a := c.seat("a")
	c.up(a, "a1")
	if s := c.session(a.Session.Key); !s.ConnectBy.Equal(s.ExpiresAt) {
		t.Errorf("waits for the other until %v, want until it expires at %v", s.ConnectBy, s.ExpiresAt)
	}
	c.ok(c.store.DisconnectPeer(t.Context(), berth.Disconnect{Held: heldOf(a.Session), PeerID: "a", ConnectionID: "a1"}))
	s := c.session(a.Session.Key)
	if left := s.ConnectBy.Sub(s.CreatedAt); s.State != berth.SessionAssigned || left < time.Minute || left > 2*time.Minute {
		t.Errorf("%s for %v, want assigned for the window of a minute", s.State, left)
	}
}

func TestByeEndsACall(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, _ := c.both()
	c.ok(c.store.DisconnectPeer(t.Context(), berth.Disconnect{Held: heldOf(a.Session), PeerID: "a", ConnectionID: "a1", Left: true}))
	c.expect(a.Session.Key, berth.SessionEnded, berth.EndedLeft)
	if n := c.live("t1"); n != 0 {
		t.Errorf("%d are live", n)
	}
	if next := c.seat("a"); !next.Created {
		t.Errorf("got %+v, want a new call", next)
	}
}

func TestSocketThatDropsLeavesItsCallAwaiting(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, _ := c.both()
	c.ok(c.store.DisconnectPeer(t.Context(), berth.Disconnect{Held: heldOf(a.Session), PeerID: "a", ConnectionID: "a1"}))
	c.expect(a.Session.Key, berth.SessionAwaitingRejoin, "")
	first := c.notices()
	if len(first) != 1 || first[0].ConnectionID != "a1" || first[0].Cause != "lost" {
		t.Errorf("got %+v", first)
	}
	if back := c.up(a, "a2"); !back.Again {
		t.Errorf("got %+v", back)
	}
	c.expect(a.Session.Key, berth.SessionActive, "")
	c.ok(c.store.DisconnectPeer(t.Context(), berth.Disconnect{Held: heldOf(a.Session), PeerID: "a", ConnectionID: "a2"}))
	c.ok(c.store.ClearCallNotices(t.Context(), first)) // of a loss before
	if again := c.notices(); len(again) != 1 || again[0].ConnectionID != "a2" {
		t.Errorf("got %+v", again)
	}
	c.overdue(a.Session.Key, "rejoin_by")
	_, err := c.store.EndOverdue(t.Context(), 10)
	c.ok(err)
	c.expect(a.Session.Key, berth.SessionEnded, berth.EndedRejoinTimeout)
}

// Each loss has its own window: who was lost late may take as long as who was lost early.
func TestWindowToRejoinBeginsAnewWithEachLoss(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, b := c.both()
	lose := func(p berth.Placement, peer string) {
		c.ok(c.store.DisconnectPeer(t.Context(), berth.Disconnect{Held: heldOf(p.Session), PeerID: peer, ConnectionID: peer + "1"}))
	}
	lose(a, "a")
	c.exec("update berth.sessions set rejoin_by = rejoin_by - interval '59 s' where key = $1", int64(a.Session.Key))
	first := c.session(a.Session.Key).RejoinBy
	lose(b, "b")
	second := c.session(a.Session.Key).RejoinBy
	if wait := second.Sub(first); wait < 50*time.Second {
		t.Errorf("the second loss added %v", wait)
	}
	c.up(a, "a2")
	if now := c.session(a.Session.Key).RejoinBy; !now.Equal(second) {
		t.Errorf("a return moved the end of the window by %v", now.Sub(second))
	}
}

func TestCallThatNoWorkerTakesIsRefusedAndNotSentToADeadOne(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, _ := c.both()
	other := start("alone")
	other.Kind = berth.KindCall
	alone, err := c.store.Place(t.Context(), other)
	c.ok(err)
	for id := range c.workers {
		c.kill(id)
	}
	refused := func(what string, err error) {
		t.Helper()
		if code := berth.RefusalCode(err); code != berth.CodeAtCapacity {
			t.Errorf("%s: got %v", what, err)
		}
	}
	_, err = c.store.Rejoin(t.Context(), berth.Rejoin{Key: a.Session.Key, PeerID: "a", Generation: a.Session.Generation, Lost: true})
	refused("a peer that was lost", err)
	_, err = c.store.AddPeer(t.Context(), "t1", alone.Session.ID, berth.Peer{ID: "b"})
	refused("the second peer", err)
	_, err = c.store.AddPeer(t.Context(), "t1", a.Session.ID, berth.Peer{ID: "third"})
	if code := berth.RefusalCode(err); code != berth.CodeConflict {
		t.Errorf("a third peer: got %v", err)
	}
}

func TestCallOfALatePeerMovesThatPeerAlone(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, b := c.both()
	late := a.Session.WorkerID
	c.exec("update berth.worker_leases set expires_at = clock_timestamp() - interval '1 s' where worker_id = $1", late)
	stays, err := c.store.Rejoin(t.Context(), berth.Rejoin{Key: a.Session.Key, PeerID: "a", Generation: a.Session.Generation})
	c.ok(err)
	if stays.Outcome != berth.RejoinCurrent {
		t.Errorf("got %+v", stays)
	}
	moved, err := c.store.Rejoin(t.Context(), berth.Rejoin{Key: a.Session.Key, PeerID: "a", Generation: a.Session.Generation, Lost: true})
	c.ok(err)
	if moved.Placement.Session.WorkerID == late {
		t.Errorf("got %+v", moved)
	}
	dropped, err := c.store.Reconcile(t.Context(), late, a.Session.Instance, []berth.Held{heldOf(a.Session)})
	c.ok(err)
	if alone := b.Session.WorkerID != late; alone != (len(dropped) == 1) || alone && dropped[0].Ended {
		t.Errorf("of %+v and %+v: got %+v", a.Session.WorkerID, b.Session.WorkerID, dropped)
	}
}

// A client may ask twice, and be connected elsewhere when the second of its requests goes on.
func TestPeerThatCameElsewhereIsNotMovedByAnEarlierVerdict(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, _ := c.both()
	c.exec("update berth.worker_leases set expires_at = clock_timestamp() - interval '1 s' where worker_id = $1", a.Session.WorkerID)
	moved, err := c.store.Rejoin(t.Context(), berth.Rejoin{Key: a.Session.Key, PeerID: "a", Generation: a.Session.Generation, Lost: true})
	c.ok(err)
	c.up(moved.Placement, "a2")
	c.exec("select berth.move_peer($1, 'a', 60)", int64(a.Session.Key))
	c.expect(a.Session.Key, berth.SessionActive, "")
}

func TestWindowToRejoinDoesNotBeginAnewWithoutALoss(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, _ := c.both()
	c.exec("update berth.worker_leases set expires_at = clock_timestamp() - interval '1 s'")
	rejoin := berth.Rejoin{Key: a.Session.Key, PeerID: "a", Generation: a.Session.Generation, Lost: true}
	_, _ = c.store.Rejoin(t.Context(), rejoin) // whether anybody takes the peer is not what this is about
	c.exec("update berth.sessions set rejoin_by = rejoin_by - interval '30 s' where key = $1", int64(a.Session.Key))
	window := c.session(a.Session.Key).RejoinBy
	for range 3 {
		_, _ = c.store.Rejoin(t.Context(), rejoin) // as above
	}
	if now := c.session(a.Session.Key).RejoinBy; window.IsZero() || !now.Equal(window) {
		t.Errorf("the end of the window moved by %v", now.Sub(window))
	}
}

func TestRenewalCountsTheCallsOfAWorker(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, b := c.both()
	for _, w := range c.workers {
		var held []berth.Held
		if a.Session.WorkerID == w.id || b.Session.WorkerID == w.id {
			held = []berth.Held{heldOf(a.Session)}
		}
		answer, err := c.store.Renew(t.Context(), berth.Renewal{
			WorkerID: w.id, Instance: w.number, Count: len(held), Digest: berth.Digest(held), Lease: lease,
		})
		c.ok(err)
		if !answer.Matched {
			t.Errorf("%s: got %+v", w.id, answer)
		}
	}
	for _, want := range []berth.SessionState{berth.SessionActive, berth.SessionAwaitingRejoin} {
		_, err := c.store.Reconcile(t.Context(), a.Session.WorkerID, a.Session.Instance, nil)
		c.ok(err)
		c.expect(a.Session.Key, want, "")
		c.exec("update berth.peers set forgotten_at = forgotten_at - interval '2 s'")
	}
	if lost := c.notices(); len(lost) == 0 || lost[0].Cause != "lost" {
		t.Errorf("got %+v", lost)
	}
}

func TestCallsCountAgainstTheirTenantsQuota(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	c.quota("t1", 1)
	a := c.seat("a")
	c.up(a, "a1")
	other := start("other")
	other.Kind = berth.KindCall
	c.placeRefused(berth.CodeConcurrentSessions, other)
	other.Kind, other.Peer.ID = berth.KindMedia, "p"
	c.placeRefused(berth.CodeConcurrentSessions, other)
	sameID := start("c")
	c.placeRefused(berth.CodeConflict, sameID)
}

func TestCallNeedsAWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.region("eu")
	s := start("c")
	s.Kind = berth.KindCall
	r.placeRefused(berth.CodeAtCapacity, s)
}

func TestManyStartsOfACallAreTwoPeers(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	stores := c.stores(2)
	errs := parallel(20, func(i int) error {
		s := start("c")
		s.Kind, s.Peer.ID = berth.KindCall, ids("p", 20)[i]
		_, err := []*postgres.Store{c.store, stores[0], stores[1]}[i%3].Place(t.Context(), s)
		return err
	})
	if counts := c.count(errs); counts[""] != 2 || counts[berth.CodeConflict] != 18 {
		t.Errorf("got %v, want 2 placed and 18 refused", counts)
	}
}

func TestOtherPeersOfACallAreReadForWhoIsConnected(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, b := c.both()
	asks := berth.Peer{ID: "a", ConnectionID: "a1"}
	others, err := c.store.OtherPeers(t.Context(), a.Session.Key, asks)
	c.ok(err)
	if len(others) != 1 || others[0].ID != "b" || others[0].ConnectionID != "b1" || others[0].Role != berth.RoleAnswer {
		t.Errorf("got %+v", others)
	}
	c.ok(c.store.DisconnectPeer(t.Context(), berth.Disconnect{Held: heldOf(b.Session), PeerID: "b", ConnectionID: "b1"}))
	if others, err = c.store.OtherPeers(t.Context(), a.Session.Key, asks); err != nil || len(others) != 0 {
		t.Errorf("got %+v, %v", others, err)
	}
	c.up(a, "a2")
	if _, err := c.store.OtherPeers(t.Context(), a.Session.Key, asks); !errors.Is(err, berth.ErrStale) {
		t.Errorf("got %v of a connection that was replaced", err)
	}
	c.ok(c.store.DisconnectPeer(t.Context(), berth.Disconnect{Held: heldOf(a.Session), PeerID: "a", ConnectionID: "a2", Left: true}))
	if _, err := c.store.OtherPeers(t.Context(), a.Session.Key, berth.Peer{ID: "a", ConnectionID: "a2"}); berth.RefusalCode(err) != berth.CodeSessionEnded {
		t.Errorf("got %v of a call that is over", err)
	}
}

func TestCallThatNoWorkerTakesIsToldToComeBackSoon(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	c.kill("w1")
	c.kill("w2")
	_, err := c.peer("a")
	if refusal := c.refused(berth.CodeAtCapacity, err); refusal.RetryAfter != 3*time.Second || !strings.Contains(refusal.Detail, "call") {
		t.Errorf("got %+v", refusal)
	}
}
