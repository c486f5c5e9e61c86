package signaling

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sync/errgroup"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// newTopicServer is a hub whose tokens allow what grant does.
func newTopicServer(t *testing.T, grant berth.TopicGrant, config Config) *rig {
	t.Helper()
	config.Inbox = "w/here"
	r := &rig{
		t: t, directory: newFakeDirectory(), topics: &fakeTopics{Memory: backplane.NewMemory()}, tokens: fakeTokens{grant},
	}
	return r.hubbed(config).serve()
}

// publish appends messages to a topic of acme: the numbers from first to last.
func (r *rig) publish(topic string, first, last int) (at backplane.Position) {
	r.t.Helper()
	for n := first; n <= last; n++ {
		published, err := r.topics.Publish(r.t.Context(),
			backplane.Outgoing{Topic: berth.TenantTopic("acme", topic), Data: fmt.Append(nil, n)})
		if err != nil {
			r.t.Fatal(err)
		}
		at = published[0].Position
	}
	return at
}

// expectNumbers reads the messages from first to last of a topic, whose offsets must be dense.
func (c *client) expectNumbers(topic string, first, last int) (offset float64) {
	c.t.Helper()
	for n := first; n <= last; n++ {
		f := c.expect("message")
		if f.text("topic") != topic || f["data"] != float64(n) {
			c.t.Fatalf("got %v, want %d", f, n)
		}
		at, _ := f["offset"].(float64)
		if offset != 0 && at != offset+1 {
			c.t.Fatalf("offset %v after %v", at, offset)
		}
		offset = at
	}
	return offset
}

func (c *client) subscribe(topic string, from *backplane.Position) frame {
	c.t.Helper()
	if from == nil {
		c.send(fmt.Sprintf(`{"type":"subscribe","id":"1","topics":[{"topic":%q}]}`, topic))
	} else {
		c.send(fmt.Sprintf(`{"type":"subscribe","id":"1","topics":[{"topic":%q,"epoch":%q,"offset":%d}]}`,
			topic, from.Epoch, from.Offset))
	}
	f := c.expect("subscribed")
	if f.text("topic") != topic || f.text("reply_to") != "1" {
		c.t.Fatalf("got %v", f)
	}
	return f
}

// position is that of a subscribed frame.
func (f frame) position() backplane.Position {
	offset, _ := f["offset"].(float64)
	return backplane.Position{Epoch: f.text("epoch"), Offset: int64(offset)}
}

func TestSubscriberGetsWhatIsPublished(t *testing.T) {
	t.Parallel()
	r := newTopicServer(t, berth.TopicGrant{}, Config{})
	a, _ := r.join(1, "a")
	b, _ := r.join(2, "b")
	r.publish("news", 1, 3)
	if f := a.subscribe("news", nil); f["recovered"] != nil || f.position().Offset != 3 {
		t.Errorf("got %v", f)
	}
	b.subscribe("news", nil)
	b.subscribe("other", nil)
	r.publish("news", 4, 9)
	a.expectNumbers("news", 4, 9)
	b.expectNumbers("news", 4, 9)
	b.send(`{"type":"unsubscribe","topics":["news","never"]}`)
	b.expect("unsubscribed")
	r.publish("news", 10, 10)
	r.publish("other", 1, 1)
	b.expectNumbers("other", 1, 1)
	a.expectNumbers("news", 10, 10)
}

func TestResumeAnswersWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	r := newTopicServer(t, berth.TopicGrant{}, Config{})
	a, _ := r.join(1, "a")
	start := a.subscribe("news", nil).position()
	r.publish("news", 1, 5)
	a.expectNumbers("news", 1, 5)
	start.Offset += 2
	if f := a.subscribe("news", &start); f["recovered"] != "complete" || f.position() != start {
		t.Errorf("got %v", f)
	}
	a.expectNumbers("news", 3, 5)
}

