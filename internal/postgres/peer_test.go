package postgres_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/berthdev/berth/internal/berth"
)

func TestAddedPeerSharesThePlacement(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 1)
	placed := r.place(start("a")).Session
	added, err := r.store.AddPeer(t.Context(), "t1", "a", berth.Peer{ID: "p2", Role: "viewer"})
	if err != nil || !added.Created || added.Peer.ID != "p2" || added.Peer.Role != "viewer" ||
		added.Session.Generation != placed.Generation {
		t.Errorf("got %+v, %v", added, err)
	}
	again, err := r.store.AddPeer(t.Context(), "t1", "a", berth.Peer{ID: "p2", Role: "other"})
	if err != nil || again.Created || again.Peer.Role != "viewer" {
		t.Errorf("again: got %+v, %v", again, err)
	}
	fresh, err := r.store.AddPeer(t.Context(), "t1", "a", berth.Peer{Role: berth.RoleOffer})
	if err != nil || !fresh.Created || fresh.Peer.ID == "p1" || !berth.ValidID(fresh.Peer.ID) {
		t.Errorf("without an id: got %+v, %v", fresh, err)
	}
	_, peers, err := r.store.Session(t.Context(), "t1", "a")
	if err != nil || len(peers) != 3 || peers[0].ID != "p1" {
		t.Errorf("got %+v, %v", peers, err)
	}
}

func TestPeersAreLimitedAlsoWithinABatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 2)
	var starts []berth.Start
	for i := range berth.MaxPeers + 6 {
		s := start("a")
		s.Peer.ID = fmt.Sprintf("p%d", i)
		starts = append(starts, s)
	}
	results, err := r.store.ClaimSessions(t.Context(), starts)
	r.ok(err)
	var errs []error
	for _, result := range results {
		errs = append(errs, result.Err)
	}
	if counts := r.count(errs); counts[""] != berth.MaxPeers || counts[berth.CodeConflict] != 6 {
		t.Errorf("got %v", counts)
	}
	_, err = r.store.AddPeer(t.Context(), "t1", "a", berth.Peer{ID: "one-more", Role: "viewer"})
	r.refused(berth.CodeConflict, err)
	known, err := r.store.AddPeer(t.Context(), "t1", "a", berth.Peer{ID: "p7", Role: "viewer"})
	if err != nil || known.Created {
		t.Errorf("a known peer: got %+v, %v", known, err)
	}
}

func TestParallelPeersStayWithinTheLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 1)
	r.place(start("a"))
	errs := parallel(berth.MaxPeers+4, func(i int) error {
		_, err := r.store.AddPeer(t.Context(), "t1", "a", berth.Peer{ID: fmt.Sprintf("x%d", i), Role: "viewer"})
		return err
	})
	if counts := r.count(errs); counts[""] != berth.MaxPeers-1 || counts[berth.CodeConflict] != 5 {
		t.Errorf("got %v", counts)
	}
}

func TestPeerOfALostSessionPlacesItAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 1)
	lost := r.displaced(w, start("a"))
	added, err := r.store.AddPeer(t.Context(), "t1", "a", berth.Peer{ID: "p2", Role: "viewer"})
	if err != nil || !added.Created || added.Session.Generation <= lost.Generation {
		t.Errorf("got %+v, %v", added, err)
	}
}

func TestPeerOfNoSessionIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tenant("t2")
	r.worker("w1", 1)
	r.place(start("a"))
	_, err := r.store.AddPeer(t.Context(), "t2", "a", berth.Peer{ID: "p2"})
	r.refused(berth.CodeNotFound, err)
	_, err = r.store.EndSession(t.Context(), "t1", "a")
	r.ok(err)
	_, err = r.store.AddPeer(t.Context(), "t1", "a", berth.Peer{ID: "p2"})
	r.refused(berth.CodeSessionEnded, err)
}

func TestFirstPeerActivatesAndIsToldOfTheOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 1)
	placed := r.place(start("a")).Session
	first, err := r.store.ConnectPeer(t.Context(), connectOf(placed, "p1", "c1"))
	if err != nil || first.Session.State != berth.SessionActive || len(first.Peers) != 0 || first.At.IsZero() ||
		!first.Session.ConnectBy.IsZero() {
		t.Errorf("got %+v, %v", first, err)
	}
	second, err := r.store.ConnectPeer(t.Context(), connectOf(placed, "p2", "c2"))
	if err != nil || len(second.Peers) != 1 || second.Peers[0].ID != "p1" || second.Peers[0].ConnectionID != "c1" {
		t.Errorf("got %+v, %v", second, err)
	}
	if n := read[int](r, "select count(*)::int from berth.session_events where type = 'active'"); n != 1 {
		t.Errorf("activated %d times", n)
	}
}

func TestConnectIsStaleOnceThePlacementIsHistory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 2)
	placed := r.place(start("a")).Session
	stale := func(what string, c berth.Connect) {
		t.Helper()
		if _, err := r.store.ConnectPeer(t.Context(), c); !errors.Is(err, berth.ErrStale) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	elsewhere := connectOf(placed, "p1", "c1")
	elsewhere.WorkerID = "w2"
	stale("another worker", elsewhere)
	before := connectOf(placed, "p1", "c1")
	before.Instance--
	stale("an instance before", before)
	r.ok(r.store.Displace(t.Context(), w.id, w.number, []berth.SessionKey{placed.Key}))
	stale("awaiting a rejoin", connectOf(placed, "p1", "c1"))
	again := r.place(start("a")).Session
	stale("the placement before", connectOf(placed, "p1", "c1"))
	r.connect(again, "c1")
	r.overdue(again.Key, "expires_at")
	_, err := r.store.ConnectPeer(t.Context(), connectOf(again, "p1", "c2"))
	r.refused(berth.CodeSessionEnded, err) // its time is over, though nobody ended it yet
	_, err = r.store.EndSession(t.Context(), "t1", "a")
	r.ok(err)
	_, err = r.store.ConnectPeer(t.Context(), connectOf(again, "p1", "c2"))
	r.refused(berth.CodeSessionEnded, err)
	_, err = r.store.ConnectPeer(t.Context(), berth.Connect{Held: berth.Held{Key: 1 << 40}})
	r.refused(berth.CodeSessionEnded, err)
}

func TestNewestConnectionOfAPeerWins(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 1)
	placed := r.place(start("a")).Session
	r.connect(placed, "c1")
	r.connect(placed, "c2")
	connection := func() string {
		t.Helper()
		_, peers, err := r.store.Session(t.Context(), "t1", "a")
		r.ok(err)
		return peers[0].ConnectionID
	}
	gone := berth.Disconnect{Held: heldOf(placed), PeerID: "p1", ConnectionID: "c1"}
	r.ok(r.store.DisconnectPeer(t.Context(), gone))
	if got := connection(); got != "c2" {
		t.Errorf("a late goodbye of c1 left %q", got)
	}
	gone.ConnectionID = "c2"
	r.ok(r.store.DisconnectPeer(t.Context(), gone))
	r.ok(r.store.DisconnectPeer(t.Context(), gone))
	if got := connection(); got != "" {
		t.Errorf("got %q", got)
	}
	r.expect(placed.Key, berth.SessionActive, "") // idleness is its worker's to judge
}
