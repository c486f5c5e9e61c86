package berth

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"
)

func TestMediaFlowsBothWaysUntilClose(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	r := newRig(t, "http://unused.invalid")
	conn := r.mustConnect(worker.placement(1, "http://unused.invalid"))
	eventually(t, "packets at the worker", func() bool { return worker.packets.Load() > 5 })
	if peer := receive(t, worker.peers, "the peer"); peer.token != "secretjwt" {
		t.Errorf("token %q", peer.token)
	}
	if s := conn.Stats(); s.State != StateConnected || s.Generation != 1 || s.Moves != 0 || len(s.Media) == 0 {
		t.Errorf("stats %+v", s)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { _ = conn.Close() })
	}
	wg.Wait()
	receive(t, conn.Done(), "the end")
	if conn.Err() != nil || conn.State() != StateClosed || worker.byes.Load() != 1 {
		t.Errorf("%s, %v, %d byes", conn.State(), conn.Err(), worker.byes.Load())
	}
	r.went("connecting connected closed")
	if s := conn.Stats(); len(s.Media) != 0 {
		t.Error("a closed connection has media")
	}
}

func TestDataChannelsCarryMessages(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	r := newRig(t, "http://unused.invalid")
	echoes := make(chan string, 1)
	r.config.DataChannels = []DataChannel{{Label: "chat", Bind: func(d *webrtc.DataChannel) {
		d.OnOpen(func() { _ = d.SendText("ahoy") })
		d.OnMessage(func(m webrtc.DataChannelMessage) { echoes <- string(m.Data) })
	}}}
	r.mustConnect(worker.placement(1, ""))
	if got := receive(t, echoes, "an echo"); got != "ahoy" {
		t.Errorf("got %q", got)
	}
}

func TestReceivingNeedsNoTrackOfOnesOwn(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	r := newRig(t, "http://unused.invalid")
	r.config.Tracks, r.config.Receive = nil, []webrtc.RTPCodecType{webrtc.RTPCodecTypeVideo}
	r.mustConnect(worker.placement(1, ""))
}

func TestFeedbackOnATrackArrives(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	r := newRig(t, "http://unused.invalid")
	lost := make(chan uint32, 64)
	r.config.OnRTCP = func(track webrtc.TrackLocal, packets []rtcp.Packet) {
		for _, p := range packets {
			if pli, ok := p.(*rtcp.PictureLossIndication); ok && track == r.config.Tracks[0] {
				lost <- pli.MediaSSRC
			}
		}
	}
	r.mustConnect(worker.placement(1, ""))
	eventually(t, "packets at the worker", func() bool { return worker.packets.Load() > 0 })
	peer := receive(t, worker.peers, "the peer")
	var ssrc uint32
	for _, receiver := range peer.pc.GetReceivers() {
		ssrc = uint32(receiver.Track().SSRC())
	}
	if err := peer.pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: ssrc}}); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, lost, "the picture loss indication"); got != ssrc {
		t.Errorf("for %d, want %d", got, ssrc)
	}
}

func TestAKilledWorkerIsTriedOnceThenTheSessionMoves(t *testing.T) {
	t.Parallel()
	first, second := newFakeWorker(t), newFakeWorker(t)
	api := newFakeAPI(t, answerJSON(200, nil))
	api.answers[0] = answerJSON(200, second.placement(9, api.URL))
	r := newRig(t, api.URL)
	conn := r.mustConnect(first.placement(5, api.URL))
	first.CloseClientConnections()
	_ = first.Listener.Close()
	first.cut()
	r.flows()
	eventually(t, "the move", func() bool { return conn.State() == StateConnected })
	if p := conn.Placement(); p.Generation != 9 || conn.Stats().Moves != 1 || conn.Stats().LastLoss == nil {
		t.Errorf("placement %v, stats %+v", p, conn.Stats())
	}
	seen := api.seen()
	if len(seen) != 1 || seen[0].body["generation"] != 5.0 || seen[0].body["lost"] != true || seen[0].bearer != "Bearer secretrejoin" {
		t.Errorf("rejoins %+v", seen)
	}
	r.went("connecting connected reconnecting connected")
	waits := r.naps.all()
	if len(waits) != 2 || waits[0] > 500*time.Millisecond || waits[1] > time.Second {
		t.Errorf("waits %v", waits)
	}
}

