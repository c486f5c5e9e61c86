package media_test

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/media"
)

// testTimeout bounds every wait. It is long because the race detector and a busy machine are slow.
const testTimeout = 2 * time.Minute

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// newEngine starts an engine on a free loopback port and closes it at the end of the test.
func newEngine(t *testing.T, cfg media.Config) *media.Engine {
	t.Helper()
	e, _ := newEngineWithMetrics(t, cfg)
	return e
}

func newEngineWithMetrics(t *testing.T, cfg media.Config) (*media.Engine, *prometheus.Registry) {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	reg := prometheus.NewRegistry()
	e, err := media.New(cfg, slog.New(slog.DiscardHandler), reg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testTimeout)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e, reg
}

func openSession(t *testing.T, e *media.Engine, handler string) *media.Session {
	t.Helper()
	s, err := e.Open(media.SessionConfig{Key: t.Name(), Handler: handler})
	if err != nil {
		t.Fatalf("Open(%q): %v", handler, err)
	}
	return s
}

// stateChange is one State event.
type stateChange struct {
	state media.PeerState
	err   error
}

// events collects the events of a peer. Its channels are large enough for any test.
type events struct {
	candidates chan *media.Candidate
	offers     chan string
	states     chan stateChange
}

func newEvents() *events {
	return &events{make(chan *media.Candidate, 100), make(chan string, 100), make(chan stateChange, 100)}
}

func (e *events) Candidate(c *media.Candidate) { e.candidates <- c }
func (e *events) Offer(sdp string)             { e.offers <- sdp }
func (e *events) State(s media.PeerState, err error) {
	e.states <- stateChange{s, err}
}

// await waits for a state and returns the error that came with it.
func (e *events) await(t *testing.T, ctx context.Context, want media.PeerState) error {
	t.Helper()
	for {
		select {
		case got := <-e.states:
			if got.state == want {
				return got.err
			}
		case <-ctx.Done():
			t.Fatalf("no state %q in time", want)
		}
	}
}

// received is one packet that came to a client.
type received struct {
	mime    string
	payload []byte
	packet  *rtp.Packet
}

// client is a browser's part, played by Pion.
type client struct {
	t       *testing.T
	ctx     context.Context
	pace    time.Duration // of packets
	pc      *webrtc.PeerConnection
	peer    *media.Peer
	events  *events
	packets map[webrtc.RTPCodecType]chan received
}

// clientConfig changes what a client is. The zero value supports every codec and uses UDP.
type clientConfig struct {
	mimes []string // the only codecs, if set
	tcp   bool
	small bool // announces a limit of 64 KiB for messages
	calm  bool // sends 10 packets a second in place of 50 and no reports, for tests with a crowd
}

func newClient(t *testing.T, ctx context.Context, cfg clientConfig) *client {
	t.Helper()
	pc, err := clientAPI(t, cfg).NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		t.Fatalf("client: %v", err)
	}
	c := &client{
		t: t, ctx: ctx, pace: 20 * time.Millisecond, pc: pc, events: newEvents(),
		packets: map[webrtc.RTPCodecType]chan received{
			webrtc.RTPCodecTypeAudio: make(chan received, 1000),
			webrtc.RTPCodecTypeVideo: make(chan received, 1000),
		},
	}
	if cfg.calm {
		c.pace = 100 * time.Millisecond
	}
	t.Cleanup(func() { _ = pc.GracefulClose() })
	pc.OnTrack(c.read)
	return c
}

func clientAPI(t *testing.T, cfg clientConfig) *webrtc.API {
	t.Helper()
	var se webrtc.SettingEngine
	se.SetIncludeLoopbackCandidate(true)
	se.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	se.SetInterfaceFilter(func(name string) bool { return strings.HasPrefix(name, "lo") })
	se.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	se.SetSCTPMaxMessageSize(256 << 10)
	if cfg.small {
		se.SetSCTPMaxMessageSize(64 << 10)
	}
	if cfg.tcp {
		se.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeTCP4})
	}
	se.SetDTLSRetransmissionInterval(200 * time.Millisecond)
	options := []func(*webrtc.API){webrtc.WithSettingEngine(se)}
	if cfg.calm {
		options = append(options, webrtc.WithInterceptorRegistry(&interceptor.Registry{}))
	}
	if cfg.mimes != nil {
		options = append(options, webrtc.WithMediaEngine(codecsOnly(t, cfg.mimes)))
	}
	return webrtc.NewAPI(options...)
}

// codecsOnly returns a media engine with some of the codecs.
func codecsOnly(t *testing.T, mimes []string) *webrtc.MediaEngine {
	t.Helper()
	known := map[string]webrtc.RTPCodecParameters{
		webrtc.MimeTypeVP8: {
			RTPCodecCapability: webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeVP8, ClockRate: 90000},
			PayloadType:        96,
		},
		webrtc.MimeTypeH264: {
			RTPCodecCapability: webrtc.RTPCodecCapability{
				MimeType: webrtc.MimeTypeH264, ClockRate: 90000,
				SDPFmtpLine: "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f",
			},
			PayloadType: 97,
		},
		webrtc.MimeTypeOpus: {
			RTPCodecCapability: webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2},
			PayloadType:        111,
		},
	}
	m := &webrtc.MediaEngine{}
	for _, mime := range mimes {
		kind := webrtc.RTPCodecTypeVideo
		if strings.HasPrefix(mime, "audio/") {
			kind = webrtc.RTPCodecTypeAudio
		}
		if err := m.RegisterCodec(known[mime], kind); err != nil {
			t.Fatalf("register %s: %v", mime, err)
		}
	}
	return m
}

