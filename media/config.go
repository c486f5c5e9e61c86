package media

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"time"
)

// Limits that are part of the protocol and not configurable.
const (
	maxSDPBytes         = 128 << 10 // DESIGN: one frame of signaling
	maxCandidateBytes   = 1 << 10   // of all its members
	maxEarlyCandidates  = 64
	maxRemoteCandidates = 256
	maxSections         = 256
	maxChannels         = 64
	maxMessageBytes     = 256 << 10 // what browsers announce
	sessionQueue        = 256
	answerTimeout       = 15 * time.Second
	gatherWait          = 250 * time.Millisecond
	handshakeRetry      = 250 * time.Millisecond // of DTLS; Pion's second delays a join after one lost packet
)

// Config is what may be chosen about an Engine. The zero value works.
type Config struct {
	// Listen is the UDP address that all sessions share, as "127.0.0.1:0" or ":7882". Without an address
	// the port is opened on every local address (or, with Announce, on the wildcard address). Port 0 picks
	// a free port. Default ":7882".
	Listen string
	// Announce is the address that candidates name in place of the local one: an IP address, or an IP
	// address and port if a balancer or port mapping changes it too. Default: the socket's addresses.
	Announce string
	// DisableTCP turns off ICE-TCP on the port of Listen. If that port cannot be opened for TCP the
	// engine runs without it.
	DisableTCP bool
	// MaxPeers bounds the peers of the process. Default 1024.
	MaxPeers int
	// MaxSessionPeers bounds the peers of one session. Default 64.
	MaxSessionPeers int
	// ConnectTimeout is how long a peer may take from its first answer to connected, which includes ICE
	// and the DTLS handshake. Default 30 s.
	ConnectTimeout time.Duration
	// CloseTimeout bounds the closing of a peer. Default 5 s.
	CloseTimeout time.Duration
	// Handlers adds to, or replaces, the handlers `echo` and `play` by name.
	Handlers map[string]HandlerFactory
}

// withDefaults returns a copy with every unset field set.
func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, ":7882")
	c.MaxPeers = cmp.Or(c.MaxPeers, 1024)
	c.MaxSessionPeers = cmp.Or(c.MaxSessionPeers, 64)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 30*time.Second)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, 5*time.Second)
	c.Handlers = maps.Clone(c.Handlers)
	return c
}

// validate reports the first setting that cannot work.
func (c Config) validate() error {
	if c.MaxPeers < 1 || c.MaxSessionPeers < 1 {
		return errors.New("media: MaxPeers and MaxSessionPeers must be at least 1")
	}
	if c.ConnectTimeout < 0 || c.CloseTimeout < 0 {
		return errors.New("media: timeouts must not be negative")
	}
	for name, factory := range c.Handlers {
		if name == "" || factory == nil {
			return fmt.Errorf("media: Handlers[%q] needs a name and a factory", name)
		}
	}
	return nil
}

// listenAddress parses Listen. The address is invalid if none is named.
func (c Config) listenAddress() (netip.Addr, uint16, error) {
	udp, err := net.ResolveUDPAddr("udp", c.Listen)
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("media: Listen must be [address]:port: %w", err)
	}
	both := udp.AddrPort()
	ip := both.Addr().Unmap()
	if !ip.IsValid() || ip.IsUnspecified() {
		return netip.Addr{}, both.Port(), nil
	}
	return ip, both.Port(), nil
}

// announceAddress parses Announce. The port is zero if only an address is announced, the address
// invalid if nothing is.
func (c Config) announceAddress() (netip.AddrPort, error) {
	if c.Announce == "" {
		return netip.AddrPort{}, nil
	}
	if ip, err := netip.ParseAddr(c.Announce); err == nil {
		return checkAnnounced(netip.AddrPortFrom(ip.Unmap(), 0))
	}
	both, err := netip.ParseAddrPort(c.Announce)
	if err != nil || both.Port() == 0 {
		return netip.AddrPort{}, errors.New("media: Announce must be an IP address or ip:port")
	}
	return checkAnnounced(netip.AddrPortFrom(both.Addr().Unmap(), both.Port()))
}

func checkAnnounced(addr netip.AddrPort) (netip.AddrPort, error) {
	if ip := addr.Addr(); ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" {
		return netip.AddrPort{}, errors.New("media: Announce must be an address that clients can send to")
	}
	return addr, nil
}
