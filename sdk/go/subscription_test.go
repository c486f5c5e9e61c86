package berth

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// said is what a client sends about topics.
type said struct {
	Type   string          `json:"type"`
	ID     string          `json:"id"`
	Topics []wish          `json:"topics"`
	Topic  string          `json:"topic"`
	Data   json.RawMessage `json:"data"`
}

// listener is a signaling-only connection to a fakeWorker whose side a test plays.
type listener struct {
	t      *testing.T
	client *Client
	worker *fakeWorker
	frames chan heardFrame
	conn   *Conn

	mu       sync.Mutex
	messages []Message
	told     []Subscribed
	news     chan struct{} // one value for each callback
}

// heardFrame is a frame of the client, and on which connection it came.
type heardFrame struct {
	said

	peer *fakePeer
}

func newListener(t *testing.T, config ConnectConfig) *listener {
	t.Helper()
	l := &listener{t: t, worker: newFakeWorker(t), frames: make(chan heardFrame, 64), news: make(chan struct{}, 64)}
	l.worker.welcomed = l.serve
	l.client, _ = testClient(t, Config{})
	config.SignalingOnly = true
	before := config.OnMessage
	config.OnMessage = func(m Message) {
		l.mu.Lock()
		l.messages = append(l.messages, m)
		l.mu.Unlock()
		if before != nil {
			before(m)
		}
		l.news <- struct{}{}
	}
	config.OnSubscribed = func(s Subscribed) {
		l.mu.Lock()
		l.told = append(l.told, s)
		l.mu.Unlock()
		l.news <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	if l.conn, err = l.client.Connect(ctx, l.worker.placement(5, ""), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.conn.Close()
		receive(t, l.conn.Done(), "the connection's goroutines")
	})
	return l
}

// serve hands on what the client says until its socket is gone.
func (l *listener) serve(p *fakePeer) {
	for {
		_, data, err := p.socket.Read(context.Background())
		if err != nil {
			return
		}
		var f said
		if json.Unmarshal(data, &f) != nil || f.Type == typeBye {
			return
		}
		l.frames <- heardFrame{f, p}
	}
}

// asks waits for the client's next frame, which must be of a type.
func (l *listener) asks(kind string) heardFrame {
	l.t.Helper()
	f := receive(l.t, l.frames, kind)
	if f.Type != kind {
		l.t.Fatalf("the client sent %+v, want %s", f.said, kind)
	}
	return f
}

// hears sends frames and waits for as many callbacks.
func (l *listener) hears(p *fakePeer, frames ...map[string]any) {
	l.t.Helper()
	for _, f := range frames {
		p.send(f)
	}
	for range frames {
		receive(l.t, l.news, "callback")
	}
}

func (l *listener) offsets() (offsets []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.messages {
		offsets = append(offsets, m.Offset)
	}
	return offsets
}

func subscribedAt(topic string, offset int64, more map[string]any) map[string]any {
	f := map[string]any{"type": "subscribed", "topic": topic, "epoch": "e1", "offset": offset, "reply_to": subscribeID}
	maps.Copy(f, more)
	return f
}

func messageAt(topic string, offset int64) map[string]any {
	return map[string]any{"type": "message", "topic": topic, "offset": offset, "data": offset}
}

