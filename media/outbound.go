package media

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
)

// outbound is what the tracks to a client have in common. It implements webrtc.TrackLocal: Pion binds it
// when the line is negotiated. Before that, and after Unbind, packets are dropped.
type outbound struct {
	id, stream string
	kind       Kind
	mime       string // the only codec wanted; empty: any
	mid        string
	traffic    *traffic
	onKeyframe atomic.Pointer[func()]

	mu    sync.Mutex
	bound *binding
}

// binding is a negotiated line.
type binding struct {
	id     string
	ssrc   uint32
	codec  Codec // the first usable one
	codecs []Codec
	writer webrtc.TrackLocalWriter
}

// MID names the line that carries the track.
func (o *outbound) MID() string { return o.mid }

// OnKeyframeRequest sets what is called when the client asks for a key frame (PLI or FIR). The
// function must not block.
func (o *outbound) OnKeyframeRequest(f func()) { o.onKeyframe.Store(&f) }

// ID implements webrtc.TrackLocal.
func (o *outbound) ID() string { return o.id }

// StreamID implements webrtc.TrackLocal.
func (o *outbound) StreamID() string { return o.stream }

// RID implements webrtc.TrackLocal; simulcast is never sent.
func (o *outbound) RID() string { return "" }

// Kind implements webrtc.TrackLocal.
func (o *outbound) Kind() webrtc.RTPCodecType { return webrtc.NewRTPCodecType(string(o.kind)) }

// Bind implements webrtc.TrackLocal.
func (o *outbound) Bind(c webrtc.TrackLocalContext) (webrtc.RTPCodecParameters, error) {
	b := &binding{id: c.ID(), ssrc: uint32(c.SSRC()), writer: c.WriteStream()}
	var first *webrtc.RTPCodecParameters
	for _, p := range c.CodecParameters() {
		if !isMedia(p.MimeType) || (o.mime != "" && !strings.EqualFold(p.MimeType, o.mime)) {
			continue
		}
		if first == nil {
			first = &p
			b.codec = codecFrom(p)
		}
		b.codecs = append(b.codecs, codecFrom(p))
	}
	if first == nil {
		return webrtc.RTPCodecParameters{}, webrtc.ErrUnsupportedCodec
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bound = b
	return *first, nil
}

// Unbind implements webrtc.TrackLocal.
func (o *outbound) Unbind(c webrtc.TrackLocalContext) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bound != nil && o.bound.id == c.ID() {
		o.bound = nil
	}
	return nil
}

// send writes one packet under o.mu.
func (o *outbound) send(b *binding, header *rtp.Header, payload []byte) error {
	header.SSRC = b.ssrc
	n, err := b.writer.WriteRTP(header, payload)
	if err == nil {
		o.traffic.out(n)
	}
	return err
}

// readFeedback reads RTCP of the sender until the peer ends. Without it the interceptors that answer
// NACK see nothing.
func (o *outbound) readFeedback(sender *webrtc.RTPSender) {
	buf := make([]byte, packetBytes)
	for {
		n, _, err := sender.Read(buf)
		if err != nil {
			return
		}
		packets, err := rtcp.Unmarshal(buf[:n])
		if err != nil {
			continue
		}
		if f := o.onKeyframe.Load(); f != nil && wantsKeyframe(packets) {
			(*f)()
		}
	}
}

func wantsKeyframe(packets []rtcp.Packet) bool {
	for _, p := range packets {
		switch p.(type) {
		case *rtcp.PictureLossIndication, *rtcp.FullIntraRequest:
			return true
		}
	}
	return false
}