// TestScenario_W18: a position of a stream that was made anew is refused, and nothing foreign is served.
func TestScenario_W18_PositionOfAnotherEpochIsReset(t *testing.T) {
	t.Parallel()
	r := newTopicServer(t, berth.TopicGrant{}, Config{})
	a, _ := r.join(1, "a")
	at := r.publish("news", 1, 5)
	r.topics.Forget()
	r.publish("news", 6, 8)
	if f := a.subscribe("news", &at); f["recovered"] != "reset" || f.text("epoch") == at.Epoch {
		t.Errorf("got %v", f)
	}
	r.publish("news", 9, 9)
	a.expectNumbers("news", 9, 9)
	r.topics.Forget()
	if f := a.expect("subscribed"); f["recovered"] != "reset" || f["reply_to"] != nil {
		t.Errorf("got %v", f)
	}
	r.publish("news", 1, 2)
	a.expectNumbers("news", 1, 2)
}

func TestPartialResumeNamesTheMissingRange(t *testing.T) {
	t.Parallel()
	r := newTopicServer(t, berth.TopicGrant{}, Config{})
	a, _ := r.join(1, "a")
	at := r.publish("news", 1, 10)
	r.publish("news", 11, 10+backplane.Kept+5)
	f := a.subscribe("news", &at)
	if f["recovered"] != "partial" || f.member("missing")["from"] != 11.0 || f.member("missing")["to"] != 15.0 {
		t.Errorf("got %v", f)
	}
	a.expectNumbers("news", 16, 10+backplane.Kept+5)
}

// A history larger than the queue of a connection must not cut the client that asks for it: it is fed as it reads.
func TestReplayWaitsForItsReader(t *testing.T) {
	t.Parallel()
	r := newTopicServer(t, berth.TopicGrant{}, Config{QueueBytes: 64 << 10})
	a, _ := r.join(1, "a")
	start := a.subscribe("long", nil).position()
	a.send(`{"type":"unsubscribe","topics":["long"]}`)
	a.expect("unsubscribed")
	long := fmt.Appendf(nil, "%q", strings.Repeat("x", 32<<10))
	for range backplane.Kept {
		if _, err := r.topics.Publish(t.Context(), backplane.Outgoing{Topic: "t/acme/long", Data: long}); err != nil {
			t.Fatal(err)
		}
	}
	if f := a.subscribe("long", &start); f["recovered"] != "complete" {
		t.Errorf("got %v", f)
	}
	for n := 1; n <= backplane.Kept; n++ {
		if f := a.expect("message"); f["offset"] != float64(n) {
			t.Fatalf("offset %v, want %d", f["offset"], n)
		}
	}
}

func TestTokenDecidesOnTopics(t *testing.T) {
	t.Parallel()
	r := newTopicServer(t, berth.TopicGrant{Subscribe: []string{"room:*"}, Publish: []string{"room:1"}}, Config{})
	a, _ := r.join(1, "a")
	a.send(`{"type":"subscribe","id":"s","topics":[{"topic":"room:1"},{"topic":"secret"}]}`)
	refused, subscribed := a.expect("error"), a.expect("subscribed")
	if refused.text("code") != codeForbidden || refused.text("topic") != "secret" || refused.text("reply_to") != "s" {
		t.Errorf("got %v", refused)
	}
	if subscribed.text("topic") != "room:1" {
		t.Errorf("got %v", subscribed)
	}
	a.send(`{"type":"publish","id":"p","topic":"room:1","data":{"text":"hé"}}`)
	kinds := map[string]frame{}
	for range 2 {
		f, err := a.next()
		if err != nil {
			t.Fatal(err)
		}
		kinds[f.text("type")] = f
	}
	if kinds["published"]["offset"] != 1.0 || kinds["published"].text("reply_to") != "p" {
		t.Errorf("got %v", kinds)
	}
	if kinds["message"].member("data").text("text") != "hé" {
		t.Errorf("got %v", kinds)
	}
	a.send(`{"type":"publish","topic":"room:2","data":1}`)
	if f := a.expect("error"); f.text("code") != codeForbidden {
		t.Errorf("got %v", f)
	}
	a.send(`{"type":"presence","id":"n","topic":"room:1"}`)
	if f := a.expect("presence"); f["members"] != 1.0 {
		t.Errorf("got %v", f)
	}
	a.send(`{"type":"presence","topic":"secret"}`)
	if f := a.expect("error"); f.text("code") != codeForbidden {
		t.Errorf("got %v", f)
	}
}

