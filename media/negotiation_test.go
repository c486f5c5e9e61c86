package media_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"

	"github.com/berthdev/berth/media"
)

func TestCandidatesBeforeTheOfferAreKept(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newClient(t, ctx, clientConfig{})
	c.send(webrtc.MimeTypeOpus)
	c.join(openSession(t, newEngine(t, media.Config{}), "echo"))

	// The only way to the server is through candidates that come first: the offer holds none, and the
	// answer's are withheld from the client.
	gathered := webrtc.GatheringCompletePromise(c.pc)
	offer, err := c.pc.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.pc.SetLocalDescription(offer); err != nil {
		t.Fatal(err)
	}
	receive(t, ctx, gathered)
	line := regexp.MustCompile(`(?m)^a=(candidate:.*)\r\n`)
	found := line.FindStringSubmatch(c.pc.LocalDescription().SDP)
	if found == nil {
		t.Fatal("the client has no candidate")
	}
	for range 5 {
		if err := c.peer.Candidate(ctx, &media.Candidate{Candidate: found[1]}); err != nil {
			t.Fatalf("early candidate: %v", err)
		}
	}
	answer, err := c.peer.Offer(ctx, offer.SDP)
	if err != nil {
		t.Fatal(err)
	}
	if !line.MatchString(answer) {
		t.Error("the answer holds no candidates")
	}
	c.accept(line.ReplaceAllString(answer, ""))
	_ = c.events.await(t, ctx, media.StateConnected)
	c.expect(webrtc.RTPCodecTypeAudio, 5)
}

func TestCandidatesAreBounded(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newClient(t, ctx, clientConfig{})
	c.send(webrtc.MimeTypeOpus)
	c.join(openSession(t, newEngine(t, media.Config{}), "echo"))
	candidate := func(i int) *media.Candidate {
		return &media.Candidate{Candidate: fmt.Sprintf("candidate:1 1 udp 1 127.0.0.1 %d typ host", 40000+i)}
	}
	for i := range 64 {
		if err := c.peer.Candidate(ctx, candidate(i)); err != nil {
			t.Fatalf("early candidate %d: %v", i, err)
		}
	}
	if err := c.peer.Candidate(ctx, candidate(64)); !errors.Is(err, media.ErrTooManyCandidates) {
		t.Errorf("65th early candidate: %v", err)
	}
	if err := c.peer.Candidate(ctx, nil); err != nil {
		t.Errorf("end of candidates: %v", err)
	}
	c.offer(nil) // without candidates of its own, which would find no room; the server learns the address anyway
	_ = c.events.await(t, ctx, media.StateConnected)
	if err := c.peer.Candidate(ctx, &media.Candidate{Candidate: "candidate:nonsense"}); !errors.Is(err, media.ErrBadCandidate) {
		t.Errorf("nonsense: %v", err)
	}
	long := strings.Repeat("x", 2000)
	for _, bad := range []*media.Candidate{
		{Candidate: long}, {Candidate: "c", SDPMid: &long}, {Candidate: "c", UsernameFragment: &long},
	} {
		if err := c.peer.Candidate(ctx, bad); !errors.Is(err, media.ErrBadCandidate) {
			t.Errorf("long candidate: %v", err)
		}
	}
	var err error
	for i := 0; i < 300 && err == nil; i++ {
		err = c.peer.Candidate(ctx, candidate(i))
	}
	if !errors.Is(err, media.ErrTooManyCandidates) {
		t.Errorf("300 candidates: %v", err)
	}
}

func TestLocalNamesAreIgnoredWithoutResolving(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := openSession(t, newEngine(t, media.Config{}), "echo")
	c := newClient(t, ctx, clientConfig{})
	c.send(webrtc.MimeTypeOpus)
	c.connect(s)
	// A resolver would take seconds for each; the test's deadline is far below their sum.
	for i := range 200 {
		name := fmt.Sprintf("candidate:1 1 udp 2113937151 %08d-7c5a-4c5c-8f1e-1f4a1c3d1b11.local 50000 typ host", i)
		if err := c.peer.Candidate(ctx, &media.Candidate{Candidate: name}); err != nil {
			t.Fatalf("candidate %d: %v", i, err)
		}
	}
	c.expect(webrtc.RTPCodecTypeAudio, 5)
}

