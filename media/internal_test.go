package media

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Whatever the sources are numbered like, the client sees one stream: consecutive within and across
// sources, with time that moves forward at every change.
func TestSpliceMakesOneStreamOfMany(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s splice
		now := time.Unix(0, 0)
		var lastSequence uint16
		var lastTime uint32
		started := false
		for i := range rapid.IntRange(1, 6).Draw(t, "sources") {
			sequence := rapid.Uint16().Draw(t, "sequence")
			timestamp := rapid.Uint32().Draw(t, "timestamp")
			for j := range rapid.IntRange(1, 40).Draw(t, "packets") {
				now = now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "ms")) * time.Millisecond)
				outSequence, outTime := s.next(uint32(i), sequence+uint16(j), timestamp+uint32(j)*960, 48000, now)
				if started && outSequence != lastSequence+1 {
					t.Fatalf("sequence %d follows %d", outSequence, lastSequence)
				}
				if step := outTime - lastTime; started && (step == 0 || step > 1<<31) {
					t.Fatalf("time moved by %d", int32(step))
				}
				started, lastSequence, lastTime = true, outSequence, outTime
			}
		}
	})
}

func TestSpliceKeepsLatePacketsInTheirPlace(t *testing.T) {
	t.Parallel()
	var s splice
	now := time.Unix(0, 0)
	s.next(1, 100, 0, 90000, now)
	s.next(2, 5000, 0, 90000, now) // becomes 101
	s.next(2, 5002, 0, 90000, now)
	if late, _ := s.next(2, 5001, 0, 90000, now); late != 102 {
		t.Errorf("late packet became %d, want 102", late)
	}
	if next, _ := s.next(2, 5003, 0, 90000, now); next != 104 {
		t.Errorf("next packet became %d, want 104", next)
	}
}

func TestOutgoingTypeFollowsTheCodec(t *testing.T) {
	t.Parallel()
	codecs := []Codec{
		{MimeType: "video/VP8", PayloadType: 96},
		{MimeType: "video/H264", Fmtp: "packetization-mode=0", PayloadType: 97},
		{MimeType: "video/H264", Fmtp: "packetization-mode=1", PayloadType: 98},
	}
	tests := []struct {
		in   Codec
		want uint8
		ok   bool
	}{
		{Codec{MimeType: "video/vp8", PayloadType: 120}, 96, true},
		{Codec{MimeType: "video/H264", PayloadType: 98}, 98, true},
		{Codec{MimeType: "video/H264", Fmtp: "packetization-mode=1", PayloadType: 120}, 98, true},
		{Codec{MimeType: "video/H264", Fmtp: "other", PayloadType: 120}, 97, true},
		{Codec{MimeType: "video/VP9", PayloadType: 96}, 0, false},
	}
	for _, test := range tests {
		if got, ok := outgoingType(test.in, codecs); got != test.want || ok != test.ok {
			t.Errorf("%+v: %d %v, want %d %v", test.in, got, ok, test.want, test.ok)
		}
	}
}

// A candidate is applied at most once, never before its description, and both stores are bounded.
func TestRemoteCandidatesWaitForTheirDescription(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r remoteCandidates
		generations := []string{"", "aaaa", "bbbb", "cccc"}
		current := ""
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			ufrag := rapid.SampledFrom(generations).Draw(t, "ufrag")
			if ufrag != "" && rapid.IntRange(0, 20).Draw(t, "describe") == 0 {
				for _, c := range r.describe(map[string]bool{ufrag: true}) {
					if got := c.ufrag(); got != "" && got != ufrag {
						t.Fatalf("candidate of %q applied to %q", got, ufrag)
					}
				}
				current = ufrag
				continue
			}
			now, err := r.admit(Candidate{Candidate: "candidate:1 1 udp 1 127.0.0.1 9 typ host ufrag " + ufrag})
			if now && (current == "" || (ufrag != "" && ufrag != current)) {
				t.Fatalf("candidate of %q applied under %q", ufrag, current)
			}
			if len(r.early) > maxEarlyCandidates || r.applied > maxRemoteCandidates {
				t.Fatalf("%d early and %d applied candidates (%v)", len(r.early), r.applied, err)
			}
		}
	})
}

