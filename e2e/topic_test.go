package e2e

import (
	"fmt"
	"testing"

	"github.com/coder/websocket"

	sdk "github.com/berthdev/berth/sdk/go"
)

// listener is a peer of a call that listens to one topic, and remembers where it is.
type listener struct {
	*talker

	epoch  string
	offset int64
}

// listen subscribes to topic "stream", from where the listener was.
func (l *listener) listen() {
	l.t.Helper()
	if l.epoch == "" {
		l.send(`{"type":"subscribe","topics":[{"topic":"stream"}]}`)
	} else {
		l.send(fmt.Sprintf(`{"type":"subscribe","topics":[{"topic":"stream","epoch":%q,"offset":%d}]}`, l.epoch, l.offset))
	}
	f := l.expect("subscribed")
	if l.epoch != "" && (f["recovered"] != "complete" || f["epoch"] != l.epoch) {
		l.t.Fatalf("got %v", f)
	}
	l.epoch, _ = f["epoch"].(string)
	if l.offset == 0 {
		l.offset = whole(f["offset"])
	}
}

// readTo reads messages up to an offset, and fails if one is missing, doubled or out of order.
func (l *listener) readTo(offset int64) {
	l.t.Helper()
	for l.offset < offset {
		if f := l.expect("message"); whole(f["offset"]) != l.offset+1 || whole(f["data"]) != l.offset+1 {
			l.t.Fatalf("got %v after offset %d", f, l.offset)
		}
		l.offset++
	}
}

func whole(number any) int64 {
	n, _ := number.(float64)
	return int64(n)
}

// listeners are the two peers of a call on different workers, both listening.
func (q *quarter) listeners(t testing.TB) (a, b *listener) {
	t.Helper()
	one, other := q.apart(t)
	a, b = &listener{talker: one}, &listener{talker: other}
	a.listen()
	b.listen()
	return a, b
}

// publishTo publishes numbers to topic "stream" until its newest message has the offset.
func publishTo(t testing.TB, client *sdk.Client, from, offset int64) {
	t.Helper()
	for n := from + 1; n <= offset; n++ {
		published, err := client.Publish(t.Context(), "stream", n)
		if err != nil || published.Offset != n {
			t.Fatalf("got %+v, %v; want offset %d", published, err, n)
		}
	}
}

// TestScenario_W16: a client of a worker that is killed in mid-stream resumes at another, and misses nothing.
func TestScenario_W16_ResumeAfterTheWorkerWasKilled(t *testing.T) {
	t.Parallel()
	q, workers := newTalks(t)
	a, b := q.listeners(t)
	client := q.client(t)
	publishTo(t, client, 0, 20)
	a.readTo(20)
	workers[a.placed.Owner.WorkerID].kill(t)
	b.readTo(20)
	b.expect("peer-disconnected")
	publishTo(t, client, 20, 60)
	a.talker = a.rejoin()
	a.listen()
	publishTo(t, client, 60, 80)
	a.readTo(80)
}

// A connection that is shed is told when to come back, finds another worker, and misses nothing.
func TestShedConnectionMovesAndMissesNothing(t *testing.T) {
	t.Parallel()
	q, _ := newTalks(t)
	a, b := q.listeners(t)
	client := q.client(t)
	publishTo(t, client, 0, 5)
	a.readTo(5)
	from := a.placed.Owner.WorkerID
	r := q.operate(t, "POST", "/v1/workers/"+from+"/shed", `{"count":1,"spread_seconds":1}`)
	if r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	a.expectClose(websocket.StatusServiceRestart)
	b.readTo(5)
	if f := b.expect("peer-disconnected"); f["reason"] != "moved" {
		t.Errorf("got %v", f)
	}
	publishTo(t, client, 5, 10)
	// The client tries its URL first, as its SDK does, and is told to rejoin.
	ws, response, err := websocket.Dial(t.Context(), a.placed.Location.SignalingURL, &websocket.DialOptions{
		Subprotocols: []string{"berth.v1", "token." + a.placed.Token},
	})
	if err != nil {
		t.Fatal(err)
	}
	if response.Body != nil {
		_ = response.Body.Close()
	}
	(&talker{t: t, ws: ws, placed: a.placed}).expectClose(4410)
	a.talker = a.rejoin()
	if a.placed.Owner.WorkerID == from {
		t.Errorf("it is on %s again", from)
	}
	a.listen()
	publishTo(t, client, 10, 12)
	a.readTo(12)
}
