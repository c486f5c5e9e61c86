package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// talker is one peer of a call, with a WebSocket of its own and no media.
type talker struct {
	t      testing.TB
	ws     *websocket.Conn
	placed talkPlacement
}

// talkPlacement is what a peer of a call needs of its placement.
type talkPlacement struct {
	placement

	Peer struct {
		ID   string `json:"id"`
		Role string `json:"role"`
	} `json:"peer"`
	Token       string `json:"token"`
	RejoinToken string `json:"rejoin_token"`
	RejoinURL   string `json:"rejoin_url"`
	Location    struct {
		SignalingURL string `json:"signaling_url"`
	} `json:"-"`
}

// UnmarshalJSON reads the owner's address beside what every placement has.
func (p *talkPlacement) UnmarshalJSON(data []byte) error {
	type plain talkPlacement
	if err := json.Unmarshal(data, &p.placement); err != nil {
		return err
	}
	owner := struct {
		Owner any `json:"owner"`
	}{Owner: &p.Location}
	if err := json.Unmarshal(data, &owner); err != nil {
		return err
	}
	return json.Unmarshal(data, (*plain)(p))
}

// frame is any frame of the server.
type frame map[string]any

// joinCall places a peer of a call and connects it.
func (q *quarter) joinCall(t testing.TB, session, peer string) *talker {
	t.Helper()
	r := q.call(t, "POST", "/v1/sessions", fmt.Sprintf(`{"id":%q,"kind":"call","peer":{"id":%q}}`, session, peer))
	if r.status != 201 && r.status != 200 {
		t.Fatalf("join call %s as %s: %d %s", session, peer, r.status, r.body)
	}
	return talkAt(t, parse[talkPlacement](t, r))
}

