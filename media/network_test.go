package media_test

import (
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pion/webrtc/v4"

	"github.com/berthdev/berth/media"
)

// offerOnly negotiates and returns the candidates of the answer.
func (c *client) candidatesOfAnswer(s *media.Session) []string {
	c.t.Helper()
	c.send(webrtc.MimeTypeOpus)
	c.join(s)
	offer, err := c.pc.CreateOffer(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	answer, err := c.peer.Offer(c.ctx, offer.SDP)
	if err != nil {
		c.t.Fatal(err)
	}
	return regexp.MustCompile(`a=candidate:.* 1 (?:udp|tcp) .*`).FindAllString(answer, -1)
}

func TestTheAnnouncedAddressReplacesTheLocalOne(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		cfg  media.Config
		want string
	}{
		"address and port": {media.Config{Announce: "203.0.113.7:4000"}, "203.0.113.7 4000 "},
		"address":          {media.Config{Announce: "203.0.113.7"}, "203.0.113.7 PORT "},
		"no local address": {media.Config{Listen: "0.0.0.0:0", Announce: "203.0.113.7:4000"}, "203.0.113.7 4000 "},
		"no local ipv6":    {media.Config{Listen: ":0", Announce: "[2001:db8::7]:4000"}, "2001:db8::7 4000 "},
		"ipv6":             {media.Config{Listen: "[::1]:0", Announce: "[2001:db8::7]:4000"}, "2001:db8::7 4000 "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t, test.cfg)
			port := netip.AddrPortFrom(netip.IPv4Unspecified(), e.Addrs()[0].Port()).String()
			want := strings.Replace(test.want, "PORT", port[strings.LastIndex(port, ":")+1:], 1)
			got := newClient(t, testContext(t), clientConfig{}).candidatesOfAnswer(openSession(t, e, "echo"))
			kinds := make(map[string]int)
			for _, c := range got {
				if !strings.Contains(c, want) {
					t.Errorf("candidate %q does not hold %q", c, want)
				}
				kinds[strings.Fields(c)[2]]++
			}
			if kinds["udp"] != 1 || kinds["tcp"] > 1 {
				t.Errorf("not one candidate per transport: %q", got)
			}
		})
	}
}

// On the wildcard address there is one announced address and several local ones.
func TestAWildcardSocketConnectsThroughTheAnnouncedAddress(t *testing.T) {
	t.Parallel()
	for _, tcp := range []bool{false, true} {
		ctx := testContext(t)
		e := newEngine(t, media.Config{Listen: "0.0.0.0:0", Announce: "127.0.0.1"})
		c := newClient(t, ctx, clientConfig{tcp: tcp})
		c.send(webrtc.MimeTypeOpus)
		c.connect(openSession(t, e, "echo"))
		c.expect(webrtc.RTPCodecTypeAudio, 5)
	}
}

func TestEveryLocalAddressIsUsedWithoutListenAndAnnounce(t *testing.T) {
	t.Parallel()
	e := newEngine(t, media.Config{Listen: ":0"})
	got := newClient(t, testContext(t), clientConfig{}).candidatesOfAnswer(openSession(t, e, "echo"))
	for _, addr := range e.Addrs() {
		if addr.Port() != e.Addrs()[0].Port() {
			t.Errorf("ports differ: %v", e.Addrs())
		}
		if !strings.Contains(strings.Join(got, "\n"), " "+addr.Addr().String()+" ") {
			t.Errorf("no candidate for %v: %q", addr, got)
		}
	}
}

func TestAClientWithoutUDPConnectsOverTCP(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newClient(t, ctx, clientConfig{tcp: true})
	c.send(webrtc.MimeTypeVP8)
	c.connect(openSession(t, newEngine(t, media.Config{}), "echo"))
	c.expect(webrtc.RTPCodecTypeVideo, 10)
}

// A connection that sends nothing must not hold up Close.
func TestAnIdleTCPConnectionDoesNotDelayClosing(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	e := newEngine(t, media.Config{})
	conn, err := net.Dial("tcp", e.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := e.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestConfigThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]media.Config{
		"Listen":     {Listen: "nowhere"},
		"Announce":   {Announce: "example.com"},
		"clients":    {Announce: "0.0.0.0:1"},
		"family":     {Listen: "127.0.0.1:0", Announce: "2001:db8::1"},
		"MaxPeers":   {MaxPeers: -1},
		"timeouts":   {CloseTimeout: -1},
		"factory":    {Handlers: map[string]media.HandlerFactory{"x": nil}},
		"listen on ": {Listen: "203.0.113.7:0"},
	} {
		if cfg.Listen == "" {
			cfg.Listen = "127.0.0.1:0"
		}
		if _, err := media.New(cfg, slog.New(slog.DiscardHandler), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want an error about %q", cfg, err, want)
		}
	}
}

// nat forwards between one client and the engine, and can change the address that the engine sees.
type nat struct {
	t       *testing.T
	outside *net.UDPConn // the client sends here
	engine  atomic.Pointer[net.UDPAddr]
	client  atomic.Pointer[net.UDPAddr]
	inside  atomic.Pointer[net.UDPConn] // the engine sees this address
}

func newNAT(t *testing.T) *nat {
	t.Helper()
	n := &nat{t: t, outside: loopbackSocket(t)}
	n.inside.Store(loopbackSocket(t))
	go n.forward()
	return n
}

func loopbackSocket(t *testing.T) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// start forwards to an engine.
func (n *nat) start(e *media.Engine) {
	n.engine.Store(net.UDPAddrFromAddrPort(e.Addrs()[0]))
	go n.back(n.inside.Load())
}

// rebind continues from a new address; the old one is gone.
func (n *nat) rebind() {
	conn := loopbackSocket(n.t)
	old := n.inside.Swap(conn)
	_ = old.Close()
	go n.back(conn)
}

func (n *nat) forward() {
	buf := make([]byte, 2000)
	for {
		size, from, err := n.outside.ReadFromUDP(buf)
		if err != nil {
			return
		}
		n.client.Store(from)
		if to := n.engine.Load(); to != nil {
			_, _ = n.inside.Load().WriteToUDP(buf[:size], to)
		}
	}
}

func (n *nat) back(conn *net.UDPConn) {
	buf := make([]byte, 2000)
	for {
		size, _, err := conn.ReadFromUDP(buf)
		if err != nil {
			return
		}
		_, _ = n.outside.WriteToUDP(buf[:size], n.client.Load())
	}
}

func TestMediaFollowsAClientToANewAddress(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	n := newNAT(t)
	e := newEngine(t, media.Config{Announce: n.outside.LocalAddr().String(), DisableTCP: true})
	n.start(e)
	c := newClient(t, ctx, clientConfig{})
	c.send(webrtc.MimeTypeVP8)
	c.join(openSession(t, e, "echo"))
	c.offer(nil) // without candidates of the client: the engine knows only the NAT
	_ = c.events.await(t, ctx, media.StateConnected)
	c.expect(webrtc.RTPCodecTypeVideo, 10)

	n.rebind()
	c.expect(webrtc.RTPCodecTypeVideo, 20)
}