func TestACutSocketComesBackToTheSameURL(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	api := newFakeAPI(t, refuse(500, CodeInternal))
	r := newRig(t, api.URL)
	conn := r.mustConnect(worker.placement(5, api.URL))
	worker.cut()
	r.flows()
	eventually(t, "the connection", func() bool { return conn.State() == StateConnected })
	if worker.dials.Load() != 2 || len(api.seen()) != 0 || conn.Placement().Generation != 5 || conn.Stats().Moves != 0 {
		t.Errorf("%d dials, %d rejoins", worker.dials.Load(), len(api.seen()))
	}
	worker.cut() // not stable since: now the API is asked
	eventually(t, "a rejoin", func() bool { return len(api.seen()) > 0 })
}

func TestFinalCloseCodesEndTheConnection(t *testing.T) {
	t.Parallel()
	for code, want := range map[websocket.StatusCode]error{
		websocket.StatusNormalClosure: ErrSessionEnded,
		closeEnded:                    ErrSessionEnded,
		closeReplaced:                 ErrReplaced,
		closeBad:                      ErrRejected,
		1007:                          ErrRejected,
		1009:                          ErrRejected,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			worker := newFakeWorker(t)
			api := newFakeAPI(t, refuse(500, CodeInternal))
			r := newRig(t, api.URL)
			conn := r.mustConnect(worker.placement(5, api.URL))
			worker.closeAll(code, "that is all")
			receive(t, conn.Done(), "the end")
			var frame *CloseError
			if !errors.Is(conn.Err(), want) || !errors.As(conn.Err(), &frame) || frame.Code != int(code) {
				t.Errorf("ended with %v, want %v", conn.Err(), want)
			}
			if len(api.seen()) != 0 || worker.dials.Load() != 1 {
				t.Errorf("%d rejoins, %d dials", len(api.seen()), worker.dials.Load())
			}
			r.went("connecting connected closed")
		})
	}
}

func TestOtherCloseCodesLeadBack(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		code   websocket.StatusCode
		reason string
		rejoin bool
		least  time.Duration // of the first wait, with the largest jitter
		most   time.Duration
	}{
		"planned move": {1012, "retry_ms=1500", false, 2 * time.Second, 2 * time.Second},
		"overload":     {1013, "too slow", false, 8 * time.Second, 8 * time.Second},
		"going away":   {1001, "", false, 500 * time.Millisecond, 500 * time.Millisecond},
		"bug":          {1011, "", false, 500 * time.Millisecond, 500 * time.Millisecond},
		"moved":        {closeMoved, "moved", true, 0, 0},
		"token":        {closeToken, "token not accepted", true, 0, 0},
		"unknown":      {4999, "", false, 500 * time.Millisecond, 500 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worker := newFakeWorker(t)
			api := newFakeAPI(t, nil)
			api.answers[0] = answerJSON(200, worker.placement(6, api.URL))
			r := newRig(t, api.URL)
			r.client.random = func() float64 { return 1 }
			conn := r.mustConnect(worker.placement(5, api.URL))
			worker.closeAll(test.code, test.reason)
			r.flows()
			eventually(t, "the connection", func() bool { return conn.State() == StateConnected })
			wait := r.naps.all()[0]
			if wait < test.least || wait > test.most {
				t.Errorf("waited %s, want %s..%s", wait, test.least, test.most)
			}
			seen := api.seen()
			if (len(seen) == 1) != test.rejoin || (test.rejoin && seen[0].body["lost"] != nil) {
				t.Errorf("rejoins %+v, want %t and not lost", seen, test.rejoin)
			}
		})
	}
}

