package signaling

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/berthdev/berth/internal/berth"
)

func TestWelcomeNamesSessionPeersAndServers(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{ICEServers: func(g Grant) []ICEServer {
		return []ICEServer{{URLs: []string{"turn:relay"}, Username: g.Peer.ID, Credential: "c"}}
	}})
	a, first := r.join(1, "a")
	want := frame{
		"type": "welcome", "session": "s-1", "generation": 101.0, "peer": map[string]any{"id": "a", "role": "offer"},
		"peers": []any{}, "ping_seconds": 10.0,
		"ice_servers": []any{map[string]any{"urls": []any{"turn:relay"}, "username": "a", "credential": "c"}},
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Fatal(diff)
	}
	_, second := r.join(1, "b")
	if diff := cmp.Diff([]any{map[string]any{"id": "a", "role": "offer"}}, second["peers"]); diff != "" {
		t.Fatal(diff)
	}
	if f := a.expect("peer-connected"); f["peer_id"] != "b" || f["role"] != "offer" {
		t.Fatal(f)
	}
}

func TestOfferIsAnsweredAndCandidatesFlowBothWays(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	c, _ := r.join(1, "a")
	early := `{"type":"candidate","candidate":{"candidate":"candidate:1","sdpMid":"0","sdpMLineIndex":0,"usernameFragment":"u"}}`
	c.send(early)
	c.send(`{"type":"offer","id":"7","sdp":"v=0"}`)
	if f := c.expect("answer"); f["sdp"] != "answer to v=0" || f["reply_to"] != "7" {
		t.Fatal(f)
	}
	c.send(`{"type":"candidate","candidate":null}`)
	c.send(`{"type":"candidate","candidate":{"candidate":""}}`)
	c.send(`{"type":"answer","sdp":"x"}`)
	if f := c.expect("error"); f["code"] != MediaNoOffer {
		t.Fatal(f)
	}
	r.media.mu.Lock()
	got, events := r.media.candidates, r.media.events["a"]
	r.media.mu.Unlock()
	if len(got) != 3 || got[0].Candidate != "candidate:1" || *got[0].SDPMid != "0" || *got[0].SDPMLineIndex != 0 ||
		*got[0].UsernameFragment != "u" || got[1] != nil || *got[2] != (Candidate{}) {
		t.Fatalf("media saw %+v", got)
	}
	events.Candidate(&Candidate{Candidate: "candidate:2"})
	events.Candidate(nil)
	events.Offer("again")
	if diff := cmp.Diff(map[string]any{"candidate": "candidate:2"}, c.expect("candidate")["candidate"]); diff != "" {
		t.Fatal(diff)
	}
	if f := c.expect("candidate"); f["candidate"] != nil {
		t.Fatal(f)
	}
	if f := c.expect("offer"); f["sdp"] != "again" {
		t.Fatal(f)
	}
}

func TestMediaThatEndedByItselfStartsAgainWithTheNextOffer(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	c, _ := r.join(1, "a")
	c.send(`{"type":"offer","sdp":"die"}`)
	c.expect("answer")
	r.media.mu.Lock()
	events := r.media.events["a"]
	r.media.mu.Unlock()
	events.Failed(ErrMediaClosed)
	if f := c.expect("error"); f["code"] != MediaFailed {
		t.Fatal(f)
	}
	c.send(`{"type":"offer","sdp":"fresh"}`)
	if f := c.expect("answer"); f["sdp"] != "answer to fresh" {
		t.Fatal(f)
	}
	if _, peers := r.media.open(); peers != 1 {
		t.Fatalf("%d media peers are open, want 1", peers)
	}
}

