package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

func TestConcurrentDisconnectsShareStatements(t *testing.T) {
	t.Parallel()
	const peers = 60
	r := newRig(t)
	r.worker("w1", peers)
	placed := make([]berth.Session, peers)
	for i, id := range ids("s", peers) {
		placed[i] = r.place(start(id)).Session
		r.connect(placed[i], "c1")
	}
	r.ok(errors.Join(parallel(peers, func(i int) error {
		return r.store.DisconnectPeer(t.Context(), berth.Disconnect{Held: heldOf(placed[i]), PeerID: "p1", ConnectionID: "c1"})
	})...))
	const told = " from berth.session_events where type = 'peer_disconnected'"
	if n := read[int](r, "select count(distinct session)::int"+told); n != peers {
		t.Errorf("%d of %d are told of", n, peers)
	}
	if n := read[int](r, "select count(distinct xmin::text)::int"+told); n > peers/4 {
		t.Errorf("%d statements for %d peers", n, peers)
	}
	if n := read[int](r, "select count(*)::int from berth.peers where connection_id is not null"); n > 0 {
		t.Errorf("%d are connected still", n)
	}
}

// A row that somebody works on delays its own disconnect and no other.
func TestLockedSessionDelaysItsOwnDisconnectOnly(t *testing.T) {
	t.Parallel()
	for _, left := range []bool{false, true} {
		t.Run(fmt.Sprintf("left %v", left), func(t *testing.T) {
			t.Parallel()
			c := newCalls(t)
			a, _ := c.both()
			other := c.place(start("other")).Session
			c.connect(other, "c1")
			release := c.hold(fmt.Sprintf("select from berth.sessions where key = %d for update", a.Session.Key))
			own := make(chan error, 1)
			go func() {
				own <- c.store.DisconnectPeer(t.Context(), berth.Disconnect{Held: heldOf(a.Session), PeerID: "a", ConnectionID: "a1", Left: left})
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			for range 5 { // in batches with the one that waits
				c.ok(c.store.DisconnectPeer(ctx, berth.Disconnect{Held: heldOf(other), PeerID: "p1", ConnectionID: "c1"}))
			}
			select {
			case err := <-own:
				t.Errorf("answered while the row is locked: %v", err)
			default:
			}
			release()
			c.ok(<-own)
			c.expect(a.Session.Key, map[bool]berth.SessionState{false: berth.SessionAwaitingRejoin, true: berth.SessionEnded}[left],
				map[bool]berth.EndedReason{true: berth.EndedLeft}[left])
		})
	}
}

func TestDisconnectsOfOneStatementAreAnsweredEachForItself(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	call := func(id string) berth.SessionKey {
		var key berth.SessionKey
		for _, peer := range []string{"a", "b"} {
			s := start(id)
			s.Kind, s.Peer.ID = berth.KindCall, peer
			placed := c.place(s)
			c.up(placed, id+peer)
			key = placed.Session.Key
		}
		return key
	}
	media := c.place(start("media")).Session
	c.connect(media, "m")
	lost, moved, left, stays := call("lost"), call("moved"), call("left"), call("stays")
	rows := read[string](c.rig, `select string_agg(outcome, ' ' order by ord) from berth.disconnect_peers(
		$1::bigint[], array['p1','p1','a','b','a','b','b','a','a','a'],
		array['m','old','losta','lostb','moveda','movedb','leftb','lefta','old','m'],
		array[false,false,false,false,false,false,true,false,false,true],
		array[false,false,false,false,true,false,false,true,true,false], 60)`,
		[]int64{
			int64(media.Key), int64(media.Key), int64(lost), int64(lost), int64(moved), int64(moved), int64(left), int64(left),
			int64(stays), int64(stays) + 1000,
		})
	if want := "done done done done done done done stale stale done"; rows != want {
		t.Errorf("got %s,\nwant %s", rows, want)
	}
	c.expect(lost, berth.SessionAwaitingRejoin, "")
	c.expect(moved, berth.SessionAwaitingRejoin, "")
	c.expect(left, berth.SessionEnded, berth.EndedLeft)
	c.expect(stays, berth.SessionActive, "")
	var causes []string
	for _, notice := range c.notices() {
		causes = append(causes, fmt.Sprintf("%v %s %s", notice.Key == moved, notice.PeerID, notice.Cause))
	}
	slices.Sort(causes)
	equal(c.rig, causes, []string{"false a lost", "false b lost", "true a moved", "true b lost"})
	if n := read[int](c.rig, "select count(*)::int from berth.peers where shed_from is not null and worker_id is null"); n != 1 {
		t.Errorf("%d lost their seats", n)
	}
	if bad := read[int](c.rig, "select count(*)::int from berth.violations"); bad > 0 {
		t.Errorf("%d violations", bad)
	}
}

// A worker that did not hear the answer connects once more, and so does one that asks who else is there.
func TestRepeatedConnectChangesNothing(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	media := c.place(start("media")).Session
	a := c.seat("a")
	again := func(p berth.Placement) {
		t.Helper()
		const changed = "select count(*)::int || ' ' || max(xmin::text) from berth.session_events"
		first := c.up(p, p.Peer.ID+"1")
		before := read[string](c.rig, changed)
		second := c.up(p, p.Peer.ID+"1")
		if after := read[string](c.rig, changed); after != before {
			t.Errorf("%s: events %s became %s", p.Peer.ID, before, after)
		}
		if !second.At.Equal(first.At) || second.Again != first.Again || len(second.Peers) != len(first.Peers) {
			t.Errorf("%s: got %+v at first, then %+v", p.Peer.ID, first, second)
		}
	}
	again(berth.Placement{Session: media, Peer: berth.Peer{ID: "p1"}})
	again(a)
	b := c.seat("b")
	again(b)
	c.expect(a.Session.Key, berth.SessionActive, "")
	c.ok(c.store.DisconnectPeer(t.Context(), berth.Disconnect{Held: heldOf(a.Session), PeerID: "a", ConnectionID: "a1"}))
	a.Peer.ID = "a"
	if back := c.up(a, "a2"); !back.Again {
		t.Errorf("got %+v", back)
	}
	if back := c.up(a, "a2"); !back.Again || len(back.Peers) != 1 {
		t.Errorf("got %+v, though it was there before", back)
	}
}