func TestAnAnnouncedMoveRejoinsInTime(t *testing.T) {
	t.Parallel()
	first, second := newFakeWorker(t), newFakeWorker(t)
	api := newFakeAPI(t, nil)
	api.answers[0] = answerJSON(200, second.placement(6, api.URL))
	r := newRig(t, api.URL)
	conn := r.mustConnect(first.placement(5, api.URL))
	receive(t, first.peers, "the peer").send(map[string]any{"type": "moved", "retry_ms": 50})
	r.flows()
	if p := conn.Placement(); p.Generation != 6 {
		t.Errorf("placement %v", p)
	}
}

func TestPingsAreAnswered(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	r := newRig(t, "http://unused.invalid")
	r.mustConnect(worker.placement(1, ""))
	peer := receive(t, worker.peers, "the peer")
	peer.send(plainFrame{Type: typePing})
	if f := receive(t, peer.frames, "a pong"); f.Type != typePong {
		t.Errorf("got %s", f.Type)
	}
}

func TestSilentSignalingIsALoss(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	worker.pingSeconds = 0.01 // promised, but never sent
	r := newRig(t, "http://unused.invalid")
	r.mustConnect(worker.placement(1, ""))
	r.flows()
	if worker.dials.Load() != 2 {
		t.Errorf("%d dials", worker.dials.Load())
	}
}

func TestServerOffersAreAnswered(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	r := newRig(t, "http://unused.invalid")
	r.mustConnect(worker.placement(1, ""))
	peer := receive(t, worker.peers, "the peer")
	track := newTestTrack(t)
	if _, err := peer.pc.AddTrack(track); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { feed(track, stop) })
	peer.offer()
	if f := receive(t, peer.frames, "an answer"); f.Type != typeAnswer {
		t.Errorf("got %s", f.Type)
	}
	r.flows()
	close(stop)
	wg.Wait()
}

// shortICE makes Pion notice a dead path in a fraction of a second.
func shortICE(s *webrtc.SettingEngine) {
	s.SetICETimeouts(300*time.Millisecond, 30*time.Second, 50*time.Millisecond)
}

func TestADeadMediaPathIsRestartedWhileSignalingLives(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	worker.offered = func(_ *fakePeer, n int, _ string) bool {
		if n == 2 {
			worker.hole.on.Store(false)
		}
		return false
	}
	r := newRig(t, "http://unused.invalid")
	r.config.SettingEngine = shortICE
	r.mustConnect(worker.placement(1, ""))
	worker.hole.on.Store(true)
	r.went("connecting connected reconnecting connected")
	if worker.dials.Load() != 1 || len(r.tracks) != 0 {
		t.Errorf("%d dials, %d new tracks; want the same link", worker.dials.Load(), len(r.tracks))
	}
	before := worker.packets.Load()
	eventually(t, "packets at the worker", func() bool { return worker.packets.Load() > before+5 })
}

func TestCrossedOffersAreResolvedByAFreshLink(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	worker.offered = func(p *fakePeer, n int, _ string) bool {
		if n == 1 {
			worker.hole.on.Store(false) // for the fresh link
			return false
		}
		p.offer() // impolite: ours stands
		return true
	}
	r := newRig(t, "http://unused.invalid")
	r.config.SettingEngine = shortICE
	conn := r.mustConnect(worker.placement(1, ""))
	worker.hole.on.Store(true)
	r.flows()
	eventually(t, "the connection", func() bool { return conn.State() == StateConnected })
	if worker.dials.Load() < 2 {
		t.Error("the same link")
	}
}

