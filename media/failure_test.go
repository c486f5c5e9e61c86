package media_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/berthdev/berth/media"
)

// panicking returns handlers that panic where they are named for.
func panicking() map[string]media.HandlerFactory {
	boom := func() error { panic("boom") }
	handlers := map[string]*stubHandler{
		"negotiate": {negotiate: func(*media.Negotiation) error { return boom() }},
		"run":       {run: func(context.Context) error { return boom() }},
		"track":     {track: func(*media.Track) error { return boom() }},
		"channel":   {channel: func(*media.Channel) error { return boom() }},
	}
	factories := make(map[string]media.HandlerFactory)
	for name, h := range handlers {
		factories[name] = func(*media.Session) (media.Handler, error) {
			return media.HandlerFunc(func(*media.Peer) (media.PeerHandler, error) { return h, nil }), nil
		}
	}
	factories["attach"] = func(*media.Session) (media.Handler, error) {
		return media.HandlerFunc(func(*media.Peer) (media.PeerHandler, error) { return nil, boom() }), nil
	}
	return factories
}

func TestAFailingPeerLeavesOthersAlone(t *testing.T) { //nolint:tparallel // the group ends before the good peers are checked
	t.Parallel()
	ctx := testContext(t)
	e, reg := newEngineWithMetrics(t, media.Config{Handlers: panicking()})
	shared := openSession(t, e, "echo")
	good := make([]*client, 20)
	for i := range good {
		good[i] = newClient(t, ctx, clientConfig{mimes: []string{webrtc.MimeTypeOpus}, calm: true})
		good[i].send(webrtc.MimeTypeOpus)
		good[i].connect(shared)
	}

	t.Run("bad", func(t *testing.T) {
		for _, name := range []string{"negotiate", "run", "track", "channel"} {
			t.Run("panic in "+name, func(t *testing.T) {
				t.Parallel()
				c := newClient(t, ctx, clientConfig{})
				c.send(webrtc.MimeTypeOpus)
				c.channel("chat")
				c.join(openSession(t, e, name))
				c.trickle()
				c.tryOffer(t, name == "negotiate")
				if err := c.events.await(t, ctx, media.StateFailed); !errors.Is(err, media.ErrPanic) {
					t.Errorf("failed with %v", err)
				}
				_ = c.events.await(t, ctx, media.StateClosed)
			})
		}
		t.Run("panic in attach", func(t *testing.T) {
			t.Parallel()
			_, err := openSession(t, e, "attach").AddPeer(ctx, media.PeerConfig{Events: newEvents()})
			if !errors.Is(err, media.ErrPanic) {
				t.Errorf("AddPeer: %v", err)
			}
		})
		t.Run("panic in an event", func(t *testing.T) {
			t.Parallel()
			c := newClient(t, ctx, clientConfig{})
			c.send(webrtc.MimeTypeOpus)
			var err error
			if c.peer, err = shared.AddPeer(ctx, media.PeerConfig{Events: brokenEvents{}}); err != nil {
				t.Fatal(err)
			}
			c.trickle()
			c.offer(nil)
			receive(t, ctx, c.peer.Done())
		})
		t.Run("data channel closed in mid-send", func(t *testing.T) {
			t.Parallel()
			c := newClient(t, ctx, clientConfig{})
			dc, messages := c.channel("chat")
			c.connect(shared)
			c.echoed(dc, messages, "ahoy")
			for range 50 {
				_ = dc.Send(make([]byte, 10000))
			}
			if err := dc.Close(); err != nil {
				t.Error(err)
			}
			if err := c.pc.Close(); err != nil {
				t.Error(err)
			}
			if err := c.events.await(t, ctx, media.StateClosed); !errors.Is(err, media.ErrLeft) {
				t.Errorf("closed with %v", err)
			}
		})
		t.Run("bad offers", func(t *testing.T) {
			t.Parallel()
			c := newClient(t, ctx, clientConfig{})
			c.send(webrtc.MimeTypeOpus)
			c.send(webrtc.MimeTypeVP8)
			c.join(shared)
			offer, err := c.pc.CreateOffer(nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, b := range breakSDP(offer.SDP) {
				if _, err := c.peer.Offer(ctx, b[0]); !errors.Is(err, media.ErrBadSDP) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	})
	for _, c := range good {
		c.expect(webrtc.RTPCodecTypeAudio, 3)
	}
	if n, err := testutil.GatherAndCount(reg, "berth_media_peers_failed_total"); err != nil || n != 1 {
		t.Errorf("%d reasons of failure counted, want one (panic): %v", n, err)
	}
}

// tryOffer offers and accepts the answer, or expects a failure.
func (c *client) tryOffer(t *testing.T, fails bool) {
	t.Helper()
	if !fails {
		c.offer(nil)
		return
	}
	offer, err := c.pc.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.peer.Offer(c.ctx, offer.SDP); !errors.Is(err, media.ErrPanic) {
		t.Errorf("Offer: %v", err)
	}
}

// brokenEvents panics at every event.
type brokenEvents struct{}

func (brokenEvents) Candidate(*media.Candidate)         { panic("candidate") }
func (brokenEvents) Offer(string)                       { panic("offer") }
func (brokenEvents) State(s media.PeerState, err error) { panic(fmt.Sprint(s, err)) }

// Closing must not hang while packets flow, whichever side begins and whatever is half done.
func TestClosingManyPeersWhileMediaFlowsIsBounded(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	e, reg := newEngineWithMetrics(t, media.Config{})
	s := openSession(t, e, "echo")
	clients := make([]*client, 50)
	for i := range clients {
		clients[i] = newClient(t, ctx, clientConfig{mimes: []string{webrtc.MimeTypeOpus}, calm: true})
		clients[i].send(webrtc.MimeTypeOpus)
		clients[i].join(s)
		clients[i].trickle()
		clients[i].offer(nil)
	}
	for _, c := range clients[:45] { // the rest may still be connecting
		_ = c.events.await(t, ctx, media.StateConnected)
	}
	clients[0].expect(webrtc.RTPCodecTypeAudio, 3)
	var wg sync.WaitGroup
	for _, c := range clients[:25] {
		wg.Go(func() { _ = c.pc.Close() })
	}
	wg.Go(func() { s.Close("test") })
	wg.Wait()
	for _, c := range clients {
		_ = c.events.await(t, ctx, media.StateClosed)
		receive(t, ctx, c.peer.Done())
	}
	receive(t, ctx, s.Done())
	if st := s.Stats(); st.Peers != 0 {
		t.Errorf("peers left: %d", st.Peers)
	}
	want := "# HELP berth_media_close_timeouts_total Peers that did not close in time.\n" +
		"# TYPE berth_media_close_timeouts_total counter\nberth_media_close_timeouts_total 0\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "berth_media_close_timeouts_total"); err != nil {
		t.Error(err)
	}
}

func TestAPeerThatDoesNotConnectFails(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	e := newEngine(t, media.Config{ConnectTimeout: 200 * time.Millisecond})
	c := newClient(t, ctx, clientConfig{})
	c.send(webrtc.MimeTypeOpus)
	c.join(openSession(t, e, "echo"))
	offer, err := c.pc.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.peer.Offer(ctx, offer.SDP); err != nil {
		t.Fatal(err)
	}
	if err := c.events.await(t, ctx, media.StateClosed); !errors.Is(err, media.ErrConnectTimeout) {
		t.Errorf("closed with %v", err)
	}
	if _, err := c.peer.Offer(ctx, offer.SDP); !errors.Is(err, media.ErrClosed) {
		t.Errorf("offer to a closed peer: %v", err)
	}
}

func TestARunThatFailsEndsThePeer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	cause := errors.New("out of ideas")
	e := newEngine(t, media.Config{Handlers: map[string]media.HandlerFactory{
		"weary": func(*media.Session) (media.Handler, error) {
			return media.HandlerFunc(func(*media.Peer) (media.PeerHandler, error) {
				return &stubHandler{run: func(context.Context) error { return cause }}, nil
			}), nil
		},
	}})
	c := newClient(t, ctx, clientConfig{})
	c.channel("chat")
	c.connect(openSession(t, e, "weary"))
	if err := c.events.await(t, ctx, media.StateClosed); !errors.Is(err, cause) || !errors.Is(err, media.ErrHandler) {
		t.Errorf("closed with %v", err)
	}
}

func TestLimitsAndUnknownNamesAreRefused(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	e := newEngine(t, media.Config{MaxPeers: 3, MaxSessionPeers: 2})
	if _, err := e.Open(media.SessionConfig{Handler: "nobody"}); !errors.Is(err, media.ErrUnknownHandler) {
		t.Errorf("unknown handler: %v", err)
	}
	if got := strings.Join(e.Handlers(), " "); got != "echo play" {
		t.Errorf("handlers: %s", got)
	}
	a, b := openSession(t, e, "echo"), openSession(t, e, "play")
	add := func(s *media.Session) (*media.Peer, error) {
		return s.AddPeer(ctx, media.PeerConfig{Events: newEvents()})
	}
	var peers []*media.Peer
	for _, s := range []*media.Session{a, a, b} {
		p, err := add(s)
		if err != nil {
			t.Fatalf("within the limits: %v", err)
		}
		peers = append(peers, p)
	}
	for _, s := range []*media.Session{a, b} {
		if _, err := add(s); !errors.Is(err, media.ErrTooManyPeers) {
			t.Errorf("beyond the limits: %v", err)
		}
	}
	peers[0].Close()
	receive(t, ctx, peers[0].Done())
	if _, err := add(b); err != nil {
		t.Errorf("after one left: %v", err)
	}
	if _, err := a.AddPeer(ctx, media.PeerConfig{}); err == nil {
		t.Error("a peer without events was accepted")
	}
	if err := e.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := e.Open(media.SessionConfig{}); !errors.Is(err, media.ErrClosed) {
		t.Errorf("open after close: %v", err)
	}
	if _, err := add(a); !errors.Is(err, media.ErrClosed) {
		t.Errorf("add after close: %v", err)
	}
}
