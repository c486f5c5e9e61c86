package media

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"
)

const (
	packetBytes      = 1500
	keyframeInterval = 300 * time.Millisecond
)

// Track is media that a client sends. One goroutine may read it; RequestKeyframe is safe for
// concurrent use.
type Track struct {
	mid       string
	remote    *webrtc.TrackRemote
	pc        *webrtc.PeerConnection
	traffic   *traffic
	requested atomic.Int64 // Unix nanoseconds of the last request
}

// MID names the line that the track arrives on.
func (t *Track) MID() string { return t.mid }

// Kind is audio or video.
func (t *Track) Kind() Kind { return Kind(t.remote.Kind().String()) }

// RID names the simulcast layer (RFC 8851); empty without simulcast.
func (t *Track) RID() string { return t.remote.RID() }

// Codec is the codec of the last packet read, or of the first before any was.
func (t *Track) Codec() Codec { return codecFrom(t.remote.Codec()) }

// Read reads one RTP packet into b, which should hold 1500 bytes. It returns io.EOF when the track ends.
func (t *Track) Read(b []byte) (int, error) {
	n, _, err := t.remote.Read(b)
	if err != nil {
		return 0, err
	}
	t.traffic.in(n)
	return n, nil
}

// RequestKeyframe asks the client for a key frame (PLI, RFC 4585 section 6.3.1). Requests within 300 ms
// are one. It does nothing for audio.
func (t *Track) RequestKeyframe() {
	now := time.Now().UnixNano()
	last := t.requested.Load()
	if t.Kind() != KindVideo || now-last < int64(keyframeInterval) || !t.requested.CompareAndSwap(last, now) {
		return
	}
	// Lost requests are repeated by whoever needs the frame; a closed connection needs none.
	_ = t.pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: uint32(t.remote.SSRC())}})
}

func codecFrom(p webrtc.RTPCodecParameters) Codec {
	return Codec{
		MimeType:    p.MimeType,
		ClockRate:   p.ClockRate,
		Channels:    p.Channels,
		Fmtp:        p.SDPFmtpLine,
		PayloadType: uint8(p.PayloadType),
	}
}

// isMedia tells codecs from the formats that repair them.
func isMedia(mime string) bool {
	name := strings.ToLower(mime[strings.IndexByte(mime, '/')+1:])
	return name != "rtx" && name != "red" && name != "ulpfec" && !strings.HasPrefix(name, "flexfec")
}