func TestListenerResumesBehindTheLastMessageItHeard(t *testing.T) {
	t.Parallel()
	l := newListener(t, ConnectConfig{Topics: []string{"a", "b"}})
	first := l.asks(typeSubscribe)
	if len(first.Topics) != 2 || first.Topics[0] != (wish{Topic: "a"}) {
		t.Fatalf("subscribed to %+v", first.Topics)
	}
	l.hears(first.peer, subscribedAt("a", 7, nil), messageAt("a", 8), messageAt("a", 9), subscribedAt("b", 3, nil),
		map[string]any{"type": "message", "user": "ann", "data": "hello"})
	l.worker.cut()

	again := l.asks(typeSubscribe)
	if a, b := again.Topics[0], again.Topics[1]; a.Epoch != "e1" || *a.Offset != 9 || b.Epoch != "e1" || *b.Offset != 3 {
		t.Fatalf("resumed at %+v %d and %+v %d", a, *a.Offset, b, *b.Offset)
	}
	l.hears(again.peer, subscribedAt("a", 9, map[string]any{"recovered": "complete"}), messageAt("a", 10),
		subscribedAt("b", 6, map[string]any{"recovered": "partial", "missing": map[string]any{"from": 4, "to": 6}}), messageAt("b", 7))
	if got := l.offsets(); !slices.Equal(got, []int64{8, 9, 0, 10, 7}) {
		t.Errorf("heard %v", got)
	}
	if m := l.messages[2]; m.User != "ann" || string(m.Data) != `"hello"` || m.Topic != "" {
		t.Errorf("to the user came %+v", m)
	}
	if s := l.told[2]; s.Recovered != RecoveredAll {
		t.Errorf("of a it was told %+v", s)
	}
	if s := l.told[3]; s.Recovered != RecoveredPart || s.MissingFrom != 4 || s.MissingTo != 6 {
		t.Errorf("of b it was told %+v", s)
	}
	eventually(t, "the connection", func() bool { return l.conn.State() == StateConnected })
}

func TestListenerAsksAgainForWhatTheOwnerCouldNotDo(t *testing.T) {
	t.Parallel()
	l := newListener(t, ConnectConfig{Topics: []string{"a", "b"}})
	first := l.asks(typeSubscribe)
	first.peer.send(map[string]any{"type": "error", "code": "unavailable", "topic": "a", "reply_to": subscribeID})
	l.hears(first.peer, map[string]any{"type": "error", "code": "forbidden", "message": "no", "topic": "b", "reply_to": subscribeID})
	if s := l.told[0]; s.Topic != "b" || s.Err == nil || !strings.Contains(s.Err.Error(), "forbidden") {
		t.Errorf("of b it was told %+v", s)
	}
	if again := l.asks(typeSubscribe); len(again.Topics) != 1 || again.Topics[0].Topic != "a" {
		t.Errorf("asked for %+v again", again.Topics)
	}
}

// An owner whose hands are full refuses a frame without looking into it.
func TestListenerAsksAgainForAllThatARefusedFrameAskedFor(t *testing.T) {
	t.Parallel()
	l := newListener(t, ConnectConfig{Topics: []string{"a", "b", "c"}})
	refuse := func(f heardFrame, code, topic string) {
		answer := map[string]any{"type": "error", "code": code, "message": "later", "reply_to": f.ID}
		if topic != "" {
			answer["topic"] = topic
		}
		f.peer.send(answer)
	}
	asks := func(want string) heardFrame {
		t.Helper()
		f := l.asks(typeSubscribe)
		var topics []string
		for _, w := range f.Topics {
			topics = append(topics, w.Topic)
		}
		if got := strings.Join(topics, " "); got != want {
			t.Errorf("asked for %s, want %s", got, want)
		}
		return f
	}
	refuse(asks("a b c"), "unavailable", "")
	refuse(asks("a b c"), "rate_limited", "")
	all := asks("a b c")
	l.hears(all.peer, subscribedAt("a", 1, nil), subscribedAt("c", 1, nil))
	refuse(all, "unavailable", "b")
	refuse(asks("b"), "unavailable", "")
	l.hears(asks("b").peer, subscribedAt("b", 1, nil))
	if told := len(l.told); told != 3 {
		t.Errorf("%d answers were passed on: %+v", told, l.told)
	}
}