// Wrong frames are answered and change nothing: a correct one works afterwards.
func TestWrongFramesAreAnsweredWithAnErrorFrame(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 100_000/8) + "1" + strings.Repeat("}", 100_000/8)
	cases := []struct{ name, send, code, reply string }{
		{"unknown type", `{"type":"dance","id":"1"}`, "unknown_type", "1"},
		{"unknown member", `{"type":"offer","id":"2","sdp":"v=0","extra":1}`, "invalid_frame", "2"},
		{"other case", `{"type":"offer","id":"2","SDP":"v=0"}`, "invalid_frame", "2"},
		{"missing sdp", `{"type":"offer","id":"3"}`, "invalid_frame", "3"},
		{"empty sdp", `{"type":"offer","id":"3","sdp":""}`, "invalid_frame", "3"},
		{"sdp with NUL", `{"type":"offer","id":"3","sdp":"v=0\u0000"}`, "invalid_frame", "3"},
		{"sdp of another type", `{"type":"offer","id":"3","sdp":5}`, "invalid_frame", "3"},
		{"missing candidate", `{"type":"candidate","id":"4"}`, "invalid_frame", "4"},
		{"candidate with an unknown member", `{"type":"candidate","id":"4","candidate":{"candidate":"c","x":1}}`, "invalid_frame", "4"},
		{"line index out of range", `{"type":"candidate","candidate":{"candidate":"c","sdpMLineIndex":70000}}`, "invalid_frame", ""},
		{"bye with members", `{"type":"bye","sdp":"x"}`, "invalid_frame", ""},
		{"id of another type", `{"type":"pong","id":5}`, "invalid_frame", ""},
		{"type of another type", `{"type":5}`, "invalid_frame", ""},
		{"id too long", `{"type":"pong","id":"` + strings.Repeat("x", 129) + `"}`, "invalid_frame", ""},
		{"nested too deep", deep, "invalid_frame", ""},
		{"refused by media", `{"type":"offer","id":"5","sdp":"bad"}`, MediaBadSDP, "5"},
		{"failed in media", `{"type":"offer","id":"5","sdp":"secret"}`, MediaFailed, "5"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, _ := newServer(t, Config{}).join(1, "a")
			c.send(tc.send)
			f := c.expect("error")
			if f["code"] != tc.code || f.text("reply_to") != tc.reply || f["message"] == "" ||
				strings.Contains(f.text("message"), "internal detail") {
				t.Fatalf("got %v", f)
			}
			c.send(`{"type":"bye"}`)
			c.expectClose(CloseBye)
		})
	}
}

func TestClientThatSendsOnlyWrongFramesIsClosed(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	c, _ := r.join(1, "a")
	for range maxErrors + 1 {
		c.send(`{"type":"dance"}`)
	}
	c.expectClose(CloseBad)
}

func TestByeOfTheLastPeerEndsTheSession(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	a, _ := r.join(1, "a")
	b, _ := r.join(1, "b")
	a.expect("peer-connected")
	a.send(`{"type":"bye"}`)
	a.expectClose(CloseBye)
	if f := b.expect("peer-disconnected"); f["peer_id"] != "a" || f["reason"] != "left" {
		t.Fatal(f)
	}
	if got := r.directory.endedAs(held(1)); got != "" {
		t.Fatalf("ended as %q while a peer is connected", got)
	}
	b.send(`{"type":"bye"}`)
	b.expectClose(CloseBye)
	eventually(t, "session ended as left", func() bool { return r.directory.endedAs(held(1)) == berth.EndedLeft })
	eventually(t, "nothing is held", func() bool { return len(r.hub.Held()) == 0 })
	c := r.joinAt(held(1), "a")
	c.expectClose(CloseEnded)
}

func TestEndIsRepeatedUntilTheDatabaseTakesIt(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{SettleInterval: 5 * time.Millisecond})
	c, _ := r.join(1, "a")
	r.directory.set(func(d *fakeDirectory) { d.err = berth.ErrUnavailable })
	c.send(`{"type":"bye"}`)
	c.expectClose(CloseBye)
	if got := r.hub.Held(); len(got) != 1 {
		t.Fatalf("held %v while the end is not written", got)
	}
	late := r.joinAt(held(1), "a")
	late.expectClose(CloseEnded)
	r.directory.set(func(d *fakeDirectory) { d.err = nil })
	eventually(t, "end written", func() bool { return r.directory.endedAs(held(1)) == berth.EndedLeft })
	eventually(t, "nothing is held", func() bool { return len(r.hub.Held()) == 0 })
}

func TestLostPeerIsToldToTheOthersAndMayComeBack(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	a, _ := r.join(1, "a")
	b, _ := r.join(1, "b")
	a.expect("peer-connected")
	_ = b.ws.CloseNow()
	if f := a.expect("peer-disconnected"); f["peer_id"] != "b" || f["reason"] != "lost" {
		t.Fatal(f)
	}
	eventually(t, "disconnect written", func() bool { return r.directory.connections() == 1 })
	r.join(1, "b")
	a.expect("peer-connected")
}