// breakSDP lists ways to spoil a good offer, each with a word that the error must hold.
func breakSDP(good string) map[string][2]string {
	drop := func(pattern string) string {
		return regexp.MustCompile(`(?m)^`+pattern+`.*\r\n`).ReplaceAllString(good, "")
	}
	replace := func(pattern, with string) string { return regexp.MustCompile(pattern).ReplaceAllString(good, with) }
	return map[string][2]string{
		"empty":                  {"", "media section"},
		"garbage":                {"v=0\r\nthis is not it\r\n", "SDP"},
		"binary":                 {"\x00\xff\xfe", "SDP"},
		"no media section":       {good[:strings.Index(good, "m=")], "media section"},
		"no mid":                 {drop("a=mid:"), "a=mid"},
		"same mid twice":         {replace(`a=mid:1`, "a=mid:0"), "a=mid"},
		"no ufrag":               {drop("a=ice-ufrag:"), "ice-ufrag"},
		"no password":            {drop("a=ice-pwd:"), "ice-pwd"},
		"short password":         {replace(`a=ice-pwd:\S+`, "a=ice-pwd:x"), "ice-pwd"},
		"no fingerprint":         {drop("a=fingerprint:"), "fingerprint"},
		"empty fingerprint":      {replace(`a=fingerprint:.*`, "a=fingerprint:"), "fingerprint"},
		"unknown hash":           {replace(`a=fingerprint:sha-256`, "a=fingerprint:sha-9"), "hash"},
		"truncated fingerprint":  {replace(`(a=fingerprint:sha-256 ..:..).*`, "$1"), "digest"},
		"bundle without section": {replace(`a=group:BUNDLE.*`, "a=group:BUNDLE nowhere"), "BUNDLE"},
		"too long":               {good + strings.Repeat("a=x\r\n", 30000), "longer"},
		"too many candidates": {
			good + strings.Repeat("a=candidate:1 1 udp 1 127.0.0.1 9 typ host\r\n", 300), "candidates",
		},
		"malformed candidate": {good + "a=candidate:1 1 udp nonsense\r\n", "candidate"},
	}
}

func TestABadOfferChangesNothing(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newClient(t, ctx, clientConfig{})
	c.send(webrtc.MimeTypeOpus)
	c.send(webrtc.MimeTypeVP8)
	c.join(openSession(t, newEngine(t, media.Config{}), "echo"))
	c.trickle()
	offer, err := c.pc.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	bad := breakSDP(offer.SDP)
	try := func(when string) {
		for name, b := range bad {
			_, err := c.peer.Offer(ctx, b[0])
			if !errors.Is(err, media.ErrBadSDP) || !strings.Contains(err.Error(), b[1]) {
				t.Errorf("%s: offer with %s: %v; want an error about %q", when, name, err, b[1])
			}
		}
		for _, sdp := range []string{offer.SDP, "v=0"} {
			if err := c.peer.Answer(ctx, sdp); !errors.Is(err, media.ErrNoOffer) {
				t.Errorf("%s: answer without an offer: %v", when, err)
			}
		}
	}
	try("before the first offer")
	c.offer(nil)
	_ = c.events.await(t, ctx, media.StateConnected)
	c.expect(webrtc.RTPCodecTypeAudio, 5)
	try("when connected")
	c.expect(webrtc.RTPCodecTypeVideo, 5)
	c.offer(nil)
	c.expect(webrtc.RTPCodecTypeAudio, 5)
}

// A handler's refusal comes after Pion has taken the offer, which it cannot take back.
func TestAnOfferThatFailsHalfwayCanBeRepeated(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	refusals := 2
	e := newEngine(t, media.Config{Handlers: map[string]media.HandlerFactory{
		"picky": func(*media.Session) (media.Handler, error) {
			return media.HandlerFunc(func(*media.Peer) (media.PeerHandler, error) {
				return &stubHandler{negotiate: func(n *media.Negotiation) error {
					if refusals > 0 {
						refusals--
						return errors.New("not yet")
					}
					return nil
				}}, nil
			}), nil
		},
	}})
	c := newClient(t, ctx, clientConfig{})
	c.send(webrtc.MimeTypeOpus)
	c.join(openSession(t, e, "picky"))
	c.trickle()
	offer, err := c.pc.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.peer.Offer(ctx, offer.SDP); !errors.Is(err, media.ErrHandler) {
			t.Fatalf("refused offer: %v", err)
		}
	}
	c.offer(nil)
	_ = c.events.await(t, ctx, media.StateConnected)
}

func TestICERestartKeepsMedia(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newClient(t, ctx, clientConfig{})
	c.send(webrtc.MimeTypeVP8)
	c.connect(openSession(t, newEngine(t, media.Config{}), "echo"))
	c.expect(webrtc.RTPCodecTypeVideo, 5)
	for range 3 {
		c.offer(&webrtc.OfferOptions{ICERestart: true})
		c.expect(webrtc.RTPCodecTypeVideo, 20)
	}
}

