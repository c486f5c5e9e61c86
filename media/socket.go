package media

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/logging"
)

const (
	socketBuffer    = 4 << 20 // bytes; absorbs bursts of all sessions, the kernel may grant less
	tcpReadPackets  = 64
	tcpWriteBuffer  = 1 << 20
	tcpFirstPacket  = 5 * time.Second
	portAttempts    = 16
	connsPerMaxPeer = 2
)

// sockets are the transports that all peers share.
type sockets struct {
	udp      ice.UDPMux
	tcp      ice.TCPMux // nil without ICE-TCP
	tcpConns *boundedListener
	// bound lists the UDP addresses in use; a single unspecified one in wildcard mode.
	bound []netip.AddrPort
	// tcpIPs are the local addresses whose TCP candidates are offered.
	tcpIPs   []netip.Addr
	announce netip.AddrPort
}

// openSockets opens the port of cfg for UDP and, if possible, TCP.
func openSockets(cfg Config, loggers logging.LoggerFactory, log *slog.Logger) (*sockets, error) {
	listen, port, err := cfg.listenAddress()
	if err != nil {
		return nil, err
	}
	announce, err := cfg.announceAddress()
	if err != nil {
		return nil, err
	}
	if announce.IsValid() && listen.IsValid() && announce.Addr().Is4() != listen.Is4() {
		return nil, errors.New("media: Listen and Announce must be of one address family")
	}
	s := &sockets{announce: announce}
	for attempt := 1; ; attempt++ {
		err := s.open(cfg, listen, port, loggers)
		if err == nil {
			return s, nil
		}
		var tcpErr *tcpListenError
		if !errors.As(err, &tcpErr) {
			return nil, fmt.Errorf("media: listen on %s: %w", cfg.Listen, err)
		}
		// A free UDP port can be taken for TCP: try another while the choice is ours.
		if port != 0 || attempt == portAttempts {
			log.Warn("media tcp fallback unavailable", "err", tcpErr.err)
			cfg.DisableTCP = true
		}
	}
}

// tcpListenError marks a failure that leaves UDP usable.
type tcpListenError struct{ err error }

func (e *tcpListenError) Error() string { return e.err.Error() }

// open makes one attempt and leaves nothing open on failure.
func (s *sockets) open(cfg Config, listen netip.Addr, port uint16, loggers logging.LoggerFactory) error {
	conns, err := s.bind(listen, port)
	if err != nil {
		return err
	}
	s.bound = addresses(conns)
	if !cfg.DisableTCP {
		if err := s.openTCP(listen, cfg.MaxPeers*connsPerMaxPeer, loggers); err != nil {
			closeAll(conns)
			return &tcpListenError{err: err}
		}
	}
	muxes := make([]ice.UDPMux, 0, len(conns))
	for _, conn := range conns {
		mux := ice.NewUDPMuxDefault(ice.UDPMuxParams{UDPConn: conn, Logger: loggers.NewLogger("udp")})
		muxes = append(muxes, familyMux{UDPMuxDefault: mux, v4: udpAddrPort(conn.LocalAddr()).Addr().Is4()})
	}
	s.udp = muxes[0]
	if len(muxes) > 1 {
		s.udp = ice.NewMultiUDPMuxDefault(muxes...)
	}
	return nil
}

// familyMux lists addresses of the socket's own family only: Pion takes an IPv6 wildcard socket for one of both.
type familyMux struct {
	*ice.UDPMuxDefault
	v4 bool
}

// GetListenAddresses implements ice.UDPMux.
func (m familyMux) GetListenAddresses() []net.Addr {
	return slices.DeleteFunc(m.UDPMuxDefault.GetListenAddresses(), func(a net.Addr) bool {
		return udpAddrPort(a).Addr().Is4() != m.v4
	})
}

// bind opens one socket, or one per local address if neither Listen nor Announce names one: a
// socket that is bound to its address answers from the address it was asked at.
func (s *sockets) bind(listen netip.Addr, port uint16) ([]*net.UDPConn, error) {
	ips := []netip.Addr{listen}
	switch {
	case listen.IsValid():
	case s.announce.IsValid() && s.announce.Addr().Is4():
		ips = []netip.Addr{netip.IPv4Unspecified()}
	case s.announce.IsValid():
		ips = []netip.Addr{netip.IPv6Unspecified()}
	default:
		var err error
		if ips, err = localAddresses(); err != nil {
			return nil, err
		}
	}
	var conns []*net.UDPConn
	for _, ip := range ips {
		conn, err := listenUDP(netip.AddrPortFrom(ip, port))
		if err != nil {
			closeAll(conns)
			return nil, err
		}
		conns = append(conns, conn)
		port = udpAddrPort(conn.LocalAddr()).Port()
	}
	return conns, nil
}

