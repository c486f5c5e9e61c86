package berth

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
)

func newTopicClient(t *testing.T, answers ...func(http.ResponseWriter, *http.Request)) (*Client, *fakeAPI) {
	t.Helper()
	api := newFakeAPI(t, answers...)
	c, err := New(Config{URL: api.URL, APIKey: "key"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c, api
}

func TestPublishSaysWhereTheMessageIs(t *testing.T) {
	t.Parallel()
	c, api := newTopicClient(t, answerJSON(200, map[string]any{"topic": "room:7", "epoch": "e", "offset": 3, "processes": 2}))
	got, err := c.Publish(t.Context(), "room:7", map[string]int{"n": 1})
	if err != nil || *got != (Published{Topic: "room:7", Epoch: "e", Offset: 3, Processes: 2}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := c.Publish(t.Context(), "room:7", nil); err != nil {
		t.Errorf("null is a message too: %v", err)
	}
	sent := api.seen()
	if first := sent[0]; first.method != "POST" || first.path != "/v1/topics/room:7/messages" || first.bearer != "Bearer key" ||
		!reflect.DeepEqual(first.body, map[string]any{"data": map[string]any{"n": 1.0}}) {
		t.Errorf("sent %+v", first)
	}
	if data, there := sent[1].body["data"]; !there || data != nil {
		t.Errorf("sent %+v", sent[1])
	}
}

func TestPublishToUserSaysWhomItReached(t *testing.T) {
	t.Parallel()
	c, api := newTopicClient(t, answerJSON(200, map[string]any{"user": "ann", "connections": 0, "workers": 0}))
	got, err := c.PublishToUser(t.Context(), "ann", "hello")
	if err != nil || *got != (Delivery{User: "ann"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if sent := api.seen()[0]; sent.path != "/v1/users/ann/messages" || sent.body["data"] != "hello" {
		t.Errorf("sent %+v", sent)
	}
}

func TestTopicIsReadWithItsListeners(t *testing.T) {
	t.Parallel()
	c, api := newTopicClient(t, answerJSON(200, map[string]any{"topic": "a", "offset": 0, "members": 5, "processes": 2}))
	got, err := c.Topic(t.Context(), "a")
	if err != nil || *got != (Topic{Topic: "a", Members: 5, Processes: 2}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if sent := api.seen()[0]; sent.method != "GET" || sent.path != "/v1/topics/a" {
		t.Errorf("sent %+v", sent)
	}
}

func TestMessagesAreSentOnce(t *testing.T) {
	t.Parallel()
	c, api := newTopicClient(t, answerJSON(503, map[string]any{"code": "unavailable", "retryable": true}))
	if _, err := c.Publish(t.Context(), "a", 1); err == nil {
		t.Error("no error")
	}
	if _, err := c.PublishToUser(t.Context(), "a", 1); err == nil {
		t.Error("no error")
	}
	if n := len(api.seen()); n != 2 {
		t.Errorf("%d requests", n)
	}
}

func TestMessagesNeedSomebodyToGoTo(t *testing.T) {
	t.Parallel()
	c, api := newTopicClient(t, answerJSON(200, nil))
	_, err1 := c.Publish(t.Context(), "", 1)
	_, err2 := c.PublishToUser(t.Context(), "a/b", 1)
	_, err3 := c.Topic(t.Context(), "")
	_, err4 := c.Publish(t.Context(), "a", func() {})
	for i, err := range []error{err1, err2, err3, err4} {
		if err == nil {
			t.Errorf("%d: no error", i+1)
		}
	}
	if n := len(api.seen()); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestPeerSaysItsUserAndTopics(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		peer Peer
		want string
	}{
		{Peer{ID: "p"}, `{"id":"p"}`},
		{Peer{User: "ann", Topics: &TopicGrant{}}, `{"user":"ann","topics":{}}`},
		{Peer{Topics: &TopicGrant{Subscribe: []string{}, Publish: []string{"a", "b:*"}}}, `{"topics":{"subscribe":[],"publish":["a","b:*"]}}`},
	} {
		if got, err := json.Marshal(tc.peer); err != nil || string(got) != tc.want {
			t.Errorf("got %s, %v, want %s", got, err, tc.want)
		}
	}
	c, api := newTopicClient(t, answerJSON(201, map[string]any{"id": "s", "peer": map[string]any{"id": "p", "role": "offer", "user": "ann"}}))
	placed, err := c.CreateSession(t.Context(), CreateSession{Peer: Peer{User: "ann"}})
	if err != nil || placed.Peer.User != "ann" {
		t.Errorf("got %+v, %v", placed, err)
	}
	if sent := api.seen()[0].body["peer"]; !reflect.DeepEqual(sent, map[string]any{"user": "ann"}) {
		t.Errorf("sent %+v", sent)
	}
}
