package berth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"

	"github.com/pion/logging"
	"github.com/pion/webrtc/v4"
)

// errGlare means that both sides offered at once. The client is the one to give way, and since Pion cannot roll back
// an offer, it does so with a fresh PeerConnection.
var errGlare = errors.New("the owner's offer crossed ours")

// startMedia makes the link's PeerConnection and sends the first offer.
func (c *Conn) startMedia(ctx context.Context, k *link, signalingURL string) error {
	pc, err := c.api(signalingURL).NewPeerConnection(webrtc.Configuration{ICEServers: rtcServers(k.iceServers)})
	if err != nil {
		return fmt.Errorf("peer connection: %w", err)
	}
	k.pc = pc
	pc.OnICECandidate(func(candidate *webrtc.ICECandidate) { k.enqueue(event{candidate: localCandidate(candidate)}) })
	pc.OnConnectionStateChange(func(webrtc.PeerConnectionState) { k.enqueue(event{}) })
	if c.config.OnTrack != nil {
		pc.OnTrack(c.config.OnTrack)
	}
	if c.config.OnDataChannel != nil {
		pc.OnDataChannel(c.config.OnDataChannel)
	}
	if err := c.addMedia(k); err != nil {
		return err
	}
	return k.offer(ctx, nil)
}

// api returns Pion's entry point. It is made for each link, since a move may lead to another host.
func (c *Conn) api(signalingURL string) *webrtc.API {
	if c.config.API != nil {
		return c.config.API
	}
	var settings webrtc.SettingEngine
	settings.SetIncludeLoopbackCandidate(isLoopback(signalingURL))
	// A library does not print; Conn reports what matters.
	settings.LoggerFactory = &logging.DefaultLoggerFactory{
		Writer: io.Discard, DefaultLogLevel: logging.LogLevelDisabled,
	}
	if c.config.SettingEngine != nil {
		c.config.SettingEngine(&settings)
	}
	return webrtc.NewAPI(webrtc.WithSettingEngine(settings))
}

func isLoopback(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || (ip != nil && ip.IsLoopback())
}

func rtcServers(servers []ICEServer) []webrtc.ICEServer {
	var out []webrtc.ICEServer
	for _, s := range servers {
		out = append(out, webrtc.ICEServer{URLs: s.URLs, Username: s.Username, Credential: s.Credential})
	}
	return out
}

// addMedia adds what the configuration names to a new PeerConnection.
func (c *Conn) addMedia(k *link) error {
	for _, track := range c.config.Tracks {
		sender, err := k.pc.AddTrack(track)
		if err != nil {
			return fmt.Errorf("add track: %w", err)
		}
		k.wg.Go(func() { c.readRTCP(track, sender) })
	}
	for _, kind := range c.config.Receive {
		init := webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}
		if _, err := k.pc.AddTransceiverFromKind(kind, init); err != nil {
			return fmt.Errorf("add transceiver: %w", err)
		}
	}
	for _, d := range c.config.DataChannels {
		channel, err := k.pc.CreateDataChannel(d.Label, d.Init)
		if err != nil {
			return fmt.Errorf("create data channel: %w", err)
		}
		if d.Bind != nil {
			d.Bind(channel)
		}
	}
	if c.config.Prepare == nil {
		return nil
	}
	if err := c.config.Prepare(k.pc); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	return nil
}

// readRTCP keeps the interceptors fed until the PeerConnection closes.
func (c *Conn) readRTCP(track webrtc.TrackLocal, sender *webrtc.RTPSender) {
	for {
		packets, _, err := sender.ReadRTCP()
		if err != nil {
			return
		}
		if c.config.OnRTCP != nil {
			c.config.OnRTCP(track, packets)
		}
	}
}

func localCandidate(candidate *webrtc.ICECandidate) *candidateFrame {
	f := &candidateFrame{Type: typeCandidate}
	if candidate != nil {
		init := candidate.ToJSON()
		f.Candidate = &init
	}
	return f
}

// answered applies the owner's answer.
func (k *link) answered(sdp string) error {
	if k.pc.SignalingState() != webrtc.SignalingStateHaveLocalOffer {
		return nil // an answer to nothing; the state is unchanged
	}
	err := k.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: sdp})
	if err != nil {
		return fmt.Errorf("apply answer: %w", err)
	}
	k.flush()
	return nil
}

// answer applies the owner's offer and answers it.
func (k *link) answer(ctx context.Context, sdp string) error {
	if k.pc.SignalingState() != webrtc.SignalingStateStable {
		return errGlare
	}
	err := k.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: sdp})
	if err != nil {
		return fmt.Errorf("apply offer: %w", err)
	}
	k.flush()
	answer, err := k.pc.CreateAnswer(nil)
	if err != nil {
		return fmt.Errorf("create answer: %w", err)
	}
	if err := k.pc.SetLocalDescription(answer); err != nil {
		return fmt.Errorf("set local description: %w", err)
	}
	k.write(ctx, sdpFrame{Type: typeAnswer, SDP: answer.SDP})
	return nil
}

// flush adds the candidates that came before the description they belong to.
func (k *link) flush() {
	k.described = true
	for _, candidate := range k.early {
		_ = k.pc.AddICECandidate(candidate)
	}
	k.early = nil
}

// addCandidate adds a candidate of the owner; one that Pion refuses costs nothing but itself. While an offer waits for
// its answer the candidate may belong to that answer, and Pion would drop it as unknown.
func (k *link) addCandidate(candidate *webrtc.ICECandidateInit) {
	switch {
	case candidate == nil || candidate.Candidate == "":
	case k.described && k.pc.SignalingState() == webrtc.SignalingStateStable:
		_ = k.pc.AddICECandidate(*candidate)
	case len(k.early) < maxEarly:
		k.early = append(k.early, *candidate)
	}
}