// openTCP listens on the UDP port's number.
func (s *sockets) openTCP(listen netip.Addr, limit int, loggers logging.LoggerFactory) error {
	address := &net.TCPAddr{Port: int(s.bound[0].Port())}
	if listen.IsValid() {
		address.IP, address.Zone = listen.AsSlice(), listen.Zone()
	}
	listener, err := net.ListenTCP("tcp", address)
	if err != nil {
		return err
	}
	s.tcpConns = newBoundedListener(listener, limit)
	s.tcpIPs = s.tcpAddresses()
	s.tcp = ice.NewTCPMuxDefault(ice.TCPMuxParams{
		Listener:             s.tcpConns,
		Logger:               loggers.NewLogger("tcp"),
		ReadBufferSize:       tcpReadPackets,
		WriteBufferSize:      tcpWriteBuffer,
		FirstStunBindTimeout: tcpFirstPacket,
	})
	return nil
}

// tcpAddresses returns the local addresses to offer for TCP. Behind an announced address only one local
// address may be offered: a second would be an equal candidate, and Pion drops its connections.
func (s *sockets) tcpAddresses() []netip.Addr {
	if !s.announce.IsValid() || !s.bound[0].Addr().IsUnspecified() {
		ips := make([]netip.Addr, 0, len(s.bound))
		for _, addr := range s.bound {
			ips = append(ips, addr.Addr())
		}
		return ips
	}
	// Connecting a UDP socket sends nothing; it asks the routing table for the local address.
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.announce.Addr(), 9)))
	if err != nil {
		return nil
	}
	defer conn.Close()
	return []netip.Addr{udpAddrPort(conn.LocalAddr()).Addr()}
}

// loopback reports whether loopback candidates have to be allowed.
func (s *sockets) loopback() bool {
	return slices.ContainsFunc(s.bound, func(a netip.AddrPort) bool {
		return a.Addr().IsLoopback() || a.Addr().IsUnspecified()
	})
}

// close ends all traffic. Peers must be closed before.
func (s *sockets) close() error {
	err := s.udp.Close()
	if s.tcp != nil {
		s.tcpConns.closeConns() // or the mux waits for the first packet of each idle connection
		err = errors.Join(err, s.tcp.Close())
	}
	return err
}

func listenUDP(addr netip.AddrPort) (*net.UDPConn, error) {
	network := "udp6"
	if addr.Addr().Is4() {
		network = "udp4"
	}
	conn, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	// Best effort: the kernel caps it at net.core.[rw]mem_max.
	_ = conn.SetReadBuffer(socketBuffer)
	_ = conn.SetWriteBuffer(socketBuffer)
	return conn, nil
}

// localAddresses returns the addresses of this host that clients may reach, loopback ones only if there
// is nothing else. Bridges of container engines are left out: clients cannot reach those.
func localAddresses() ([]netip.Addr, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var usable, loopback []netip.Addr
	for _, ifc := range interfaces {
		if ifc.Flags&net.FlagUp == 0 || isBridge(ifc.Name) {
			continue
		}
		for _, ip := range interfaceAddresses(ifc) {
			if ip.IsLoopback() {
				loopback = append(loopback, ip)
			} else if ip.IsGlobalUnicast() {
				usable = append(usable, ip)
			}
		}
	}
	if len(usable) > 0 {
		return usable, nil
	}
	if len(loopback) > 0 {
		return loopback, nil
	}
	return nil, errors.New("this host has no usable address; set Listen")
}

func interfaceAddresses(ifc net.Interface) []netip.Addr {
	addrs, err := ifc.Addrs()
	if err != nil {
		return nil
	}
	var ips []netip.Addr
	for _, addr := range addrs {
		if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
			ips = append(ips, prefix.Addr().Unmap())
		}
	}
	return ips
}

func isBridge(name string) bool {
	return slices.ContainsFunc([]string{"docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "kube"},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func addresses(conns []*net.UDPConn) []netip.AddrPort {
	addrs := make([]netip.AddrPort, 0, len(conns))
	for _, conn := range conns {
		addrs = append(addrs, udpAddrPort(conn.LocalAddr()))
	}
	return addrs
}

func udpAddrPort(addr net.Addr) netip.AddrPort {
	udp, ok := addr.(*net.UDPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	both := udp.AddrPort()
	return netip.AddrPortFrom(both.Addr().Unmap(), both.Port())
}

func closeAll(conns []*net.UDPConn) {
	for _, conn := range conns {
		_ = conn.Close()
	}
}