func TestWrongTopicFramesAreAnswered(t *testing.T) {
	t.Parallel()
	r := newTopicServer(t, berth.TopicGrant{Publish: []string{"*"}}, Config{MaxSubscriptions: 2})
	a, _ := r.join(1, "a")
	for _, text := range []string{
		`{"type":"subscribe"}`, `{"type":"subscribe","topics":[]}`, `{"type":"subscribe","topics":["a"]}`,
		`{"type":"subscribe","topics":[{"topic":""}]}`, `{"type":"subscribe","topics":[{"topic":"a/b"}]}`,
		`{"type":"subscribe","topics":[{"topic":"a"},{"topic":"a"}]}`, `{"type":"subscribe","topics":[{"topic":"a","epoch":"e"}]}`,
		`{"type":"subscribe","topics":[{"topic":"a","offset":1}]}`, `{"type":"subscribe","topics":[{"topic":"a","epoch":"e","offset":-1}]}`,
		`{"type":"unsubscribe","topics":[]}`, `{"type":"publish","topic":"a"}`, `{"type":"publish","topic":"a","data":["\\\u0000", "\u0000"]}`,
		`{"type":"publish","topic":"*","data":1}`,
		`{"type":"presence"}`,
	} {
		a.send(text)
		if f := a.expect("error"); f.text("code") != codeInvalidFrame {
			t.Errorf("%s: got %v", text, f)
		}
	}
	a.send(`{"type":"publish","topic":"a","data":"` + strings.Repeat("x", backplane.MaxData) + `"}`)
	if f := a.expect("error"); f.text("code") != codeTooLarge {
		t.Errorf("got %v", f)
	}
	a.send(`{"type":"subscribe","topics":[{"topic":"a"},{"topic":"b"},{"topic":"c"}]}`)
	if f := a.expect("error"); f.text("code") != codeTooManySubs || f.text("topic") != "c" {
		t.Errorf("got %v", f)
	}
	r.topics.fail(berth.ErrUnavailable)
	a.expect("subscribed")
	a.expect("subscribed")
	a.send(`{"type":"publish","topic":"a","data":1}`)
	if f := a.expect("error"); f.text("code") != codeUnavailable {
		t.Errorf("got %v", f)
	}
}

// TestScenario_W11: subscriptions that repeat count once, and none is left at the end.
func TestScenario_W11_RepeatedSubscriptionsCountOnce(t *testing.T) {
	t.Parallel()
	r := newTopicServer(t, berth.TopicGrant{}, Config{})
	a, _ := r.join(1, "a")
	at := a.subscribe("news", nil).position()
	for range 100 {
		a.subscribe("news", &at)
	}
	r.publish("news", 1, 1)
	a.expectNumbers("news", 1, 1)
	if n := r.gauge("berth_signaling_subscriptions"); n != 1 {
		t.Errorf("%v subscriptions", n)
	}
	newer, _ := r.join(1, "a")
	a.expectClose(CloseReplaced)
	newer.subscribe("news", &at)
	newer.expectNumbers("news", 1, 1)
	newer.send(`{"type":"bye"}`)
	newer.expectClose(CloseBye)
	eventually(t, "no subscriptions", func() bool { return r.gauge("berth_signaling_subscriptions") == 0 })
	eventually(t, "no connections", func() bool { return r.gauge("berth_signaling_connections") == 0 })
}

// TestScenario_W15: a position taken before any message, and one used at once, resume.
func TestScenario_W15_ResumeBeforeTheFirstMessage(t *testing.T) {
	t.Parallel()
	r := newTopicServer(t, berth.TopicGrant{}, Config{})
	a, _ := r.join(1, "a")
	at := a.subscribe("news", nil).position()
	_ = a.ws.CloseNow()
	r.publish("news", 1, 2)
	for range 3 {
		a, _ = r.join(1, "a")
		if f := a.subscribe("news", &at); f["recovered"] != "complete" {
			t.Fatalf("got %v", f)
		}
		a.expectNumbers("news", 1, 2)
		_ = a.ws.CloseNow()
	}
}