func TestNewestConnectionOfAPeerWins(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	watcher, _ := r.join(1, "w")
	first, _ := r.join(1, "a")
	watcher.expect("peer-connected")
	second, _ := r.join(1, "a")
	first.expectClose(CloseReplaced)
	second.send(`{"type":"offer","sdp":"v=0"}`)
	second.expect("answer")
	if n := r.gauge("berth_signaling_connections"); n != 2 {
		t.Fatalf("%v connections counted, want 2", n)
	}
	second.send(`{"type":"bye"}`)
	if f := watcher.expect("peer-disconnected"); f["peer_id"] != "a" { // and no word of the replacement before it
		t.Fatal(f)
	}
}

func TestDroppedSessionsCloseWithTheirFate(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	moved, _ := r.join(1, "a")
	ended, _ := r.join(2, "a")
	r.hub.Drop(berth.Held{Key: 1, Generation: 1}, Fate{}) // another generation: no effect
	r.hub.Drop(held(1), Fate{})
	r.hub.Drop(held(2), Fate{Ended: true, Reason: berth.EndedDeleted})
	moved.expect("moved")
	moved.expectClose(CloseMoved)
	if ce := ended.expectClose(CloseEnded); !strings.Contains(ce.Reason, "deleted") {
		t.Fatal(ce)
	}
	eventually(t, "media closed", func() bool { s, p := r.media.open(); return s == 0 && p == 0 })
	if got := r.hub.Held(); len(got) != 0 {
		t.Fatal(got)
	}
	if len(r.directory.ended) != 0 {
		t.Fatal("the hub told the database what the database had said")
	}
}

func TestNewerGenerationReplacesTheOlderOne(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	old, _ := r.join(1, "a")
	next := berth.Held{Key: 1, Generation: 500}
	r.joinAt(next, "b").expect("welcome")
	old.expectClose(CloseMoved)
	r.joinAt(held(1), "c").expectClose(CloseMoved) // by what the hub knows, without asking
	if diff := cmp.Diff([]berth.Held{next}, r.hub.Held()); diff != "" {
		t.Fatal(diff)
	}
	if s, _ := r.media.open(); s != 1 {
		t.Fatalf("%d media sessions open", s)
	}
}

// A join that was under way while its session was dropped must not revive it: its media is gone.
func TestJoinDoesNotReviveADroppedSession(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	r.join(1, "a")
	r.hub.mu.Lock()
	s, a := r.hub.sessions[1], r.hub.sessions[1].peers["a"]
	r.hub.mu.Unlock()
	r.hub.Drop(held(1), Fate{Ended: true, Reason: berth.EndedDeleted})
	late := &peer{hub: r.hub, session: s, sender: a.sender, info: berth.Peer{ID: "b"}}
	if _, refused := r.hub.attach(s, late, nil, nil); refused == nil || refused.code != CloseEnded {
		t.Fatalf("attached to a dropped session: %+v", refused)
	}
	if got := r.hub.Held(); len(got) != 0 {
		t.Fatal(got)
	}
}

func TestRefusedClientReadsItsCloseFrameWhateverItSentMeanwhile(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	for range 20 {
		c := r.dial("s-1", Protocol)
		for range 3 {
			// The server may be gone already: what counts is that the close frame arrives.
			_ = c.ws.Write(t.Context(), websocket.MessageText, []byte(strings.Repeat("x", 100<<10)))
		}
		c.expectClose(CloseToken)
	}
}

func TestClosingTheHubClosesWith1012AndAWait(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	c, _ := r.join(1, "a")
	go r.hub.Close(t.Context(), time.Second)
	ce := c.expectClose(CloseRestart)
	if !strings.HasPrefix(ce.Reason, "retry_ms=") {
		t.Fatal(ce.Reason)
	}
}

func TestMediaThatCannotStartRefusesThePeer(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	r.media.mu.Lock()
	r.media.err = errors.New("no ports")
	r.media.mu.Unlock()
	r.joinAt(held(1), "a").expectClose(CloseTryLater)
	eventually(t, "disconnect written", func() bool { return r.directory.connections() == 0 })
	if got := r.hub.Held(); len(got) != 1 {
		t.Fatalf("holds %v, although the client was told to come back", got)
	}
	r.media.mu.Lock()
	r.media.err = fmt.Errorf("open: %w", ErrNoHandler)
	r.media.mu.Unlock()
	r.joinAt(held(2), "a").expectClose(CloseBad)
	if got := r.hub.Held(); len(got) != 1 {
		t.Fatalf("holds %v, although nobody comes back to what no handler serves", got)
	}
}