// talkAt connects to a placement and expects the welcome.
func talkAt(t testing.TB, placed talkPlacement) *talker {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ws, response, err := websocket.Dial(ctx, placed.Location.SignalingURL, &websocket.DialOptions{
		Subprotocols: []string{"berth.v1", "token." + placed.Token},
	})
	if err != nil {
		t.Fatalf("connect to %s: %v", placed.Location.SignalingURL, err)
	}
	if response != nil && response.Body != nil {
		_ = response.Body.Close()
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	c := &talker{t: t, ws: ws, placed: placed}
	c.expect("welcome")
	return c
}

func (c *talker) send(text string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// next is the next frame that is no ping, which is answered.
func (c *talker) next(ctx context.Context) (frame, error) {
	for {
		_, data, err := c.ws.Read(ctx)
		if err != nil {
			return nil, err
		}
		var f frame
		if err := json.Unmarshal(data, &f); err != nil {
			return nil, err
		}
		if f["type"] != "ping" {
			return f, nil
		}
		c.send(`{"type":"pong"}`)
	}
}

// expect is next for a frame of this type.
func (c *talker) expect(kind string) frame {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	f, err := c.next(ctx)
	if err != nil || f["type"] != kind {
		c.t.Fatalf("%s waited for %s: got %v, %v", c.placed.Peer.ID, kind, f, err)
	}
	return f
}

// expectClose reads until the connection is closed with the code.
func (c *talker) expectClose(code websocket.StatusCode) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for {
		_, err := c.next(ctx)
		if err == nil {
			continue
		}
		var closed websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != code {
			c.t.Fatalf("%s: got %v, want close code %d", c.placed.Peer.ID, err, code)
		}
		return
	}
}

// rejoin asks for the peer's placement after a loss, and connects there.
func (c *talker) rejoin() *talker {
	c.t.Helper()
	r := call(c.t, "POST", c.placed.RejoinURL, c.placed.RejoinToken, fmt.Sprintf(`{"generation":%d,"lost":true}`, c.placed.Generation))
	if r.status != 200 {
		c.t.Fatalf("rejoin: %d %s", r.status, r.body)
	}
	return talkAt(c.t, parse[talkPlacement](c.t, r))
}

// negotiate has a offer and b answer.
func negotiate(a, b *talker, offer, sdp string) {
	a.t.Helper()
	a.send(fmt.Sprintf(`{"type":"offer","sdp":%q}`, sdp))
	if f := b.expect(offer); f["sdp"] != sdp {
		a.t.Fatalf("got %v, want %s", f, sdp)
	}
	b.send(fmt.Sprintf(`{"type":"answer","sdp":%q}`, "to "+sdp))
	if f := a.expect("answer"); f["sdp"] != "to "+sdp {
		a.t.Fatalf("got %v", f)
	}
}

// apart starts calls until one has its peers on two workers.
func (q *quarter) apart(t testing.TB) (a, b *talker) {
	t.Helper()
	for i := range 64 {
		id := q.name(fmt.Sprintf("call-%d", i))
		a, b = q.joinCall(t, id, "a"), q.joinCall(t, id, "b")
		a.expect("peer-connected")
		if a.placed.Owner.WorkerID != b.placed.Owner.WorkerID {
			return a, b
		}
		a.send(`{"type":"bye"}`)
		b.expectClose(4404)
	}
	t.Fatal("64 calls had their peers on one worker each")
	return nil, nil
}

// newTalks starts two workers for calls.
func newTalks(t testing.TB) (*quarter, map[string]*workerProcess) {
	t.Helper()
	q := newQuarter(t, run.stack.get(t), nil)
	workers := map[string]*workerProcess{}
	for _, id := range []string{q.name("a"), q.name("b")} {
		workers[id] = q.launchWorker(t, id, 2)
	}
	for _, w := range workers {
		q.awaitReady(t, w, 0)
	}
	return q, workers
}

func TestCallSurvivesTheKillOfAPeersWorker(t *testing.T) {
	t.Parallel()
	q, workers := newTalks(t)
	a, b := q.apart(t)
	negotiate(a, b, "offer", "one")

	killed := time.Now()
	workers[a.placed.Owner.WorkerID].kill(t)
	f := b.expect("peer-disconnected")
	t.Logf("the survivor knew %d ms after kill -9", time.Since(killed).Milliseconds())
	if f["reason"] != "worker_lost" || f["role"] != "offer" || f["peer_id"] != "a" {
		t.Errorf("got %v", f)
	}
	back := a.rejoin()
	if back.placed.Owner.WorkerID != b.placed.Owner.WorkerID {
		t.Errorf("placed on %s, want the survivor's worker", back.placed.Owner.WorkerID)
	}
	b.expect("peer-connected")
	negotiate(back, b, "rejoin-offer", "two")
	if state := q.owner(t, a.placed.ID).state; state != "active" {
		t.Errorf("the call is %s", state)
	}
	back.send(`{"type":"bye"}`)
	back.expectClose(1000)
	if f := b.expect("peer-disconnected"); f["reason"] != "left" {
		t.Errorf("got %v", f)
	}
	b.expectClose(4404)
}

func TestPageReloadReturnsToItsCall(t *testing.T) {
	t.Parallel()
	q, _ := newTalks(t)
	a, b := q.apart(t)
	negotiate(a, b, "offer", "one")
	_ = a.ws.CloseNow()
	if f := b.expect("peer-disconnected"); f["reason"] != "lost" {
		t.Errorf("got %v", f)
	}
	back := a.rejoin()
	if back.placed.Owner.WorkerID != a.placed.Owner.WorkerID || back.placed.Generation != a.placed.Generation {
		t.Errorf("placed %+v, want the same owner", back.placed)
	}
	b.expect("peer-connected")
	negotiate(back, b, "rejoin-offer", "two")
}

func TestPausedWorkerKeepsItsCalls(t *testing.T) {
	t.Parallel()
	q, workers := newTalks(t)
	a, b := q.apart(t)
	negotiate(a, b, "offer", "one")
	w := workers[a.placed.Owner.WorkerID]
	w.signal(syscall.SIGSTOP)
	eventually(t, func() error {
		if late := q.worker(t, w.id).CordonedReason; !strings.Contains(late, "late") {
			return fmt.Errorf("cordoned: %q", late)
		}
		return nil
	})
	w.signal(syscall.SIGCONT)
	negotiate(a, b, "offer", "two")
	if state := q.owner(t, a.placed.ID).state; state != "active" {
		t.Errorf("the call is %s", state)
	}
}
