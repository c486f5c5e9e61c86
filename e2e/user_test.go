package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/berthdev/berth/sdk/go"
)

// delivered sends to a user until it has so many connections, and returns what the last answer said.
func delivered(t testing.TB, client *sdk.Client, user string, connections int) sdk.Delivery {
	t.Helper()
	var got sdk.Delivery
	eventually(t, func() error {
		d, err := client.PublishToUser(t.Context(), user, "probe")
		if err != nil {
			return err
		}
		if got = *d; got.Connections != connections {
			return fmt.Errorf("%+v, want %d connections", got, connections)
		}
		return nil
	})
	return got
}

// message reads until a frame of type message that has this data.
func (c *talker) message(data any) frame {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for {
		f, err := c.next(ctx)
		if err != nil {
			c.t.Fatalf("%s waited for the message %v: %v", c.placed.Peer.ID, data, err)
		}
		if f["type"] == "message" && f["data"] == data {
			return f
		}
	}
}

// TestUserIsReachedWhereverItIsAndNotOnAWorkerThatDied has one user on two workers, of which one is killed.
func TestUserIsReachedWhereverItIsAndNotOnAWorkerThatDied(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	workers := map[string]*workerProcess{}
	for _, id := range []string{q.name("a"), q.name("b")} {
		workers[id] = q.startWorker(t, id, 1)
	}
	client := q.client(t)
	if got := delivered(t, client, "ann", 0); got.Workers != 0 {
		t.Errorf("before ann comes: %+v", got)
	}
	var talkers []*talker
	for i := range 2 {
		r := q.call(t, "POST", "/v1/sessions", fmt.Sprintf(`{"id":%q,"peer":{"user":"ann"}}`, q.name(fmt.Sprint(i))))
		if r.status != 201 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		talkers = append(talkers, talkAt(t, parse[talkPlacement](t, r)))
	}
	if got := delivered(t, client, "ann", 2); got.Workers != 2 {
		t.Errorf("on two workers: %+v", got)
	}
	if _, err := client.PublishToUser(t.Context(), "ann", "hello"); err != nil {
		t.Fatal(err)
	}
	for _, c := range talkers {
		if f := c.message("hello"); f["user"] != "ann" {
			t.Errorf("got %v", f)
		}
	}

	workers[talkers[0].placed.Owner.WorkerID].kill(t)
	if got := delivered(t, client, "ann", 1); got.Workers != 1 {
		t.Errorf("after one died: %+v", got)
	}
	talkers[1].message("probe")
	// Whoever comes back with its rejoin token is the same user. The other worker has room once its session left.
	talkers[1].send(`{"type":"bye"}`)
	delivered(t, client, "ann", 0)
	back := talkers[0].rejoin()
	delivered(t, client, "ann", 1)
	back.message("probe")
}

// TestTopicIsOneStreamOverSocketsAndHTTP publishes through one API process, and listens by another and by a worker.
func TestTopicIsOneStreamOverSocketsAndHTTP(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	q.startWorker(t, q.name("a"), 1)
	client := q.client(t)
	r := q.call(t, "POST", "/v1/sessions", `{"peer":{"topics":{"subscribe":["room:*"],"publish":["room:7"]}}}`)
	c := talkAt(t, parse[talkPlacement](t, r))
	c.send(`{"type":"subscribe","topics":[{"topic":"room:7"}]}`)
	c.expect("subscribed")

	first, err := client.Publish(t.Context(), "room:7", "one")
	if err != nil || first.Offset != 1 || first.Processes != 1 {
		t.Fatalf("got %+v, %v", first, err)
	}
	c.message("one")
	c.send(`{"type":"publish","topic":"room:7","data":"two"}`)
	c.message("two")

	// Another API process goes on after the first message, for a page that has the peer's token.
	stream := followTopic(t, run.stack.apis[1]+"/v1/topics/room:7/messages?token="+c.placed.Token+"&from="+first.Epoch+":1")
	stream.expect("subscribed", `"recovered":"complete"`)
	stream.expect("message", `"data":"two"`)
	eventually(t, func() error {
		topic, err := client.Topic(t.Context(), "room:7")
		if err == nil && (topic.Members != 2 || topic.Processes != 2 || topic.Offset != 2) {
			return fmt.Errorf("%+v, want a socket and a stream", topic)
		}
		return err
	})
	if third, err := client.Publish(t.Context(), "room:7", "three"); err != nil || third.Offset != 3 || third.Processes != 2 {
		t.Errorf("got %+v, %v", third, err)
	}
	stream.expect("message", `{"topic":"room:7","offset":3,"data":"three"}`)
	c.message("three")
}

// eventStream reads server-sent events.
type eventStream struct {
	t     testing.TB
	lines *bufio.Scanner
}

// followTopic opens a stream, until the test ends.
func followTopic(t testing.TB, url string) *eventStream {
	t.Helper()
	response, err := run.http.Do(newRequest(t, "GET", url, "", http.NoBody))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d", url, response.StatusCode)
	}
	return &eventStream{t, bufio.NewScanner(response.Body)}
}

// expect reads the next event, which must be of a type and have text in its data.
func (s *eventStream) expect(event, text string) {
	s.t.Helper()
	kind := ""
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch name {
		case "event":
			kind = value
		case "data":
			if kind != event || !strings.Contains(value, text) {
				s.t.Fatalf("got %s %s, want %s with %s", kind, value, event, text)
			}
			return
		}
	}
	s.t.Fatalf("the stream ended before %s: %v", event, s.lines.Err())
}