func TestCandidateKnowsItsGeneration(t *testing.T) {
	t.Parallel()
	member := "fromMember"
	for want, c := range map[string]Candidate{
		"":           {Candidate: "candidate:1 1 udp 1 127.0.0.1 9 typ host"},
		"abcd":       {Candidate: "candidate:1 1 udp 1 127.0.0.1 9 typ host ufrag abcd generation 0"},
		"fromMember": {Candidate: "candidate:1 1 udp 1 127.0.0.1 9 typ host ufrag abcd", UsernameFragment: &member},
	} {
		if got := c.ufrag(); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}

func TestTheClipLoops(t *testing.T) {
	t.Parallel()
	c, err := loadClip()
	if err != nil {
		t.Fatal(err)
	}
	video := c.videoFrame * time.Duration(len(c.video))
	audio := c.audioFrame * time.Duration(len(c.audio))
	if video.Round(time.Millisecond) != audio.Round(time.Millisecond) || audio < 3*time.Second {
		t.Errorf("%v of video and %v of audio", video, audio)
	}
	if size := len(clipVideo) + len(clipAudio); size > 150<<10 {
		t.Errorf("the clip has %d bytes", size)
	}
	keys := 0
	for _, f := range c.video {
		if f.key {
			keys++
		}
	}
	if keys < 3 {
		t.Errorf("%d key frames", keys)
	}
}

// A player that was held up leaves out what is too late, and goes on with a key frame on time.
func TestACursorCatchesUp(t *testing.T) {
	t.Parallel()
	c := cursor{length: 100 * time.Millisecond}
	for i := range 20 {
		c.frames = append(c.frames, frame{key: i%5 == 0})
	}
	track := &FrameTrack{}
	for elapsed := time.Duration(0); elapsed < time.Second; elapsed += 20 * time.Millisecond {
		if err := c.sendDue(elapsed, track); err != nil {
			t.Fatal(err)
		}
	}
	if c.played != time.Second || c.next != 10 {
		t.Errorf("after a second at %v, frame %d", c.played, c.next)
	}
	if err := c.sendDue(10*time.Second, track); err != nil {
		t.Fatal(err)
	}
	if late := 10*time.Second - c.played; late > 0 || late < -c.length {
		t.Errorf("after a pause %v behind", late)
	}
	c.next = 3
	if c.toKeyframe(); c.next != 5 {
		t.Errorf("key frame at %d", c.next)
	}
}

func FuzzDescriptionsAreRefusedWithoutQuotingThem(f *testing.F) {
	f.Add("v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n")
	f.Add("v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n")
	f.Add("v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=video 0 UDP/TLS/RTP/SAVPF 96\r\na=mid:0\r\n" +
		"a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\na=fingerprint:sha-1 AA\r\na=candidate:x\r\n")
	f.Fuzz(func(t *testing.T, raw string) {
		d, err := parseDescription(raw)
		if err == nil {
			if len(d.ufrags) == 0 {
				t.Error("a description without ICE credentials")
			}
			return
		}
		for line := range strings.FieldsSeq(raw) {
			if len(line) > 30 && strings.Contains(err.Error(), line) {
				t.Errorf("the error quotes the description: %v", err)
			}
		}
	})
}

func TestDirectionsComeFromTheLineOrTheSession(t *testing.T) {
	t.Parallel()
	const head = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=recvonly\r\na=ice-ufrag:abcd\r\n" +
		"a=ice-pwd:0123456789012345678901\r\na=fingerprint:sha-1 "
	digest := strings.TrimSuffix(strings.Repeat("AA:", 20), ":") + "\r\n"
	lines := "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n" +
		"m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:1\r\na=sendonly\r\n" +
		"m=video 0 UDP/TLS/RTP/SAVPF 96\r\na=mid:2\r\na=sendrecv\r\n" +
		"m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=mid:3\r\n"
	d, err := parseDescription(head + digest + lines)
	if err != nil {
		t.Fatal(err)
	}
	want := []section{
		{mid: "0", kind: KindAudio, receives: true},
		{mid: "1", kind: KindVideo, sends: true},
		{mid: "2", kind: KindVideo},
	}
	if diff := cmp.Diff(want, d.sections, cmp.AllowUnexported(section{})); diff != "" {
		t.Error(diff)
	}
}

func TestABoundedListenerGivesPlacesBack(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newBoundedListener(inner, 1)
	accepted := make(chan net.Conn, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	first := dial()
	kept := <-accepted
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("a connection beyond the limit was kept")
	}
	_ = kept.Close()
	_ = first.Close()
	dial()
	<-accepted
	l.closeConns()
	if n := len(l.conns); n != 0 {
		t.Errorf("%d connections after closing all", n)
	}
	_ = l.Close()
	<-done
}

func TestLocalAddressesLeaveOutBridges(t *testing.T) {
	t.Parallel()
	ips, err := localAddresses()
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range ips {
		if ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsMulticast() {
			t.Errorf("%v cannot be reached", ip)
		}
	}
	if names := []string{"docker0", "br-12ab", "veth1"}; slices.ContainsFunc(names, func(n string) bool { return !isBridge(n) }) {
		t.Error("a bridge is taken for an interface")
	}
	if isBridge("eth0") || isBridge("lo") {
		t.Error("an interface is taken for a bridge")
	}
}
