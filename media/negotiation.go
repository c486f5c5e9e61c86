package media

import (
	"fmt"
	"strings"

	"github.com/pion/webrtc/v4"
)

// Negotiation lets a handler decide what a peer is sent, while an offer is answered or made. It is valid
// only during the call that it was passed to.
type Negotiation struct {
	peer *Peer
}

// Peer is the peer that negotiates.
func (n *Negotiation) Peer() *Peer { return n.peer }

// Lines returns the audio and video lines the client offered last, in its order; none before it has.
func (n *Negotiation) Lines() []Line {
	if n.peer.remote == nil {
		return nil
	}
	byMID := make(map[string]*webrtc.RTPTransceiver)
	for _, t := range n.peer.pc.GetTransceivers() {
		byMID[t.Mid()] = t
	}
	var lines []Line
	for _, s := range n.peer.remote.sections {
		line := Line{MID: s.mid, Kind: s.kind, Sends: s.sends, Receives: s.receives}
		if t := byMID[s.mid]; t != nil {
			line.Sending = t.Sender() != nil
			line.Codecs = negotiatedCodecs(t)
		}
		lines = append(lines, line)
	}
	return lines
}

func negotiatedCodecs(t *webrtc.RTPTransceiver) []Codec {
	if t.Receiver() == nil {
		return nil
	}
	var list []Codec
	for _, p := range t.Receiver().GetParameters().Codecs {
		if isMedia(p.MimeType) {
			list = append(list, codecFrom(p))
		}
	}
	return list
}

// SendPackets adds a track for packets of other tracks. It takes the first line of the kind that the
// client receives on and nothing is sent on; if there is none, the server offers a new line.
func (n *Negotiation) SendPackets(kind Kind) (*PacketTrack, error) {
	t := &PacketTrack{outbound: n.peer.newOutbound(kind, "")}
	return t, n.peer.addTrack(t, &t.outbound)
}

// SendFrames adds a track for whole frames of one codec, as "video/VP8". The line is found as by
// SendPackets; ErrNoLine if the client offered lines of the kind but none with the codec.
func (n *Negotiation) SendFrames(mime string) (*FrameTrack, error) {
	if _, err := payloaderFor(mime); err != nil {
		return nil, err
	}
	major, _, _ := strings.Cut(strings.ToLower(mime), "/")
	if !n.accepts(Kind(major), mime) {
		return nil, fmt.Errorf("%w: the peer does not support %s", ErrNoLine, mime)
	}
	t := &FrameTrack{outbound: n.peer.newOutbound(Kind(major), mime)}
	return t, n.peer.addTrack(t, &t.outbound)
}

// accepts reports whether the line that AddTrack will choose has the codec.
func (n *Negotiation) accepts(kind Kind, mime string) bool {
	for _, line := range n.Lines() {
		if line.Kind != kind || !line.Receives || line.Sending {
			continue
		}
		for _, c := range line.Codecs {
			if strings.EqualFold(c.MimeType, mime) {
				return true
			}
		}
		return false
	}
	return true // a new line, with every codec we know
}

// newOutbound returns a track of the peer. All its tracks form one stream, so that they are played in sync.
func (p *Peer) newOutbound(kind Kind, mime string) outbound {
	p.tracks++
	return outbound{
		id: fmt.Sprintf("%s-%d", kind, p.tracks), stream: "berth", kind: kind, mime: mime,
		traffic: &p.session.traffic,
	}
}

// addTrack puts a track on a line. Reading its RTCP begins here and ends with the peer.
func (p *Peer) addTrack(local webrtc.TrackLocal, o *outbound) error {
	sender, err := p.pc.AddTrack(local)
	if err != nil {
		return fmt.Errorf("media: add track: %w", err)
	}
	for _, t := range p.pc.GetTransceivers() {
		if t.Sender() == sender {
			o.mid = t.Mid()
		}
	}
	if o.mid == "" {
		p.needOffer = true
	}
	p.spawn("feedback", func() error { o.readFeedback(sender); return nil })
	return nil
}
