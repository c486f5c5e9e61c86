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

func TestOrderToShedIsGivenOnce(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	renew := func(relayed bool) berth.ShedOrder {
		t.Helper()
		answer, err := c.store.Renew(t.Context(), berth.Renewal{
			WorkerID: "w1", Instance: c.workers["w1"].number, Lease: lease, Relayed: relayed,
		})
		c.ok(err)
		return answer.Shed
	}
	order := berth.ShedOrder{Count: 7, Spread: 90 * time.Second}
	c.ok(c.store.OrderShed(t.Context(), "w1", 0, berth.ShedOrder{Count: 1}))
	c.ok(c.store.OrderShed(t.Context(), "w1", c.workers["w1"].number, order))
	if got := renew(true); got.Count != 0 {
		t.Errorf("got %+v over a replica, which does not pass it on", got)
	}
	if got := renew(false); got != order {
		t.Errorf("got %+v", got)
	}
	if got := renew(false); got.Count != 0 {
		t.Errorf("got %+v again", got)
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
	if back.Placement.Session.SignalingURL == "" {
		t.Fatalf("got %+v", back)
	}
	c.up(back.Placement, "a3")
	c.expect(a.Session.Key, berth.SessionActive, "")
	if err := c.store.DisconnectPeer(t.Context(), shed); !errors.Is(err, berth.ErrStale) {
		t.Errorf("got %v, want a late word to change nothing", err)
	}
}
