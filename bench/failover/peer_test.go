package failover

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	sdk "github.com/berthdev/berth/sdk/go"
)

// newWorker is a server that welcomes a peer, sends it some frames, and tells what it says.
func newWorker(t *testing.T, frames ...string) (url string, said chan frame) {
	t.Helper()
	said = make(chan frame, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"berth.v1"}})
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = socket.CloseNow() }()
		for _, f := range append([]string{`{"type":"welcome"}`}, frames...) {
			if socket.Write(r.Context(), websocket.MessageText, []byte(f)) != nil {
				return
			}
		}
		for {
			_, data, err := socket.Read(r.Context())
			if err != nil {
				return
			}
			var f frame
			if err := json.Unmarshal(data, &f); err != nil {
				t.Error(err)
			}
			if f.Type == "bye" {
				return
			}
			said <- f
		}
	}))
	t.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http"), said
}

func newPeer(url string) *peer {
	return &peer{id: "a", placement: &sdk.Placement{ID: "c-1", Token: "t", Owner: sdk.Owner{SignalingURL: url}}}
}

func TestPeerAnswersPingsAndOffersByItself(t *testing.T) {
	t.Parallel()
	url, said := newWorker(t, `{"type":"ping"}`, `{"type":"rejoin-offer","sdp":"v=0","peer_id":"b"}`)
	p := newPeer(url)
	began := time.Now()
	if err := p.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer p.hangUp()
	if f := <-said; f.Type != "pong" {
		t.Errorf("%+v, want a pong", f)
	}
	if f := <-said; f.Type != "answer" || f.SDP != "answer to v=0" {
		t.Errorf("%+v, want an answer", f)
	}
	heard := func() bool { return p.has("rejoin-offer", began) }
	if !eventually(t.Context(), connectLimit, heard) || p.has("rejoin-offer", time.Now()) {
		t.Error("the offer came, and before now")
	}
}

func TestPeerKnowsWhetherItWasMeantToBeDropped(t *testing.T) {
	t.Parallel()
	for _, meant := range []bool{true, false} {
		url, _ := newWorker(t)
		p := newPeer(url)
		if err := p.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if meant {
			p.doom()
		}
		if err := p.say(t.Context(), frame{Type: "bye"}); err != nil {
			t.Fatal(err)
		}
		if !eventually(t.Context(), connectLimit, p.gone) || p.dropped() == meant {
			t.Errorf("meant %t: gone %t, dropped %t", meant, p.gone(), p.dropped())
		}
		p.hangUp()
	}
}

func TestPeerSaysWhyThereIsNoWelcome(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"berth.v1"}})
		if err == nil {
			_ = socket.Close(4410, "stale generation")
		}
	}))
	defer server.Close()
	p := newPeer("ws" + strings.TrimPrefix(server.URL, "http"))
	defer p.hangUp()
	if err := p.connect(t.Context()); err == nil || !strings.Contains(err.Error(), "stale generation") {
		t.Errorf("%v", err)
	}
}

func TestClientAsksAnotherAPIWhenOneIsAway(t *testing.T) {
	t.Parallel()
	var asked [2]atomic.Int32
	var apis []*member
	for i := range asked {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked[i].Add(1) == 1 && i == 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			if r.Header.Get("Authorization") != "Bearer k" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"id":"c-1","owner":{"worker_id":"w1"}}`))
		}))
		defer server.Close()
		apis = append(apis, &member{address: strings.TrimPrefix(server.URL, "http://")})
	}
	c := newClient(map[string]string{tenantCalls: "k", tenantOther: "wrong"}, apis)
	defer c.close()
	for range 4 {
		if p, err := c.seat(t.Context(), "c-1", "a"); err != nil || p.Owner.WorkerID != "w1" {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	before := asked[0].Load()
	apis[0].away.Store(true)
	for range 4 {
		if _, err := c.seat(t.Context(), "c-1", "a"); err != nil {
			t.Fatal(err)
		}
	}
	if asked[0].Load() != before {
		t.Error("an API that is away was asked")
	}
	if err := c.end(t.Context(), tenantOther, "c-1"); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("%v: a refusal is final", err)
	}
}

func TestProcessIsHeardLineByLineAndExplainsItsEnd(t *testing.T) {
	t.Parallel()
	var lines []string
	p, err := startProcess(exec.Command("sh", "-c", "echo one >&2; echo two >&2; exit 3"), func(_ time.Time, line []byte) {
		lines = append(lines, string(line))
	})
	if err != nil {
		t.Fatal(err)
	}
	<-p.done
	if strings.Join(lines, " ") != "one two" || p.err == nil || p.said() != "one\ntwo" {
		t.Errorf("%q, %v, %q", lines, p.err, p.said())
	}
	p.kill() // it is gone already
	if _, err := startProcess(exec.Command("/nowhere/berth"), nil); err == nil {
		t.Error("a binary that is not there was started")
	}
}