// join adds the client to a session.
func (c *client) join(s *media.Session) {
	c.t.Helper()
	var err error
	if c.peer, err = s.AddPeer(c.ctx, media.PeerConfig{ID: "p", Events: c.events}); err != nil {
		c.t.Fatalf("AddPeer: %v", err)
	}
}

// trickle tells the client's candidates as they come.
func (c *client) trickle() {
	c.pc.OnICECandidate(func(cand *webrtc.ICECandidate) {
		if cand == nil {
			return
		}
		init := cand.ToJSON()
		err := c.peer.Candidate(c.ctx, &media.Candidate{Candidate: init.Candidate, SDPMid: init.SDPMid})
		if err != nil && !errors.Is(err, media.ErrClosed) && c.ctx.Err() == nil {
			c.t.Errorf("Candidate: %v", err)
		}
	})
}

// offer makes one round of negotiation.
func (c *client) offer(options *webrtc.OfferOptions) {
	c.t.Helper()
	offer, err := c.pc.CreateOffer(options)
	if err != nil {
		c.t.Fatalf("CreateOffer: %v", err)
	}
	if err := c.pc.SetLocalDescription(offer); err != nil {
		c.t.Fatalf("SetLocalDescription: %v", err)
	}
	answer, err := c.peer.Offer(c.ctx, offer.SDP)
	if err != nil {
		c.t.Fatalf("Offer: %v", err)
	}
	c.accept(answer)
}

func (c *client) accept(answer string) {
	c.t.Helper()
	if err := c.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer}); err != nil {
		c.t.Fatalf("SetRemoteDescription: %v", err)
	}
}

// connect joins, negotiates and waits for the connection.
func (c *client) connect(s *media.Session) {
	c.t.Helper()
	c.join(s)
	c.trickle()
	c.offer(nil)
	_ = c.events.await(c.t, c.ctx, media.StateConnected)
}

// send adds a track that the client sends on until the test ends.
func (c *client) send(mime string) *webrtc.RTPSender {
	c.t.Helper()
	rate := uint32(90000)
	if strings.HasPrefix(mime, "audio/") {
		rate = 48000
	}
	track, err := webrtc.NewTrackLocalStaticRTP(webrtc.RTPCodecCapability{MimeType: mime, ClockRate: rate}, mime[:5], "client")
	if err != nil {
		c.t.Fatalf("track: %v", err)
	}
	sender, err := c.pc.AddTrack(track)
	if err != nil {
		c.t.Fatalf("AddTrack: %v", err)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		sendPackets(ctx, track, rate, c.pace)
	}()
	c.t.Cleanup(func() { cancel(); <-done })
	return sender
}

// sendPackets sends numbered packets.
func sendPackets(ctx context.Context, track *webrtc.TrackLocalStaticRTP, rate uint32, pace time.Duration) {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for i := uint32(1); ; i++ {
		payload := binary.BigEndian.AppendUint32([]byte("berth"), i)
		_ = track.WriteRTP(&rtp.Packet{
			Header:  rtp.Header{Version: 2, Marker: true, SequenceNumber: uint16(i), Timestamp: i * uint32(float64(rate)*pace.Seconds())},
			Payload: payload,
		})
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// read passes on what arrives; it drops packets nobody waits for.
func (c *client) read(t *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
	for {
		p, _, err := t.ReadRTP()
		if err != nil {
			return
		}
		select {
		case c.packets[t.Kind()] <- received{t.Codec().MimeType, p.Payload, p}:
		default:
		}
	}
}

// expect waits for n packets that arrive from now on, and returns the last.
func (c *client) expect(kind webrtc.RTPCodecType, n int) received {
	c.t.Helper()
	queue := c.packets[kind]
	for len(queue) > 0 {
		<-queue
	}
	var last received
	for i := range n {
		select {
		case last = <-queue:
		case <-c.ctx.Done():
			c.t.Fatalf("%d of %d %s packets came in time", i, n, kind)
		}
	}
	return last
}

// channel opens a data channel and returns it with what arrives on it.
func (c *client) channel(label string) (*webrtc.DataChannel, <-chan string) {
	c.t.Helper()
	dc, err := c.pc.CreateDataChannel(label, nil)
	if err != nil {
		c.t.Fatalf("CreateDataChannel: %v", err)
	}
	messages := make(chan string, 1000)
	dc.OnMessage(func(m webrtc.DataChannelMessage) { messages <- string(m.Data) })
	return dc, messages
}

// echoed sends a message when the channel is open and waits for it to return.
func (c *client) echoed(dc *webrtc.DataChannel, messages <-chan string, text string) {
	c.t.Helper()
	open := make(chan struct{})
	dc.OnOpen(func() { close(open) })
	select {
	case <-open:
	case <-c.ctx.Done():
		c.t.Fatal("data channel did not open")
	}
	if err := dc.SendText(text); err != nil {
		c.t.Fatalf("SendText: %v", err)
	}
	if got := receive(c.t, c.ctx, messages); got != text {
		c.t.Fatalf("message %q came back as %q", text, got)
	}
}

func receive[T any](t *testing.T, ctx context.Context, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-ctx.Done():
		t.Fatal("nothing came in time")
		panic("unreachable")
	}
}

// waitStill waits until a counter has moved and then stands still for half a second.
func waitStill(t *testing.T, ctx context.Context, count func() uint64) uint64 {
	t.Helper()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	last, same := uint64(0), 0
	for same < 5 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatal("the counter does not stand still")
		}
		if n := count(); n == last && n > 0 {
			same++
		} else {
			last, same = n, 0
		}
	}
	return last
}
