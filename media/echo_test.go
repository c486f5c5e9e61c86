package media_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/berthdev/berth/media"
)

func TestEchoReturnsMediaInTheCodecItCameIn(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		offered []string
		sent    string
	}{
		"vp8 only":                {[]string{webrtc.MimeTypeVP8, webrtc.MimeTypeOpus}, webrtc.MimeTypeVP8},
		"h264 only":               {[]string{webrtc.MimeTypeH264, webrtc.MimeTypeOpus}, webrtc.MimeTypeH264},
		"every codec, sends vp8":  {nil, webrtc.MimeTypeVP8},
		"every codec, sends h264": {nil, webrtc.MimeTypeH264},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			e := newEngine(t, media.Config{})
			c := newClient(t, ctx, clientConfig{mimes: test.offered})
			c.send(test.sent)
			c.send(webrtc.MimeTypeOpus)
			dc, messages := c.channel("chat")
			s := openSession(t, e, "echo")
			c.connect(s)

			video := c.expect(webrtc.RTPCodecTypeVideo, 20)
			if !strings.EqualFold(video.mime, test.sent) || !bytes.HasPrefix(video.payload, []byte("berth")) {
				t.Errorf("video came back as %s %q", video.mime, video.payload)
			}
			audio := c.expect(webrtc.RTPCodecTypeAudio, 20)
			if !strings.EqualFold(audio.mime, webrtc.MimeTypeOpus) || !bytes.HasPrefix(audio.payload, []byte("berth")) {
				t.Errorf("audio came back as %s %q", audio.mime, audio.payload)
			}
			if dc.ReadyState() != webrtc.DataChannelStateOpen {
				c.echoed(dc, messages, "ahoy")
			}
		})
	}
}

func TestEchoReturnsEveryMessage(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newClient(t, ctx, clientConfig{})
	dc, messages := c.channel("chat")
	c.connect(openSession(t, newEngine(t, media.Config{}), "echo"))
	c.echoed(dc, messages, "ahoy")

	big := strings.Repeat("x", 200<<10)
	for _, text := range []string{"", "é", big, "last"} {
		if err := dc.SendText(text); err != nil {
			t.Fatalf("send %d bytes: %v", len(text), err)
		}
		if got := receive(t, ctx, messages); got != text {
			t.Fatalf("%d bytes came back as %d", len(text), len(got))
		}
	}
}

func TestEchoDropsAMessageTheClientCannotTakeAndGoesOn(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newClient(t, ctx, clientConfig{small: true})
	dc, messages := c.channel("chat")
	c.connect(openSession(t, newEngine(t, media.Config{}), "echo"))
	c.echoed(dc, messages, "before")
	if err := dc.SendText(strings.Repeat("x", 65<<10)); err != nil {
		t.Fatal(err)
	}
	if err := dc.SendText("after"); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, ctx, messages); got != "after" {
		t.Fatalf("%d bytes came back", len(got))
	}
}

func TestEchoTakesMediaAfterADataChannelOnlyOffer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newClient(t, ctx, clientConfig{})
	dc, messages := c.channel("chat")
	c.connect(openSession(t, newEngine(t, media.Config{}), "echo"))
	c.echoed(dc, messages, "before")

	c.send(webrtc.MimeTypeOpus)
	c.offer(nil)
	c.expect(webrtc.RTPCodecTypeAudio, 10)
	c.send(webrtc.MimeTypeVP8)
	c.offer(nil)
	c.expect(webrtc.RTPCodecTypeVideo, 10)
}

func TestEchoForwardsKeyframeRequestsToTheSender(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newClient(t, ctx, clientConfig{})
	sender := c.send(webrtc.MimeTypeVP8)
	c.connect(openSession(t, newEngine(t, media.Config{}), "echo"))

	requests := make(chan struct{}, 100)
	go func() {
		for {
			packets, _, err := sender.ReadRTCP()
			if err != nil {
				return
			}
			for _, p := range packets {
				if _, ok := p.(*rtcp.PictureLossIndication); ok {
					requests <- struct{}{}
				}
			}
		}
	}()
	receive(t, ctx, requests) // of the echo itself, at the start

	video := c.expect(webrtc.RTPCodecTypeVideo, 30) // at 20 ms each: past the 300 ms in which requests are one
	pli := &rtcp.PictureLossIndication{MediaSSRC: video.packet.SSRC}
	if err := c.pc.WriteRTCP([]rtcp.Packet{pli}); err != nil {
		t.Fatal(err)
	}
	receive(t, ctx, requests)
}

// A client that never reads must not make the worker buffer without bound; when it reads at last, the
// channel works on.
func TestEchoStopsSendingToAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newClient(t, ctx, clientConfig{})
	dc, err := c.pc.CreateDataChannel("flood", nil)
	if err != nil {
		t.Fatal(err)
	}
	release, got := make(chan struct{}), make(chan int, 1000)
	dc.OnMessage(func(m webrtc.DataChannelMessage) { <-release; got <- len(m.Data) })
	open := make(chan struct{})
	dc.OnOpen(func() { close(open) })
	s := openSession(t, newEngine(t, media.Config{}), "echo")
	c.connect(s)
	receive(t, ctx, open)

	const count, size = 120, 32 << 10 // 3.9 MB, above both windows of 1 MiB together
	message := make([]byte, size)
	for range count {
		if err := dc.Send(message); err != nil {
			t.Fatal(err)
		}
	}
	stalled := waitStill(t, ctx, func() uint64 { return s.Stats().Messages })
	if stalled >= count {
		t.Errorf("the worker took all %d messages of a client that does not read", count)
	}
	close(release)
	for range 64 { // more than can have waited on the way back
		if n := receive(t, ctx, got); n != size {
			t.Fatalf("message of %d bytes came back as %d", size, n)
		}
	}
}

func TestSessionsAreIsolated(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	e, reg := newEngineWithMetrics(t, media.Config{})
	first, second := openSession(t, e, "echo"), openSession(t, e, "echo")
	a, b := newClient(t, ctx, clientConfig{}), newClient(t, ctx, clientConfig{})
	a.send(webrtc.MimeTypeOpus)
	dc, messages := b.channel("chat")
	a.connect(first)
	b.connect(second)
	a.expect(webrtc.RTPCodecTypeAudio, 10)
	b.echoed(dc, messages, "ahoy")

	if st := first.Stats(); st.PacketsIn < 10 || st.PacketsOut < 10 || st.BytesOut == 0 || st.Messages != 0 || st.Peers != 1 {
		t.Errorf("stats of the session with audio: %+v", st)
	}
	if st := second.Stats(); st.PacketsIn != 0 || st.PacketsOut != 0 || st.Messages != 1 {
		t.Errorf("stats of the session with messages: %+v", st)
	}
	second.Close("test")
	receive(t, ctx, second.Done())
	if err := b.events.await(t, ctx, media.StateClosed); err == nil {
		t.Error("closed without a cause")
	}
	a.expect(webrtc.RTPCodecTypeAudio, 10)
	want := "# HELP berth_media_sessions Open sessions.\n# TYPE berth_media_sessions gauge\nberth_media_sessions 1\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "berth_media_sessions"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}
}
