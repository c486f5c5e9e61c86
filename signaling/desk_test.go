package signaling

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// A backplane that is slow or away is nobody's bug: frames are answered, and the connection goes on.
func TestBackplaneThatIsAwayClosesNobody(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	w1.topics.fail(berth.ErrUnavailable)
	for range 2 * maxErrors {
		a.send(`{"type":"candidate","candidate":{"candidate":"c"}}`)
		if f := a.expect("error"); f.text("code") != MediaFailed {
			t.Fatalf("got %v", f)
		}
	}
	w1.topics.fail(nil)
	a.send(`{"type":"offer","sdp":"o1"}`)
	b.expect("offer")
}

// stuckTopics subscribe when they are let go, or when the subscriber gives up.
type stuckTopics struct {
	*fakeTopics

	entered chan string
	letGo   chan struct{}
}

func (s *stuckTopics) Subscribe(
	ctx context.Context, topic string, from *backplane.Position, deliver func(backplane.Message),
) (*backplane.Subscription, error) {
	s.entered <- topic
	select {
	case <-s.letGo:
		return s.fakeTopics.Subscribe(ctx, topic, from, deliver)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// newStuck is a hub whose subscriptions wait.
func newStuck(t *testing.T) (*rig, *stuckTopics) {
	t.Helper()
	r := &rig{t: t, directory: newFakeDirectory(), topics: &fakeTopics{Memory: backplane.NewMemory()}}
	r.hubbed(Config{})
	stuck := &stuckTopics{fakeTopics: r.topics, entered: make(chan string, 64), letGo: make(chan struct{})}
	r.hub.deps.Topics = stuck
	return r.serve(), stuck
}

func TestSubscriptionUnderWayIsGivenUpByUnsubscribe(t *testing.T) {
	t.Parallel()
	r, stuck := newStuck(t)
	a, _ := r.join(1, "a")
	a.send(`{"type":"subscribe","topics":[{"topic":"slow"}]}`)
	<-stuck.entered
	a.send(`{"type":"unsubscribe","id":"u","topics":["slow"]}`)
	if f := a.expect("unsubscribed"); f.text("reply_to") != "u" {
		t.Errorf("got %v", f)
	}
	close(stuck.letGo)
	a.subscribe("slow", nil)
}

func TestFramesBeyondTheDesksQueueAreAnsweredAndCloseNobody(t *testing.T) {
	t.Parallel()
	r, stuck := newStuck(t)
	a, _ := r.join(1, "a")
	a.send(`{"type":"subscribe","topics":[{"topic":"slow"}]}`)
	<-stuck.entered
	for range maxTopicFrames {
		a.send(`{"type":"presence","topic":"slow"}`)
	}
	for range 2 * maxErrors {
		a.send(`{"type":"presence","id":"more","topic":"slow"}`)
		if f := a.expect("error"); f.text("code") != codeUnavailable || f.text("reply_to") != "more" {
			t.Fatalf("got %v", f)
		}
	}
	close(stuck.letGo)
	a.expect("subscribed")
	for range maxTopicFrames {
		a.expect("presence")
	}
}

// Whatever is under way, no message follows its unsubscribed, and none of the old subscription the new subscribed.
func TestNothingFollowsTheEndOfASubscription(t *testing.T) {
	t.Parallel()
	r := newTopicServer(t, berth.TopicGrant{}, Config{})
	a, _ := r.join(1, "a")
	stop := make(chan struct{})
	var publishing sync.WaitGroup
	publishing.Go(func() {
		tick := time.NewTicker(200 * time.Microsecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				_, _ = r.topics.Publish(t.Context(), backplane.Outgoing{Topic: "t/acme/busy", Data: []byte("1")})
			}
		}
	})
	defer publishing.Wait()
	defer close(stop)
	for range 20 {
		a.send(`{"type":"subscribe","topics":[{"topic":"busy"}]}`)
		a.readUntil("subscribed", nil)
		var last float64
		for n := 0; n < 3; {
			f := a.expect("message")
			offset, _ := f["offset"].(float64)
			if last != 0 && offset != last+1 {
				t.Fatalf("offset %v after %v", offset, last)
			}
			last = offset
			n++
		}
		a.send(`{"type":"unsubscribe","topics":["busy"]}`)
		a.readUntil("unsubscribed", nil)
		a.send(`{"type":"presence","topic":"busy"}`)
		if f, err := a.next(); err != nil || f.text("type") != "presence" {
			t.Fatalf("got %v, %v after unsubscribed", f, err)
		}
	}
}

// readUntil reads messages until a frame of another type, which must be of this one.
func (c *client) readUntil(kind string, each func(frame)) {
	c.t.Helper()
	for {
		f, err := c.next()
		switch {
		case err != nil:
			c.t.Fatalf("waiting for %s: %v", kind, err)
		case f.text("type") == kind:
			return
		case f.text("type") != "message":
			c.t.Fatalf("got %v, want %s", f, kind)
		case each != nil:
			each(f)
		}
	}
}

// What a call missed while nothing answered reaches its peers by the connections that they have.
func TestCallRecoversWhenTheDatabaseIsBackAndClosesNobody(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	for round, fail := range []func(error){
		func(err error) { w1.directory.set(func(d *fakeDirectory) { d.err = err }) },
		func(err error) { w1.topics.fail(err) },
	} {
		sdp := fmt.Sprintf("o%d", round)
		a.send(fmt.Sprintf(`{"type":"offer","sdp":%q}`, sdp))
		b.awaitOffer(sdp)
		fail(berth.ErrUnavailable)
		w1.topics.Forget()
		w1.awaitCall(1, func(c *call) bool { return c.recovering && c.behind })
		fail(nil)
		b.awaitOffer(sdp)
		b.send(`{"type":"answer","sdp":"yes"}`)
		a.expect("answer")
	}
}

// awaitOffer reads until an offer, which may come after repeated ones.
func (c *client) awaitOffer(sdp string) {
	c.t.Helper()
	for c.expect("offer").text("sdp") != sdp {
		continue
	}
}

// awaitCall waits for something that is true of a call, under its lock.
func (r *rig) awaitCall(key berth.SessionKey, is func(*call) bool) {
	r.t.Helper()
	r.hub.mu.Lock()
	c := r.hub.sessions[key].call
	r.hub.mu.Unlock()
	eventually(r.t, "the call is as awaited", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return is(c)
	})
}

