package media_test

import (
	"strings"
	"testing"

	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"

	"github.com/berthdev/berth/media"
)

// receiveOnly asks for a track of the kind.
func (c *client) receiveOnly(kind webrtc.RTPCodecType) {
	c.t.Helper()
	init := webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}
	if _, err := c.pc.AddTransceiverFromKind(kind, init); err != nil {
		c.t.Fatalf("AddTransceiverFromKind: %v", err)
	}
}

// isKeyframe reports whether a VP8 packet begins a key frame (RFC 7741 section 4.2, with a picture id of
// 15 bits, as Pion sends it).
func isKeyframe(payload []byte) bool {
	header := 1
	if len(payload) > 2 && payload[0]&0x80 != 0 { // extension
		header = 3
		if payload[1]&0x80 != 0 && payload[2]&0x80 != 0 {
			header = 4
		}
	}
	startsFrame := len(payload) > header && payload[0]&0x10 != 0
	return startsFrame && payload[header]&1 == 0
}

func TestPlayShowsTheClipFromAKeyframeOn(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newClient(t, ctx, clientConfig{})
	c.receiveOnly(webrtc.RTPCodecTypeVideo)
	c.receiveOnly(webrtc.RTPCodecTypeAudio)
	s := openSession(t, newEngine(t, media.Config{}), "play")
	c.connect(s)

	first := receive(t, ctx, c.packets[webrtc.RTPCodecTypeVideo])
	if !strings.EqualFold(first.mime, webrtc.MimeTypeVP8) || !isKeyframe(first.payload) {
		t.Errorf("the first video packet is %s and begins a key frame: %v", first.mime, isKeyframe(first.payload))
	}
	audio := c.expect(webrtc.RTPCodecTypeAudio, 50)
	if !strings.EqualFold(audio.mime, webrtc.MimeTypeOpus) {
		t.Errorf("audio is %s", audio.mime)
	}
	// A second of audio has passed, and 15 frames of video with it.
	if n := len(c.packets[webrtc.RTPCodecTypeVideo]); n < 10 {
		t.Errorf("%d video packets in the time of 50 audio packets", n)
	}
	if st := s.Stats(); st.PacketsOut < 60 || st.PacketsIn != 0 {
		t.Errorf("stats: %+v", st)
	}
}

func TestPlayAnswersAKeyframeRequest(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newClient(t, ctx, clientConfig{})
	c.receiveOnly(webrtc.RTPCodecTypeVideo)
	c.connect(openSession(t, newEngine(t, media.Config{}), "play"))
	video := c.packets[webrtc.RTPCodecTypeVideo]
	next := receive(t, ctx, video)
	for isKeyframe(next.payload) || next.payload[0]&0x10 == 0 { // playing starts with a key frame
		next = receive(t, ctx, video)
	}
	pli := &rtcp.PictureLossIndication{MediaSSRC: next.packet.SSRC}
	if err := c.pc.WriteRTCP([]rtcp.Packet{pli}); err != nil {
		t.Fatal(err)
	}
	// Unasked, the next key frame would be 15 frames away.
	frames := 0
	for p := receive(t, ctx, video); !isKeyframe(p.payload); p = receive(t, ctx, video) {
		if p.payload[0]&0x10 != 0 {
			frames++
		}
	}
	if frames > 10 {
		t.Errorf("key frame after %d frames", frames)
	}
}

func TestPlaySendsAudioToAClientWithoutVP8(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newClient(t, ctx, clientConfig{mimes: []string{webrtc.MimeTypeH264, webrtc.MimeTypeOpus}})
	c.receiveOnly(webrtc.RTPCodecTypeVideo)
	c.receiveOnly(webrtc.RTPCodecTypeAudio)
	c.connect(openSession(t, newEngine(t, media.Config{}), "play"))
	c.expect(webrtc.RTPCodecTypeAudio, 10)
	if n := len(c.packets[webrtc.RTPCodecTypeVideo]); n > 0 {
		t.Errorf("%d video packets in a codec the client does not have", n)
	}
}
