package postgres_test

import (
	"testing"

	"github.com/berthdev/berth/internal/berth"
)

// arrive connects a peer as a user.
func (r *rig) arrive(s berth.Session, peer, connection, user string) {
	r.Helper()
	connect := connectOf(s, peer, connection)
	connect.Peer.User = user
	_, err := r.store.ConnectPeer(r.Context(), connect)
	r.ok(err)
}

// depart tells of the end of a connection.
func (r *rig) depart(s berth.Session, peer, connection string) {
	r.Helper()
	r.ok(r.store.DisconnectPeer(r.Context(), berth.Disconnect{Held: heldOf(s), PeerID: peer, ConnectionID: connection}))
}

// at expects where a user of tenant t1 is connected.
func (r *rig) at(user string, want ...berth.UserConnections) {
	r.Helper()
	got, err := r.store.UserWorkers(r.Context(), "t1", user)
	r.ok(err)
	equal(r, got, want)
}

func TestUserIsWhereItsPeersAreConnected(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tenant("t2")
	r.worker("w1", 4)
	a, b := r.place(start("a")).Session, r.place(start("b")).Session
	r.at("ann")
	r.arrive(a, "p1", "c1", "ann")
	r.arrive(a, "p2", "c2", "ann")
	r.arrive(b, "p1", "c3", "bob")
	r.arrive(b, "p2", "c4", "")
	r.arrive(r.place(startOf("t2", "a")).Session, "p1", "c5", "ann")
	r.at("ann", berth.UserConnections{WorkerID: "w1", Connections: 2})
	r.at("bob", berth.UserConnections{WorkerID: "w1", Connections: 1})
	r.at("")
	r.at("nobody")

	r.depart(a, "p1", "c1")
	r.at("ann", berth.UserConnections{WorkerID: "w1", Connections: 1})
	r.depart(a, "p2", "c2")
	r.at("ann")
	_, err := r.store.EndSession(t.Context(), "t1", "b")
	r.ok(err)
	r.at("bob")
}

func TestPeerIsTheUserThatItConnectedAsLast(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 1)
	s := r.place(start("a")).Session
	r.arrive(s, "p1", "c1", "ann")
	r.arrive(s, "p1", "c2", "bob")
	r.at("ann")
	r.at("bob", berth.UserConnections{WorkerID: "w1", Connections: 1})
	_, peers, err := r.store.Session(t.Context(), "t1", "a")
	if err != nil || len(peers) != 1 || peers[0].User != "bob" {
		t.Errorf("got %+v, %v", peers, err)
	}
	r.arrive(s, "p1", "c3", "")
	r.at("bob")
}

// The connection of a worker that was lost, and of one that is well.
func TestLateCloseDoesNotRemoveANewerConnectionOfTheUser(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a := c.seat("a")
	c.arrive(a.Session, "a", "old", "ann")
	c.kill(a.Session.WorkerID)
	c.at("ann")
	answer, err := c.store.Rejoin(t.Context(), berth.Rejoin{Key: a.Session.Key, PeerID: "a", Generation: a.Session.Generation, Lost: true})
	c.ok(err)
	moved := answer.Placement.Session
	if moved.WorkerID == a.Session.WorkerID {
		t.Fatalf("it is on %s again", moved.WorkerID)
	}
	c.arrive(moved, "a", "new", "ann")
	here := berth.UserConnections{WorkerID: moved.WorkerID, Connections: 1}
	c.at("ann", here)
	_ = c.store.DisconnectPeer(t.Context(), berth.Disconnect{Held: heldOf(a.Session), PeerID: "a", ConnectionID: "old"})
	c.at("ann", here)

	m := c.place(start("m")).Session
	c.arrive(m, "p1", "old", "bob")
	c.arrive(m, "p1", "new", "bob")
	c.depart(m, "p1", "old")
	c.at("bob", berth.UserConnections{WorkerID: m.WorkerID, Connections: 1})
}

func TestUsersOfALostWorkerVanishWithIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w1 := r.worker("w1", 1)
	r.arrive(r.place(start("a")).Session, "p1", "c1", "ann")
	r.worker("w2", 4)
	r.arrive(r.place(start("b")).Session, "p1", "c2", "ann")
	both := []berth.UserConnections{{WorkerID: "w1", Connections: 1}, {WorkerID: "w2", Connections: 1}}
	r.at("ann", both...)
	// Its rows stay until they are seen to, and count no longer.
	r.exec("update berth.workers set state = 'lost' where id = $1", "w1")
	r.at("ann", both[1])
	r.exec("update berth.workers set state = 'ready' where id = $1", "w1")
	r.at("ann", both...)
	// Another start of the worker has not the sockets of the one before.
	r.exec("update berth.workers set instance = instance + 1000 where id = $1", "w1")
	r.at("ann", both[1])
	r.exec("update berth.workers set instance = $2 where id = $1", "w1", w1.number)
	r.at("ann", both...)
}
