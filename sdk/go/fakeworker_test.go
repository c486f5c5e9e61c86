package berth

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/pion/logging"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
)

// fakeWorker speaks the owner's side of the signaling protocol and sends a video track to whoever offers. Set its
// fields before the first connection.
type fakeWorker struct {
	*httptest.Server
	t *testing.T

	pingSeconds float64
	refuse      func(http.ResponseWriter, *http.Request) bool // answers instead of the upgrade
	welcomed    func(*fakePeer)                               // runs after the welcome, instead of serving; closes the socket
	offered     func(p *fakePeer, n int, sdp string) bool     // sees the n-th offer of a peer; true: it answered

	dials   atomic.Int64
	packets atomic.Int64 // received from clients
	peers   chan *fakePeer
	byes    atomic.Int64
	open    atomic.Int64 // sockets
	most    atomic.Int64 // sockets at once

	mux  webrtc.SettingEngine
	hole *blackhole

	mu      sync.Mutex
	sockets []*websocket.Conn
	wg      sync.WaitGroup
}

// fakePeer is one connection to a fakeWorker.
type fakePeer struct {
	worker *fakeWorker
	socket *websocket.Conn
	token  string
	pc     *webrtc.PeerConnection
	track  *webrtc.TrackLocalStaticSample
	frames chan frame // answers to the worker's own offers
	gone   func()     // its socket does not count any more
}

func newFakeWorker(t *testing.T) *fakeWorker {
	t.Helper()
	w := &fakeWorker{t: t, pingSeconds: 10, peers: make(chan *fakePeer, 64), hole: newBlackhole(t)}
	w.mux.LoggerFactory = &logging.DefaultLoggerFactory{Writer: io.Discard}
	w.mux.SetICEUDPMux(webrtc.NewICEUDPMux(w.mux.LoggerFactory.NewLogger("ice"), w.hole))
	w.mux.SetIncludeLoopbackCandidate(true)
	w.mux.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	w.Server = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(func() {
		w.cut()
		w.Close()
		w.wg.Wait()
		_ = w.hole.Close()
	})
	return w
}

// placement is what the API answers when this worker owns the session.
func (w *fakeWorker) placement(generation int64, apiURL string) *Placement {
	return &Placement{
		ID: "s-1", Kind: "media", State: "assigned", Generation: generation,
		Owner:       Owner{WorkerID: "w-" + w.Listener.Addr().String(), SignalingURL: "ws" + strings.TrimPrefix(w.URL, "http") + "/rtc?session=s-1"},
		Peer:        Peer{ID: "p-1", Role: "offer"},
		Token:       "secretjwt",
		RejoinToken: "secretrejoin",
		RejoinURL:   apiURL + "/v1/sessions/s-1/rejoin",
	}
}

// cut breaks all sockets without a close frame, as a kill does.
func (w *fakeWorker) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sockets {
		_ = s.CloseNow()
	}
	w.sockets = nil
}

// closeAll sends a close frame on all sockets.
func (w *fakeWorker) closeAll(code websocket.StatusCode, reason string) {
	w.mu.Lock()
	sockets := w.sockets
	w.sockets = nil
	w.mu.Unlock()
	for _, s := range sockets {
		_ = s.Close(code, reason)
	}
}

func (w *fakeWorker) serve(rw http.ResponseWriter, r *http.Request) {
	w.wg.Add(1)
	defer w.wg.Done()
	w.dials.Add(1)
	if w.refuse != nil && w.refuse(rw, r) {
		return
	}
	socket, err := websocket.Accept(rw, r, &websocket.AcceptOptions{Subprotocols: []string{protocol}})
	if err != nil {
		return
	}
	w.most.Store(max(w.most.Load(), w.open.Add(1)))
	defer func() { _ = socket.CloseNow() }()
	w.mu.Lock()
	w.sockets = append(w.sockets, socket)
	w.mu.Unlock()
	_, token, _ := strings.Cut(r.Header.Get("Sec-WebSocket-Protocol"), "token.")
	p := &fakePeer{worker: w, socket: socket, token: token, frames: make(chan frame, 16)}
	p.gone = sync.OnceFunc(func() { w.open.Add(-1) })
	defer p.gone()
	p.send(map[string]any{
		"type": "welcome", "session": "s-1", "generation": 1, "peer": map[string]any{"id": "p-1"},
		"peers": []any{}, "ice_servers": []any{}, "ping_seconds": w.pingSeconds,
	})
	if w.welcomed != nil {
		w.welcomed(p)
		return
	}
	p.run(context.WithoutCancel(r.Context()))
}

func (p *fakePeer) send(frame any) {
	data, _ := json.Marshal(frame)
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	_ = p.socket.Write(ctx, websocket.MessageText, data)
}