// Offers that come while earlier ones still gather are all answered, in order, and the last one counts.
func TestOverlappingOffersAreSerialized(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newClient(t, ctx, clientConfig{})
	c.send(webrtc.MimeTypeVP8)
	c.join(openSession(t, newEngine(t, media.Config{}), "echo"))
	c.trickle()

	first, err := c.pc.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	ufrag := regexp.MustCompile(`a=ice-ufrag:\S+`)
	answers := make(chan string, 3)
	for i := range 2 {
		sdp := ufrag.ReplaceAllString(first.SDP, fmt.Sprintf("a=ice-ufrag:restart%d", i))
		if err := c.peer.OfferFunc(ctx, sdp, func(answer string) { answers <- answer }); err != nil {
			t.Fatalf("offer %d: %v", i, err)
		}
	}
	c.offer(nil)
	if a, b := receive(t, ctx, answers), receive(t, ctx, answers); ufrag.FindString(a) == ufrag.FindString(b) {
		t.Error("a restart kept the server's credentials")
	}
	_ = c.events.await(t, ctx, media.StateConnected)
	c.expect(webrtc.RTPCodecTypeVideo, 10)
}

// The server is impolite: a client's offer that crosses its own is refused, and both have what they want in the
// end.
func TestGlareEndsStable(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	peers := make(chan *media.Peer, 1)
	e := newEngine(t, media.Config{Handlers: map[string]media.HandlerFactory{
		"late": func(*media.Session) (media.Handler, error) {
			return media.HandlerFunc(func(p *media.Peer) (media.PeerHandler, error) {
				peers <- p
				return &stubHandler{}, nil
			}), nil
		},
	}})
	c := newClient(t, ctx, clientConfig{})
	c.channel("chat")
	c.connect(openSession(t, e, "late"))
	peer := receive(t, ctx, peers)

	var track *media.FrameTrack
	add := func(n *media.Negotiation) (err error) {
		track, err = n.SendFrames("video/VP8")
		return err
	}
	if err := peer.Renegotiate(ctx, add); err != nil {
		t.Fatalf("Renegotiate: %v", err)
	}
	serverOffer := receive(t, ctx, c.events.offers)
	// Pion has no rollback, so the offer that crosses is another client's and not applied here.
	other := newClient(t, ctx, clientConfig{})
	other.send(webrtc.MimeTypeOpus)
	crossing, err := other.pc.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.peer.Offer(ctx, crossing.SDP); !errors.Is(err, media.ErrGlare) {
		t.Fatalf("crossing offer: %v", err)
	}
	c.answer(serverOffer)
	c.send(webrtc.MimeTypeOpus)
	c.offer(nil)

	c.writing(func() { _ = track.Write([]byte{0, 1, 2, 3}, 10*time.Millisecond) })
	c.expect(webrtc.RTPCodecTypeVideo, 3)
}

// writing calls f every 10 ms until the test ends.
func (c *client) writing(f func()) {
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			f()
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	}()
	c.t.Cleanup(func() { cancel(); <-done })
}

// answer applies an offer of the server and answers it.
func (c *client) answer(offer string) {
	c.t.Helper()
	if err := c.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offer}); err != nil {
		c.t.Fatalf("server's offer: %v", err)
	}
	answer, err := c.pc.CreateAnswer(nil)
	if err != nil {
		c.t.Fatalf("CreateAnswer: %v", err)
	}
	if err := c.pc.SetLocalDescription(answer); err != nil {
		c.t.Fatalf("SetLocalDescription: %v", err)
	}
	if err := c.peer.Answer(c.ctx, answer.SDP); err != nil {
		c.t.Fatalf("Answer: %v", err)
	}
}

// stubHandler is a PeerHandler of functions; nil ones do nothing.
type stubHandler struct {
	negotiate func(n *media.Negotiation) error
	run       func(ctx context.Context) error
	track     func(t *media.Track) error
	channel   func(c *media.Channel) error
}

func (h *stubHandler) Negotiate(_ context.Context, n *media.Negotiation) error {
	if h.negotiate == nil {
		return nil
	}
	return h.negotiate(n)
}

func (h *stubHandler) Run(ctx context.Context) error {
	if h.run == nil {
		return nil
	}
	return h.run(ctx)
}

func (h *stubHandler) Track(_ context.Context, t *media.Track) error {
	if h.track == nil {
		return nil
	}
	return h.track(t)
}

func (h *stubHandler) Channel(_ context.Context, c *media.Channel) error {
	if h.channel == nil {
		return nil
	}
	return h.channel(c)
}
