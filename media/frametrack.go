package media

import (
	"fmt"
	"strings"
	"time"

	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
	"github.com/pion/webrtc/v4"
)

// payloadMTU keeps packets below the smallest path MTU that is common, with SRTP, UDP and IP around them.
const payloadMTU = 1200

// FrameTrack sends whole encoded frames to a client. Safe for concurrent use.
type FrameTrack struct {
	outbound
	packetizer rtp.Packetizer
}

// Bind implements webrtc.TrackLocal.
func (t *FrameTrack) Bind(c webrtc.TrackLocalContext) (webrtc.RTPCodecParameters, error) {
	p, err := t.outbound.Bind(c)
	if err != nil {
		return p, err
	}
	payloader, err := payloaderFor(t.mime)
	if err != nil {
		return p, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.packetizer == nil {
		t.packetizer = rtp.NewPacketizer(payloadMTU, uint8(p.PayloadType), uint32(c.SSRC()), payloader,
			rtp.NewRandomSequencer(), p.ClockRate)
	}
	return p, nil
}

// Write sends one frame that lasts for d.
func (t *FrameTrack) Write(frame []byte, d time.Duration) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bound == nil {
		return nil
	}
	for _, p := range t.packetizer.Packetize(frame, t.ticks(d)) {
		if err := t.send(t.bound, &p.Header, p.Payload); err != nil {
			return err
		}
	}
	return nil
}

// Skip moves the clock of the track by d without a frame.
func (t *FrameTrack) Skip(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bound != nil {
		t.packetizer.SkipSamples(t.ticks(d))
	}
}

func (t *FrameTrack) ticks(d time.Duration) uint32 {
	return uint32(d.Seconds()*float64(t.bound.codec.ClockRate) + 0.5)
}

// payloaderFor returns how frames of a codec become packets.
func payloaderFor(mime string) (rtp.Payloader, error) {
	switch strings.ToLower(mime) {
	case "video/vp8":
		return &codecs.VP8Payloader{EnablePictureID: true}, nil
	case "video/vp9":
		return &codecs.VP9Payloader{}, nil
	case "video/h264":
		return &codecs.H264Payloader{}, nil
	case "audio/opus":
		return &codecs.OpusPayloader{}, nil
	default:
		return nil, fmt.Errorf("%w: frames of %s cannot be sent", ErrNoLine, mime)
	}
}