func TestPublishOverAConnectionSaysWhereTheMessageIs(t *testing.T) {
	t.Parallel()
	l := newListener(t, ConnectConfig{})
	type result struct {
		published *Published
		err       error
	}
	results := make(chan result, 1)
	publish := func() {
		p, err := l.conn.Publish(t.Context(), "a", map[string]int{"n": 1})
		results <- result{p, err}
	}
	go publish()
	f := l.asks(typePublish)
	if f.Topic != "a" || string(f.Data) != `{"n":1}` {
		t.Errorf("published %+v", f.said)
	}
	f.peer.send(map[string]any{"type": "published", "topic": "a", "epoch": "e1", "offset": 4, "reply_to": f.ID})
	if r := receive(t, results, "answer"); r.err != nil || *r.published != (Published{Topic: "a", Epoch: "e1", Offset: 4}) {
		t.Errorf("got %+v, %v", r.published, r.err)
	}
	go publish()
	f = l.asks(typePublish)
	f.peer.send(map[string]any{"type": "error", "code": "forbidden", "message": "no", "reply_to": f.ID})
	if r := receive(t, results, "refusal"); r.err == nil || !strings.Contains(r.err.Error(), "forbidden") {
		t.Errorf("got %+v, %v", r.published, r.err)
	}
	go publish()
	l.asks(typePublish)
	l.worker.cut()
	if r := receive(t, results, "loss"); !errors.Is(r.err, errUnsure) {
		t.Errorf("got %+v, %v", r.published, r.err)
	}
	_ = l.conn.Close()
	if _, err := l.conn.Publish(t.Context(), "a", 1); !errors.Is(err, ErrNotConnected) {
		t.Errorf("after Close: %v", err)
	}
}

func TestCloseMayBeCalledByWhoHearsAMessage(t *testing.T) {
	t.Parallel()
	var l *listener
	closed := make(chan struct{})
	ready := make(chan struct{})
	l = newListener(t, ConnectConfig{Topics: []string{"a"}, OnMessage: func(Message) {
		<-ready
		_ = l.conn.Close()
		close(closed)
	}})
	close(ready)
	first := l.asks(typeSubscribe)
	l.hears(first.peer, subscribedAt("a", 0, nil), messageAt("a", 1))
	receive(t, closed, "Close")
}

// What an old link still had to deliver must not come after the next one asked for it.
func TestNothingIsHeardTwice(t *testing.T) {
	t.Parallel()
	s := newSubscriptions(&ConnectConfig{Topics: []string{"a"}})
	var heard []int64
	s.config.OnMessage = func(m Message) { heard = append(heard, m.Offset) }
	before, after := &link{}, &link{}
	s.current = before
	s.subscribed(before, &frame{Topic: "a", Epoch: "e", Offset: 1})
	s.heard(before, &frame{Topic: "a", Offset: 2})
	s.current = after
	s.heard(before, &frame{Topic: "a", Offset: 3})
	if at := s.wishes([]string{"a"}); *at[0].Offset != 2 {
		t.Errorf("resumes at %d", *at[0].Offset)
	}
	s.heard(after, &frame{Topic: "a", Offset: 3})
	if !slices.Equal(heard, []int64{2, 3}) {
		t.Errorf("heard %v", heard)
	}
}

func TestTooManyTopicsAreRefused(t *testing.T) {
	t.Parallel()
	client, _ := testClient(t, Config{})
	config := ConnectConfig{SignalingOnly: true, Topics: make([]string, maxTopics+1)}
	if _, err := client.Connect(t.Context(), &Placement{}, config); err == nil || !strings.Contains(err.Error(), "256") {
		t.Errorf("got %v", err)
	}
}

func TestRandomIsTheShareOfTheWindowThatIsWaited(t *testing.T) {
	t.Parallel()
	client, err := New(Config{Random: func() float64 { return 0.5 }})
	if err != nil {
		t.Fatal(err)
	}
	p := policy{signalingOnly: true, giveUpAfter: DefaultGiveUpAfter, random: client.random}
	if wait := p.next(closed(closeLost), 0).wait; wait != lostWindow/2 {
		t.Errorf("waits %v, want half of %v", wait, lostWindow)
	}
}