// TestScenario_W20: the same position resumes again when the answer to it was lost.
func TestScenario_W20_ResumeIsIdempotent(t *testing.T) {
	t.Parallel()
	r := newTopicServer(t, berth.TopicGrant{}, Config{})
	a, _ := r.join(1, "a")
	at := a.subscribe("news", nil).position()
	r.publish("news", 1, 3)
	a.send(fmt.Sprintf(`{"type":"subscribe","topics":[{"topic":"news","epoch":%q,"offset":%d}]}`, at.Epoch, at.Offset))
	_ = a.ws.CloseNow() // whatever was answered
	b, _ := r.join(1, "a")
	b.subscribe("news", &at)
	b.expectNumbers("news", 1, 3)
}

// TestScenario_W21: a position is no right to a topic; tenants have topics of their own.
func TestScenario_W21_PositionIsNoRight(t *testing.T) {
	t.Parallel()
	r := newTopicServer(t, berth.TopicGrant{Subscribe: []string{"mine"}}, Config{})
	a, _ := r.join(1, "a")
	at := r.publish("theirs", 1, 3)
	a.send(fmt.Sprintf(`{"type":"subscribe","topics":[{"topic":"theirs","epoch":%q,"offset":0}]}`, at.Epoch))
	if f := a.expect("error"); f.text("code") != codeForbidden {
		t.Errorf("got %v", f)
	}
	published, err := r.topics.Publish(t.Context(), backplane.Outgoing{Topic: berth.TenantTopic("other", "mine"), Data: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	start := backplane.Position{Epoch: published[0].Position.Epoch}
	if f := a.subscribe("mine", &start); f["recovered"] != "reset" {
		t.Errorf("got %v", f)
	}
}

// TestScenario_W03 and B10: in a room of 20 one client stops reading. It is cut with 1013; the others get every message in
// order, and what waits for it stays bounded.
func TestScenario_W03_B10_StalledReaderInARoomHoldsUpNobody(t *testing.T) {
	t.Parallel()
	const members, messages = 19, 600
	r := newTopicServer(t, berth.TopicGrant{}, Config{QueueBytes: 1 << 20, PingInterval: time.Minute})
	stalled, _ := r.join(1, "stalled")
	stalled.subscribe("busy", nil)
	var readers errgroup.Group
	for n := range members {
		reader, _ := r.join(1, fmt.Sprintf("p-%d", n))
		reader.subscribe("busy", nil)
		readers.Go(func() error { return reader.readAll("busy", messages) })
	}
	r.hub.mu.Lock()
	slow := r.hub.sessions[1].peers["stalled"].sender
	r.hub.mu.Unlock()
	last := make(chan error, 1)
	go func() {
		last <- stalled.readOnceClosed(func() bool { _, closing := slow.closed(); return closing })
	}()
	data := fmt.Appendf(nil, "%q", strings.Repeat("x", 20<<10))
	for n := range messages {
		if _, err := r.topics.Publish(t.Context(), backplane.Outgoing{Topic: "t/acme/busy", Data: data}); err != nil {
			t.Fatal(err)
		}
		if n%32 == 31 { // no faster than a healthy reader reads
			eventually(t, "the healthy readers keep up", func() bool { return r.calm("stalled") })
		}
	}
	if err := readers.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := <-last; websocket.CloseStatus(got) != CloseTryLater {
		t.Errorf("the stalled client read %v, want 1013", got)
	}
}

// readOnceClosed begins to read when the hub has decided to close the connection, and returns how that ended.
func (c *client) readOnceClosed(ended func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ended() {
		select {
		case <-tick.C:
		case <-c.t.Context().Done():
			return c.t.Context().Err()
		}
	}
	for {
		if _, _, err := c.ws.Read(c.t.Context()); err != nil {
			return err
		}
	}
}

// calm reports whether nothing waits for any peer of session 1 but one, and fails if more than may waits for anybody.
func (r *rig) calm(except string) bool {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	calm := true
	for id, p := range r.hub.sessions[1].peers {
		p.sender.mu.Lock()
		waiting := p.sender.bytes
		p.sender.mu.Unlock()
		if waiting > r.hub.config.QueueBytes {
			r.t.Fatalf("%d bytes wait", waiting)
		}
		calm = calm && (waiting == 0 || id == except)
	}
	return calm
}

// readAll reads messages of a topic from its first, and fails if one is missing or out of order.
func (c *client) readAll(topic string, messages int) error {
	for n := 1; n <= messages; {
		_, data, err := c.ws.Read(c.t.Context())
		if err != nil {
			return fmt.Errorf("message %d: %w", n, err)
		}
		want := fmt.Sprintf(`{"type":"message","topic":%q,"offset":%d,`, topic, n)
		switch {
		case bytes.HasPrefix(data, []byte(want)):
			n++
		case bytes.HasPrefix(data, []byte(`{"type":"message"`)):
			return fmt.Errorf("got %.60s, want %s", data, want)
		}
	}
	return nil
}

func TestDirectMessageReachesEveryConnectionOfItsUser(t *testing.T) {
	t.Parallel()
	r := newTopicServer(t, berth.TopicGrant{}, Config{})
	direct := func(user, data string) {
		t.Helper()
		message := fmt.Sprintf(`{"direct":{"tenant":"acme","user":%q,"data":%s}}`, user, data)
		if _, err := r.topics.Publish(t.Context(), backplane.Outgoing{Topic: "w/here", Data: []byte(message)}); err != nil {
			t.Fatal(err)
		}
	}
	// A message that is sent as soon as the database knows of the connection comes after the welcome.
	r.directory.set(func(d *fakeDirectory) { d.during = func() { direct("ann", `"early"`) } })
	phone := r.dial("s-1", Protocol, "token."+token(held(1), "s-1", "phone")+".ann")
	phone.expect("welcome")
	if f := phone.expect("message"); f["data"] != "early" || f.text("user") != "ann" {
		t.Errorf("got %v", f)
	}
	r.directory.set(func(d *fakeDirectory) { d.during = nil })
	desktop := r.dial("s-2", Protocol, "token."+token(held(2), "s-2", "desktop")+".ann")
	desktop.expect("welcome")
	bob := r.dial("s-3", Protocol, "token."+token(held(3), "s-3", "bob")+".bob")
	bob.expect("welcome")
	direct("ann", `{"n":1}`)
	direct("nobody", `2`)
	direct("bob", `3`)
	for _, c := range []*client{phone, desktop} {
		if f := c.expect("message"); f.member("data")["n"] != 1.0 {
			t.Errorf("got %v", f)
		}
	}
	if f := bob.expect("message"); f["data"] != 3.0 {
		t.Errorf("got %v", f)
	}
	for _, c := range []*client{phone, desktop, bob} {
		c.send(`{"type":"bye"}`)
		c.expectClose(CloseBye)
	}
	eventually(t, "the inbox is shut", func() bool {
		r.hub.inbox.turn <- struct{}{}
		defer func() { <-r.hub.inbox.turn }()
		return r.hub.inbox.sub == nil && len(r.hub.inbox.users) == 0
	})
}

func TestUserIsRefusedWhileTheInboxCannotBeRead(t *testing.T) {
	t.Parallel()
	r := newTopicServer(t, berth.TopicGrant{}, Config{})
	r.topics.Close()
	c := r.dial("s-1", Protocol, "token."+token(held(1), "s-1", "phone")+".ann")
	c.expectClose(websocket.StatusTryAgainLater)
}

// What a call said while nobody heard it is made up for: the offer is repeated.
func TestCallRecoversWhatItMissed(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	a.send(`{"type":"offer","sdp":"o1"}`)
	b.expect("offer")
	w1.topics.Forget()
	if f := b.expect("offer"); f.text("sdp") != "o1" {
		t.Errorf("got %v", f)
	}
}
