package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

func TestLoadsCountTheCallPeersOfReadyWorkers(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, b := c.both()
	want := map[string]int{"w1": 0, "w2": 0}
	want[a.Session.WorkerID]++
	want[b.Session.WorkerID]++
	loads, err := c.store.Loads(t.Context())
	c.ok(err)
	for _, load := range loads {
		if load.Connections != want[load.WorkerID] || load.Instance != c.workers[load.WorkerID].number {
			t.Errorf("got %+v, want %d", load, want[load.WorkerID])
		}
	}
	_, err = c.store.DrainWorker(t.Context(), "w1", time.Minute, false)
	c.ok(err)
	loads, err = c.store.Loads(t.Context())
	c.ok(err)
	if len(loads) != 1 || loads[0].WorkerID != "w2" {
		t.Errorf("got %+v", loads)
	}
}

// renewAs is a renewal of w1 that acknowledges an order, and returns the order that it is given.
func (c calls) renewAs(relayed bool, seen int64) berth.ShedOrder {
	c.Helper()
	answer, err := c.store.Renew(c.Context(), berth.Renewal{
		WorkerID: "w1", Instance: c.workers["w1"].number, Lease: lease, Relayed: relayed, ShedSeen: seen,
	})
	c.ok(err)
	return answer.Shed
}

func TestOrderToShedIsGivenUntilItIsAcknowledged(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	order := berth.ShedOrder{Count: 7, Spread: 90 * time.Second}
	c.ok(c.store.OrderShed(t.Context(), "w1", 0, berth.ShedOrder{Count: 1}))
	first := c.renewAs(false, 0)
	c.ok(c.store.OrderShed(t.Context(), "w1", c.workers["w1"].number, order))
	if got := c.renewAs(true, 0); got.Count != 0 {
		t.Errorf("got %+v over a replica, which does not pass it on", got)
	}
	order.Number = first.Number + 1
	for range 2 { // the answers are lost, and what is seen is the order before
		if got := c.renewAs(false, first.Number); got != order {
			t.Errorf("got %+v", got)
		}
	}
	for range 2 {
		if got := c.renewAs(false, order.Number); got.Count != 0 {
			t.Errorf("got %+v again", got)
		}
	}
	for _, err := range []error{
		c.store.OrderShed(t.Context(), "unknown", 0, order),
		c.store.OrderShed(t.Context(), "w1", c.workers["w1"].number+100, order),
	} {
		if berth.RefusalCode(err) != berth.CodeNotFound {
			t.Errorf("got %v", err)
		}
	}
}

func TestAutomaticOrderToShedReplacesNobodys(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	automatic := func(count int) error {
		return c.store.OrderShed(t.Context(), "w1", 0, berth.ShedOrder{Count: count, Automatic: true})
	}
	c.ok(automatic(1))
	c.ok(automatic(2))
	c.ok(c.store.OrderShed(t.Context(), "w1", 0, berth.ShedOrder{Count: 3}))
	if err := automatic(4); berth.RefusalCode(err) != berth.CodeConflict {
		t.Errorf("got %v", err)
	}
	given := c.renewAs(false, 0)
	if err := automatic(5); berth.RefusalCode(err) != berth.CodeConflict {
		t.Errorf("got %v, since nobody knows whether it came", err)
	}
	if given.Count != 3 || c.renewAs(false, given.Number).Count != 0 {
		t.Errorf("got %+v", given)
	}
	c.ok(automatic(6))
	if got := c.renewAs(false, given.Number); got.Count != 6 {
		t.Errorf("got %+v", got)
	}
}

func TestOrderToShedEndsWithItsInstance(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	c.ok(c.store.OrderShed(t.Context(), "w1", 0, berth.ShedOrder{Count: 3}))
	c.vanish(c.workers["w1"])
	c.workers["w1"] = c.worker("w1", 4)
	if got := c.renewAs(false, 0); got.Count != 0 {
		t.Errorf("its successor got %+v", got)
	}
}

func TestPeerThatWasShedIsPlacedAnew(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	a, _ := c.both()
	shed := berth.Disconnect{Held: heldOf(a.Session), PeerID: "a", ConnectionID: "a1", Shed: true}
	c.ok(c.store.DisconnectPeer(t.Context(), shed))
	c.expect(a.Session.Key, berth.SessionAwaitingRejoin, "")
	if lost := c.notices(); len(lost) != 1 || lost[0].Cause != berth.CallMoved {
		t.Errorf("got %+v", lost)
	}
	if _, err := c.store.ConnectPeer(t.Context(), connectOf(a.Session, "a", "a2")); !errors.Is(err, berth.ErrStale) {
		t.Errorf("got %v, want it to be told to rejoin", err)
	}
	back, err := c.store.Rejoin(t.Context(), berth.Rejoin{Key: a.Session.Key, PeerID: "a", Generation: a.Session.Generation})
	c.ok(err)
	if at := back.Placement.Session; at.SignalingURL == "" || at.WorkerID == a.Session.WorkerID {
		t.Fatalf("got %+v, and was shed by %s", back, a.Session.WorkerID)
	}
	c.up(back.Placement, "a3")
	c.expect(a.Session.Key, berth.SessionActive, "")
	if err := c.store.DisconnectPeer(t.Context(), shed); !errors.Is(err, berth.ErrStale) {
		t.Errorf("got %v, want a late word to change nothing", err)
	}
}

// TestShedPeerGoesElsewhereIfAnyWorkerFits has nobody else in the call, so that both workers are as good but for the loss.
func TestShedPeerGoesElsewhereIfAnyWorkerFits(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	placed := c.seat("a")
	shed := func(connection string) string {
		c.up(placed, connection)
		c.ok(c.store.DisconnectPeer(t.Context(), berth.Disconnect{
			Held: heldOf(placed.Session), PeerID: "a", ConnectionID: connection, Shed: true,
		}))
		from := placed.Session.WorkerID
		back, err := c.store.Rejoin(t.Context(), berth.Rejoin{Key: placed.Session.Key, PeerID: "a", Generation: placed.Session.Generation})
		c.ok(err)
		placed = back.Placement
		return from
	}
	for range 8 {
		if from := shed(berth.NewID("c")); placed.Session.WorkerID == from {
			t.Fatalf("it is on %s, where it was", from)
		}
	}
	_, err := c.store.DrainWorker(t.Context(), map[string]string{"w1": "w2", "w2": "w1"}[placed.Session.WorkerID], time.Minute, false)
	c.ok(err)
	if from := shed("last"); placed.Session.WorkerID != from {
		t.Errorf("it is on %s, which drains", placed.Session.WorkerID)
	}
}
