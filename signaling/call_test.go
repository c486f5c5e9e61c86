package signaling

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// newCallServers are two workers that share a database and topics in which every session is a call.
func newCallServers(t *testing.T) (w1, w2 *rig) {
	t.Helper()
	config := Config{SettleInterval: 5 * time.Millisecond, Inbox: berth.InboxTopic("1"), FrameBurst: 1000}
	w1 = newRig(t, config)
	w1.directory.kind = berth.KindCall
	config.Inbox = berth.InboxTopic("2")
	w2 = (&rig{t: t, directory: w1.directory, topics: w1.topics}).hubbed(config)
	return w1.serve(), w2.serve()
}

// member is a member of the frame that is an object; empty if it is not.
func (f frame) member(name string) frame {
	object, _ := f[name].(map[string]any)
	return object
}

// peersOf are the ids of a welcome's peers.
func peersOf(welcome frame) (ids []string) {
	peers, _ := welcome["peers"].([]any)
	for _, peer := range peers {
		object, _ := peer.(map[string]any)
		ids = append(ids, frame(object).text("id"))
	}
	return ids
}

// talk has a offer and b answer.
func talk(a, b *client) {
	a.t.Helper()
	a.send(`{"type":"offer","sdp":"o1"}`)
	a.send(`{"type":"candidate","candidate":{"candidate":"c1"}}`)
	if f := b.expect("offer"); f.text("sdp") != "o1" {
		a.t.Fatalf("got %v", f)
	}
	if f := b.expect("candidate"); f.member("candidate").text("candidate") != "c1" {
		a.t.Fatalf("got %v", f)
	}
	b.send(`{"type":"answer","sdp":"a1"}`)
	b.send(`{"type":"candidate","candidate":null}`)
	if f := a.expect("answer"); f.text("sdp") != "a1" {
		a.t.Fatalf("got %v", f)
	}
	if f := a.expect("candidate"); f["candidate"] != nil {
		a.t.Fatalf("got %v", f)
	}
}

func TestCallIsRelayedBetweenWorkers(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, welcome := w1.join(1, "a")
	if peers := peersOf(welcome); len(peers) != 0 {
		t.Errorf("got %v", welcome)
	}
	b, welcome := w2.join(1, "b")
	if peers := peersOf(welcome); len(peers) != 1 || peers[0] != "a" {
		t.Errorf("got %v", welcome)
	}
	if f := a.expect("peer-connected"); f.text("peer_id") != "b" {
		t.Errorf("got %v", f)
	}
	talk(a, b)
}

func TestCallIsRelayedOnOneWorker(t *testing.T) {
	t.Parallel()
	w1, _ := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w1.join(1, "b")
	a.expect("peer-connected")
	talk(a, b)
}

func TestOfferWaitsForThePeerThatComesLater(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	a.send(`{"type":"offer","sdp":"early"}`)
	a.send(`{"type":"candidate","candidate":{"candidate":"c1"}}`)
	a.send(`{"type":"pong","id":"x"}`)
	eventually(t, "the candidate is kept", func() bool {
		w1.hub.mu.Lock()
		c := w1.hub.sessions[1].call
		w1.hub.mu.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.peers["a"] != nil && len(c.peers["a"].kept) == 1
	})
	b, _ := w2.join(1, "b")
	if f := b.expect("offer"); f.text("sdp") != "early" {
		t.Errorf("got %v", f)
	}
	b.expect("candidate")
}

func TestPeerThatComesBackOffersAnew(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	talk(a, b)
	_ = a.ws.CloseNow()
	if f := b.expect("peer-disconnected"); f.text("reason") != "lost" || f.text("peer_id") != "a" {
		t.Errorf("got %v", f)
	}
	back, welcome := w2.join(1, "a")
	if peers := peersOf(welcome); len(peers) != 1 {
		t.Errorf("got %v", welcome)
	}
	b.expect("peer-connected")
	back.send(`{"type":"offer","sdp":"o2"}`)
	if f := b.expect("rejoin-offer"); f.text("sdp") != "o2" || f.text("peer_id") != "a" || f.text("role") != "offer" {
		t.Errorf("got %v", f)
	}
	b.send(`{"type":"answer","sdp":"a2"}`)
	back.expect("answer")
	back.send(`{"type":"offer","sdp":"o3"}`)
	b.expect("offer")
}