// run serves the connection until the socket or the peer is gone.
func (p *fakePeer) run(ctx context.Context) {
	settings := p.worker.mux
	pc, err := webrtc.NewAPI(webrtc.WithSettingEngine(settings)).NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		p.worker.t.Error(err)
		return
	}
	p.pc = pc
	heard := make(chan struct{}, 1)
	defer func() { p.close(heard) }()
	pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		for {
			if _, _, err := track.ReadRTP(); err != nil {
				return
			}
			p.worker.packets.Add(1)
			select {
			case heard <- struct{}{}:
			default:
			}
		}
	})
	pc.OnDataChannel(func(d *webrtc.DataChannel) {
		d.OnMessage(func(m webrtc.DataChannelMessage) { _ = d.Send(m.Data) })
	})
	pc.OnICECandidate(func(c *webrtc.ICECandidate) { p.send(localCandidate(c)) })
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	defer p.gone()
	offers := 0
	for {
		_, data, err := p.socket.Read(ctx)
		if err != nil {
			return
		}
		var f frame
		if err := json.Unmarshal(data, &f); err != nil {
			p.worker.t.Errorf("client sent %q", data)
			return
		}
		switch f.Type {
		case typeOffer:
			offers++
			if p.worker.offered != nil && p.worker.offered(p, offers, f.SDP) {
				continue
			}
			if offers == 1 {
				p.track = newTestTrack(p.worker.t)
				_, _ = pc.AddTrack(p.track)
				wg.Go(func() { feed(p.track, stop) })
			}
			p.answer(f.SDP)
			if offers == 1 {
				p.worker.peers <- p
			}
		case typeAnswer:
			_ = pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: f.SDP})
			p.frames <- f
		case typeCandidate:
			if f.Candidate != nil {
				_ = pc.AddICECandidate(*f.Candidate)
			}
		case typePong:
			p.frames <- f
		case typeBye:
			p.worker.byes.Add(1)
			_ = p.socket.Close(websocket.StatusNormalClosure, "bye")
			return
		}
	}
}

// close waits for the first packet if there is to be one: Pion deadlocks when it is closed between DTLS and RTP.
func (p *fakePeer) close(heard <-chan struct{}) {
	state := p.pc.ConnectionState()
	if state == webrtc.PeerConnectionStateConnecting || state == webrtc.PeerConnectionStateConnected {
		timer := time.NewTimer(time.Second)
		defer timer.Stop()
		select {
		case <-heard:
		case <-timer.C:
		}
	}
	_ = p.pc.GracefulClose()
}

func (p *fakePeer) answer(sdp string) {
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: sdp}); err != nil {
		p.worker.t.Errorf("apply offer: %v", err)
		return
	}
	answer, err := p.pc.CreateAnswer(nil)
	if err == nil {
		err = p.pc.SetLocalDescription(answer)
	}
	if err != nil {
		p.worker.t.Errorf("answer: %v", err)
		return
	}
	p.send(sdpFrame{Type: typeAnswer, SDP: answer.SDP})
}

// offer starts a negotiation from the worker's side.
func (p *fakePeer) offer() {
	offer, err := p.pc.CreateOffer(nil)
	if err == nil {
		err = p.pc.SetLocalDescription(offer)
	}
	if err != nil {
		p.worker.t.Errorf("offer: %v", err)
		return
	}
	p.send(sdpFrame{Type: typeOffer, SDP: offer.SDP})
}

func newTestTrack(t *testing.T) *webrtc.TrackLocalStaticSample {
	t.Helper()
	codec := webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeVP8, ClockRate: 90000}
	track, err := webrtc.NewTrackLocalStaticSample(codec, newID("video"), "test")
	if err != nil {
		t.Fatal(err)
	}
	return track
}

// feed writes frames that no decoder would like until stop is closed.
func feed(track *webrtc.TrackLocalStaticSample, stop <-chan struct{}) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_ = track.WriteSample(media.Sample{Data: []byte{0x10, 1, 2, 3}, Duration: 10 * time.Millisecond})
		case <-stop:
			return
		}
	}
}

// blackhole is a UDP socket that can lose everything in both directions.
type blackhole struct {
	net.PacketConn
	on atomic.Bool
}

func newBlackhole(t *testing.T) *blackhole {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &blackhole{PacketConn: conn}
}

func (b *blackhole) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		n, addr, err := b.PacketConn.ReadFrom(p)
		if err != nil || !b.on.Load() {
			return n, addr, err
		}
	}
}

func (b *blackhole) WriteTo(p []byte, addr net.Addr) (int, error) {
	if b.on.Load() {
		return len(p), nil
	}
	return b.PacketConn.WriteTo(p, addr)
}