func TestMediaThatNeverConnectsIsALoss(t *testing.T) {
	t.Parallel()
	first, second := newFakeWorker(t), newFakeWorker(t)
	first.hole.on.Store(true)
	api := newFakeAPI(t, nil)
	api.answers[0] = answerJSON(200, second.placement(6, api.URL))
	r := newRig(t, api.URL)
	r.config.MediaTimeout = 3 * time.Second
	conn := r.mustConnect(first.placement(5, api.URL))
	if p := conn.Placement(); p.Generation != 6 || first.dials.Load() != 2 {
		t.Errorf("placement %v after %d dials", p, first.dials.Load())
	}
}

func TestARefusedOfferIsFinalTheSecondTime(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	worker.offered = func(p *fakePeer, _ int, _ string) bool {
		p.send(map[string]any{"type": "error", "code": "media", "message": "no codec", "reply_to": "offer-1"})
		return true
	}
	r := newRig(t, "http://unused.invalid")
	_, err := r.connect(worker.placement(1, ""))
	if !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), "no codec") || worker.dials.Load() != 2 {
		t.Errorf("%v after %d dials", err, worker.dials.Load())
	}
}

func TestAnExpiredTokenIsRefreshedFirst(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	api := newFakeAPI(t, nil)
	api.answers[0] = answerJSON(200, worker.placement(5, api.URL))
	r := newRig(t, api.URL)
	p := worker.placement(5, api.URL)
	p.TokenExpiresAt = time.Now().Add(-time.Second)
	r.mustConnect(p)
	worker.cut()
	r.flows()
	if n := len(api.seen()); n != 1 {
		t.Errorf("%d rejoins, want one for a fresh token", n)
	}
}

func TestCallbacksMayCloseTheConnection(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	r := newRig(t, "http://unused.invalid")
	conns, closed := make(chan *Conn, 1), make(chan struct{})
	r.config.OnState = func(c StateChange) {
		if c.State == StateConnected {
			_ = (<-conns).Close()
			close(closed)
		}
	}
	conn := r.mustConnect(worker.placement(1, ""))
	conns <- conn
	receive(t, closed, "Close in OnState")
	receive(t, conn.Done(), "the end")
}

func TestConnectEndsWithItsContext(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	refused := make(chan struct{}, 64)
	worker.welcomed = func(p *fakePeer) {
		_ = p.socket.Close(websocket.StatusServiceRestart, "")
		refused <- struct{}{}
	}
	r := newRig(t, "http://unused.invalid")
	r.client.sleep = sleep
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-refused
		cancel()
	}()
	_, err := r.client.Connect(ctx, worker.placement(1, ""), r.config)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := r.history(); !strings.HasSuffix(got, "closed") {
		t.Errorf("states %s", got)
	}
}

func TestConnectRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, "http://unused.invalid")
	good := Placement{Owner: Owner{SignalingURL: "ws://127.0.0.1:1/rtc"}, Token: "x"}
	for name, test := range map[string]struct {
		placement *Placement
		config    ConnectConfig
	}{
		"Tracks":        {&good, ConnectConfig{}},
		"Receive":       {&good, ConnectConfig{Receive: []webrtc.RTPCodecType{0}}},
		"negative":      {&good, ConnectConfig{Tracks: r.config.Tracks, GiveUpAfter: -1}},
		"nil":           {nil, r.config},
		"signaling_url": {&Placement{Token: "x", Owner: Owner{SignalingURL: "ftp://x/"}}, r.config},
		"token":         {&Placement{Owner: good.Owner}, r.config},
	} {
		_, err := r.client.Connect(t.Context(), test.placement, test.config)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPrepareMayRefuse(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	r := newRig(t, "http://unused.invalid")
	wrong := errors.New("no camera")
	r.config.Prepare = func(*webrtc.PeerConnection) error { return wrong }
	if _, err := r.connect(worker.placement(1, "")); !errors.Is(err, wrong) || worker.dials.Load() != 1 {
		t.Errorf("%v after %d dials", err, worker.dials.Load())
	}
}