func TestLossThatWasToldIsNoNews(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	w1.directory.mu.Lock()
	old := w1.directory.connected[peerKey(1, "a")]
	w1.directory.mu.Unlock()
	_ = a.ws.CloseNow()
	b.expect("peer-disconnected")
	tell := func() { w1.tell(berth.CallTopic(1), lostPeer(1, old).CallMessage) }
	tell() // again, as the reaper does
	back, _ := w1.join(1, "a")
	b.expect("peer-connected")
	tell() // late: another connection took its place
	back.send(`{"type":"offer","sdp":"o2"}`)
	b.expect("rejoin-offer")
}

// tell says something on a topic.
func (r *rig) tell(topic string, message any) {
	r.t.Helper()
	data, err := json.Marshal(message)
	if err == nil {
		_, err = r.topics.Publish(r.t.Context(), backplane.Outgoing{Topic: topic, Data: data})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// lostPeer is what the reaper says of a call's peer "a".
func lostPeer(call berth.SessionKey, connection string) berth.LostPeer {
	return berth.LostPeer{Call: call, CallMessage: berth.CallMessage{
		Type: berth.CallDisconnected, PeerID: "a", Role: "offer", Reason: "worker_lost", Connection: connection,
	}}
}

// A worker that wakes reads what its sockets held before it hears that their peers went elsewhere.
func TestConnectionThatWasReplacedSaysNothingMore(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	old := w1.hub.callOf(1)
	old.mu.Lock()
	paused := old.peers["a"]
	old.mu.Unlock()
	back, _ := w2.join(1, "a")
	b.expect("peer-connected")
	back.send(`{"type":"offer","sdp":"new"}`)
	b.expect("rejoin-offer")
	for _, kind := range []string{berth.CallOffer, berth.CallAnswer, berth.CallCandidate, berth.CallConnected} {
		m := paused.message(kind)
		m.SDP = "old"
		w1.tell(berth.CallTopic(1), m)
	}
	b.send(`{"type":"answer","sdp":"to new"}`)
	if f := back.expect("answer"); f.text("sdp") != "to new" {
		t.Errorf("got %v", f)
	}
	back.send(`{"type":"candidate","candidate":{"candidate":"c"}}`)
	for {
		f, err := b.next()
		if err != nil {
			t.Fatal(err)
		}
		if f.text("type") == "candidate" {
			break
		}
		if f.text("sdp") != "new" { // which may be said again
			t.Errorf("got %v", f)
		}
	}
}

// The database's clock may be set back: then a new connection looks older than the one before it.
func TestConnectionThatOnlyLooksOldIsLookedUp(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	w1.directory.set(func(d *fakeDirectory) { d.behind = time.Hour })
	back, _ := w1.join(1, "a")
	a.expectClose(CloseReplaced)
	b.expect("peer-connected")
	back.send(`{"type":"offer","sdp":"new"}`)
	if f := b.expect("rejoin-offer"); f.text("sdp") != "new" {
		t.Errorf("got %v", f)
	}
}

// A worker that wakes announces what it still holds, and words of a loss may come before those of what was lost.
func TestConnectionThatWasLostIsHeardNoMore(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	call := w1.hub.callOf(1)
	call.mu.Lock()
	paused := call.peers["a"]
	call.mu.Unlock()
	w1.tell(berth.InboxTopic("2"), berth.InboxMessage{Lost: []berth.LostPeer{lostPeer(1, paused.peer.info.ConnectionID)}})
	b.expect("peer-disconnected")
	late := paused.message(berth.CallConnected)
	w1.tell(berth.CallTopic(1), late)
	late.Connection, late.At = "another", late.At+1
	w1.tell(berth.InboxTopic("2"), berth.InboxMessage{Lost: []berth.LostPeer{lostPeer(1, late.Connection)}})
	w1.tell(berth.CallTopic(1), late)
	back, _ := w1.join(1, "a")
	back.send(`{"type":"offer","sdp":"new"}`)
	for _, kind := range []string{"peer-connected", "rejoin-offer"} {
		if f, err := b.next(); err != nil || f.text("type") != kind {
			t.Fatalf("got %v, %v, want %s", f, err, kind)
		}
	}
}

// What the database answers may be older than what was heard while it did.
func TestRecoveryUndoesNothingThatWasHeardMeanwhile(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	_ = a.ws.CloseNow()
	b.expect("peer-disconnected")
	var back *client
	var once sync.Once
	w1.directory.set(func(d *fakeDirectory) {
		d.looked = func() {
			once.Do(func() {
				back, _ = w1.join(1, "a")
				b.expect("peer-connected")
			})
		}
	})
	w2.hub.callOf(1).lost()
	eventually(t, "the call recovered", func() bool {
		c := w2.hub.callOf(1)
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.recovering
	})
	_ = back.ws.CloseNow()
	if f, err := b.next(); err != nil || f.text("type") != "peer-disconnected" {
		t.Fatalf("got %v, %v", f, err)
	}
}

func TestOfferThatIsRepeatedIsStillThatOfAReturn(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	_ = a.ws.CloseNow()
	b.expect("peer-disconnected")
	back, _ := w1.join(1, "a")
	b.expect("peer-connected")
	w1.topics.fail(errors.New("away"))
	back.send(`{"type":"offer","sdp":"new"}`)
	if f := back.expect("error"); f.text("code") != MediaFailed {
		t.Fatalf("got %v", f)
	}
	w1.topics.fail(nil)
	back.send(`{"type":"offer","sdp":"new"}`)
	if f := b.expect("rejoin-offer"); f.text("sdp") != "new" {
		t.Errorf("got %v", f)
	}
}

func TestWorkerIsToldOfManyLostPeersAtOnce(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	lost := berth.InboxMessage{Lost: []berth.LostPeer{lostPeer(99, "of a call that is not here")}}
	var survivors []*client
	for key := 1; key <= 3; key++ {
		a, _ := w1.join(key, "a")
		b, _ := w2.join(key, "b")
		a.expect("peer-connected")
		w1.directory.mu.Lock()
		lost.Lost = append(lost.Lost, lostPeer(berth.SessionKey(key), w1.directory.connected[peerKey(berth.SessionKey(key), "a")]))
		w1.directory.mu.Unlock()
		survivors = append(survivors, b)
	}
	w1.tell(berth.InboxTopic("2"), lost)
	w1.tell(berth.InboxTopic("2"), lost) // again
	for i, b := range survivors {
		if f := b.expect("peer-disconnected"); f.text("reason") != "worker_lost" || f.text("peer_id") != "a" {
			t.Errorf("got %v", f)
		}
		_, _ = w1.join(i+1, "a")
		b.expect("peer-connected")
	}
}

func TestPeerThatComesBackElsewhereEndsItsOldConnection(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	_, _ = w2.join(1, "a")
	a.expectClose(CloseReplaced)
	b.expect("peer-connected")
	b.send(`{"type":"bye"}`) // what comes next is no peer-disconnected of the old connection
	b.expectClose(CloseBye)
}

func TestByeEndsTheCallOfBoth(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	a.send(`{"type":"bye"}`)
	a.expectClose(CloseBye)
	if f := b.expect("peer-disconnected"); f.text("reason") != "left" {
		t.Errorf("got %v", f)
	}
	b.expectClose(CloseEnded)
	eventually(t, "nothing is held", func() bool { return len(w1.hub.Held()) == 0 && len(w2.hub.Held()) == 0 })
}

func TestLossIsToldOnceTheDatabaseAndTheTopicsAreBack(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	w1.topics.fail(errors.New("away"))
	w1.directory.set(func(d *fakeDirectory) { d.err = berth.ErrUnavailable })
	_ = a.ws.CloseNow()
	eventually(t, "the database was asked", func() bool {
		w1.directory.mu.Lock()
		defer w1.directory.mu.Unlock()
		return w1.directory.gone > 0
	})
	w1.directory.set(func(d *fakeDirectory) { d.err = nil })
	eventually(t, "the database was told", func() bool { return w1.directory.connections() == 1 })
	w1.topics.fail(nil)
	b.expect("peer-disconnected")
}

func TestJoinWithoutTopicsIsToldToTryAgain(t *testing.T) {
	t.Parallel()
	w1, _ := newCallServers(t)
	w1.topics.fail(errors.New("away"))
	a := w1.joinAt(held(1), "a")
	a.expectClose(CloseTryLater)
}

func TestRelayRefusesWhatCannotBePassedOn(t *testing.T) {
	t.Parallel()
	w1, _ := newCallServers(t)
	a, _ := w1.join(1, "a")
	eventually(t, "the join is over", func() bool {
		w1.hub.mu.Lock()
		defer w1.hub.mu.Unlock()
		return len(w1.hub.joining) == 0
	})
	w1.topics.fail(errors.New("away"))
	a.send(`{"type":"offer","id":"7","sdp":"o1"}`)
	if f := a.expect("error"); f.text("code") != MediaFailed || f.text("reply_to") != "7" {
		t.Errorf("got %v", f)
	}
}