// A connection that recovers what its call missed after it was replaced changes nothing.
func TestRecoveryOfAReplacedConnectionChangesNothing(t *testing.T) {
	t.Parallel()
	w1, _ := newCallServers(t)
	a, _ := w1.join(1, "a")
	w1.hub.mu.Lock()
	c := w1.hub.sessions[1].call
	w1.hub.mu.Unlock()
	c.mu.Lock()
	old := c.peers["a"]
	c.mu.Unlock()
	newer, _ := w1.join(1, "a")
	a.expectClose(CloseReplaced)
	w1.directory.mu.Lock()
	connection := w1.directory.connected[peerKey(1, "a")]
	w1.directory.mu.Unlock()
	if err := old.recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	w1.directory.mu.Lock()
	defer w1.directory.mu.Unlock()
	if got := w1.directory.connected[peerKey(1, "a")]; got != connection {
		t.Errorf("connection %s is now %s", connection, got)
	}
	_ = newer
}

// An offer that was answered or replaced before it could be repeated is not repeated.
func TestOfferThatIsOpenNoLongerIsNotRepeated(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	a.send(`{"type":"offer","sdp":"o1"}`)
	b.expect("offer")
	w1.hub.mu.Lock()
	c := w1.hub.sessions[1].call
	w1.hub.mu.Unlock()
	c.mu.Lock()
	member, stale := c.peers["a"], c.peers["a"].offer
	c.mu.Unlock()
	a.send(`{"type":"offer","sdp":"o2"}`)
	if f := b.expect("offer"); f.text("sdp") != "o2" {
		t.Fatalf("got %v", f)
	}
	if err := member.sayAgain(t.Context(), repeat{offer: stale}); err != nil {
		t.Fatal(err)
	}
	a.send(`{"type":"candidate","candidate":null}`)
	b.expect("candidate") // and not o1
}

// While the database does not answer, nobody is sent away.
func TestShedWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	w1.directory.set(func(d *fakeDirectory) { d.err = berth.ErrUnavailable })
	w1.hub.Shed(berth.ShedOrder{Count: 1})
	eventually(t, "the database was asked", func() bool {
		w1.directory.mu.Lock()
		defer w1.directory.mu.Unlock()
		return w1.directory.gone > 0
	})
	w1.directory.set(func(d *fakeDirectory) { d.err = nil })
	a.send(`{"type":"offer","sdp":"o1"}`)
	b.expect("offer")
	eventually(t, "it may be shed again", func() bool { return w1.hub.Shed(berth.ShedOrder{Count: 1}) == 1 })
	a.expectClose(CloseRestart)
}

// Many connections that end at once are told side by side.
func TestDisconnectsAreToldTogether(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{PingInterval: time.Hour}, func(r *rig) {
		const peers = 200
		wires := make([]*fakeWire, peers)
		for n := range wires {
			wires[n] = r.connect(held(1+n), fmt.Sprintf("s-%d", 1+n), "a", newFakeWire())
		}
		r.directory.set(func(d *fakeDirectory) { d.goneDelay = time.Second })
		for _, w := range wires {
			close(w.in)
		}
		pass(time.Duration(peers/goneAtOnce+2) * time.Second)
		if n := r.directory.connections(); n != 0 {
			t.Fatalf("%d are still connected", n)
		}
	})
}
