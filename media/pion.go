package media

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/logging"
	"github.com/pion/webrtc/v4"
)

// stack makes peer connections that share the engine's sockets.
type stack struct {
	settings     webrtc.SettingEngine
	codecs       *webrtc.MediaEngine
	interceptors *interceptor.Registry
}

func newStack(s *sockets, loggers logging.LoggerFactory) (*stack, error) {
	st := &stack{codecs: &webrtc.MediaEngine{}, interceptors: &interceptor.Registry{}}
	if err := st.codecs.RegisterDefaultCodecs(); err != nil {
		return nil, fmt.Errorf("media: register codecs: %w", err)
	}
	if err := registerInterceptors(st.codecs, st.interceptors); err != nil {
		return nil, fmt.Errorf("media: register interceptors: %w", err)
	}
	st.settings.LoggerFactory = loggers
	if err := st.configureICE(s); err != nil {
		return nil, fmt.Errorf("media: configure ICE: %w", err)
	}
	st.configureTransports()
	return st, nil
}

// registerInterceptors adds NACK both ways, sender and receiver reports, and TWCC feedback.
func registerInterceptors(codecs *webrtc.MediaEngine, registry *interceptor.Registry) error {
	if err := webrtc.ConfigureNack(codecs, registry); err != nil {
		return err
	}
	if err := webrtc.ConfigureRTCPReports(registry); err != nil {
		return err
	}
	if err := webrtc.ConfigureSimulcastExtensionHeaders(codecs); err != nil {
		return err
	}
	return webrtc.ConfigureTWCCSender(codecs, registry)
}

func (st *stack) configureICE(s *sockets) error {
	se := &st.settings
	se.SetICEUDPMux(s.udp)
	networks := []webrtc.NetworkType{webrtc.NetworkTypeUDP4, webrtc.NetworkTypeUDP6}
	if s.tcp != nil {
		se.SetICETCPMux(s.tcp)
		networks = append(networks, webrtc.NetworkTypeTCP4, webrtc.NetworkTypeTCP6)
	}
	se.SetNetworkTypes(networks)
	se.DisableActiveTCP(true) // clients dial us, never the reverse
	se.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	se.SetIncludeLoopbackCandidate(s.loopback())
	se.SetIPFilter(func(ip net.IP) bool {
		addr, ok := netip.AddrFromSlice(ip)
		return ok && slices.Contains(s.tcpIPs, addr.Unmap())
	})
	if !s.announce.IsValid() {
		return nil
	}
	return se.SetICEAddressRewriteRules(webrtc.ICEAddressRewriteRule{
		External:        []string{s.announce.Addr().String()},
		AsCandidateType: webrtc.ICECandidateTypeHost,
		Mode:            webrtc.ICEAddressRewriteReplace,
		NewPort:         int(s.announce.Port()),
	})
}

func (st *stack) configureTransports() {
	se := &st.settings
	se.SetDTLSRetransmissionInterval(handshakeRetry)
	// Detached channels with blocking writes: the echo of a client that does not read waits, and
	// SCTP's window stops the client's sending.
	se.DetachDataChannels()
	se.EnableDataChannelBlockWrite(true)
	se.SetSCTPMaxMessageSize(maxMessageBytes)
}

// connect makes a peer connection. Moves of the client are decided by r.
func (st *stack) connect(r *roamer) (*webrtc.PeerConnection, error) {
	settings := st.settings
	settings.SetICEBindingRequestHandler(r.onBindingRequest)
	pc, err := webrtc.NewAPI(
		webrtc.WithSettingEngine(settings),
		webrtc.WithMediaEngine(st.codecs),
		webrtc.WithInterceptorRegistry(st.interceptors),
	).NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return nil, fmt.Errorf("media: new connection: %w", err)
	}
	pc.SCTP().Transport().ICETransport().OnSelectedCandidatePairChange(r.onSelected)
	return pc, nil
}
