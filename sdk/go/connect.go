package berth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"
)

// Defaults of ConnectConfig.
const (
	DefaultHandshakeTimeout = 5 * time.Second
	DefaultMediaTimeout     = 15 * time.Second
	DefaultGiveUpAfter      = 10 * time.Minute
)

// ConnectConfig says what a peer sends and who hears of what it receives. At least one of Tracks, Receive, DataChannels and
// Prepare must be set, since an offer without media is refused, or SignalingOnly.
type ConnectConfig struct {
	// Tracks are sent to the owner, and to the next owner after a move. What the handler sends back on the same
	// transceivers arrives at OnTrack.
	Tracks []webrtc.TrackLocal

	// Receive adds a receive-only transceiver for each kind, for handlers that send without being sent to.
	Receive []webrtc.RTPCodecType

	// DataChannels are opened by this peer, anew on each link.
	DataChannels []DataChannel

	// OnTrack is called in a goroutine of its own for each remote track of each link. Its reads fail once the link
	// is over. The goroutine belongs to the callback: Conn does not wait for it.
	OnTrack func(*webrtc.TrackRemote, *webrtc.RTPReceiver)

	// OnDataChannel is called for each data channel that the owner opens.
	OnDataChannel func(*webrtc.DataChannel)

	// OnRTCP receives the owner's feedback on a track that is sent, such as picture loss indications.
	OnRTCP func(webrtc.TrackLocal, []rtcp.Packet)

	// SignalingOnly makes no PeerConnection: the peer is connected as soon as its owner welcomed it. It is for peers that
	// only listen and publish. What the call's other peer offers is ignored, and the fields about media are too.
	SignalingOnly bool

	// Topics are listened to, 256 at most. After each loss the connection resumes behind the last message that it heard, by
	// one frame for all of them.
	Topics []string

	// OnMessage is called for each message of Topics, in their order, and for what is sent to the placement's user. It is
	// not called at the same time as itself or OnSubscribed. Nothing is read meanwhile, so a callback that is slow for
	// long has the owner close the connection, which resumes.
	OnMessage func(Message)

	// OnSubscribed is called before the messages that follow: at first, and with what became of those that were missed.
	OnSubscribed func(Subscribed)

	// OnState is called for changes of state, one at a time, in order. A callback that is slow misses states that
	// were over before it returned, but never the last one.
	OnState func(StateChange)

	// Prepare is called with each new PeerConnection before the offer is made. An error ends the connection.
	Prepare func(*webrtc.PeerConnection) error

	// SettingEngine adjusts Pion's settings. Loopback candidates are on already if the owner is on this host.
	SettingEngine func(*webrtc.SettingEngine)

	// API replaces Pion's codecs, interceptors and settings; SettingEngine is not called then. Default: Pion's
	// defaults.
	API *webrtc.API

	// HandshakeTimeout bounds one attempt to open signaling, from dialing to the owner's welcome.
	// Default: DefaultHandshakeTimeout.
	HandshakeTimeout time.Duration

	// MediaTimeout bounds how long media may take to connect, or to come back by itself, before the link counts as
	// lost. Default: DefaultMediaTimeout.
	MediaTimeout time.Duration

	// GiveUpAfter closes the connection after so long without one, or at once when the next attempt would be later
	// than that. Default: DefaultGiveUpAfter.
	GiveUpAfter time.Duration
}

// DataChannel is a data channel that this peer opens.
type DataChannel struct {
	Label string                    // its name
	Init  *webrtc.DataChannelInit   // default: ordered and reliable
	Bind  func(*webrtc.DataChannel) // called with each new channel before it opens: register OnOpen and OnMessage here
}

// Connect connects to the owner of a session and keeps the connection until Conn.Close, a final refusal, or
// ConnectConfig.GiveUpAfter. It returns once media flows for the first time, or with SignalingOnly once the owner welcomed the peer. ctx bounds only that: a Conn outlives it.
//
// An error says why there is no connection and wraps one of ErrSessionEnded, ErrReplaced, ErrRejected,
// ErrUnauthorized and ErrGaveUp, or the context's error. Nothing is left running then.
func (c *Client) Connect(ctx context.Context, placement *Placement, config ConnectConfig) (*Conn, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	if err := checkPlacement(placement); err != nil {
		return nil, err
	}
	conn := newConn(c, *placement, config)
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	conn.cancel = cancel
	go conn.run(run)
	select {
	case <-conn.connected:
		return conn, nil
	case <-conn.done:
		return nil, conn.Err()
	case <-ctx.Done():
		last := conn.lastLoss()
		_ = conn.Close()
		<-conn.done
		return nil, errors.Join(fmt.Errorf("berth: connect: %w", context.Cause(ctx)), last)
	}
}

func (c *ConnectConfig) validate() error {
	if len(c.Tracks)+len(c.Receive)+len(c.DataChannels) == 0 && c.Prepare == nil && !c.SignalingOnly {
		return errors.New("berth: ConnectConfig needs Tracks, Receive, DataChannels, Prepare or SignalingOnly")
	}
	if len(c.Topics) > maxTopics {
		return errors.New("berth: ConnectConfig.Topics has more than 256 topics")
	}
	for _, kind := range c.Receive {
		if kind != webrtc.RTPCodecTypeAudio && kind != webrtc.RTPCodecTypeVideo {
			return errors.New("berth: ConnectConfig.Receive holds audio and video only")
		}
	}
	if c.HandshakeTimeout < 0 || c.MediaTimeout < 0 || c.GiveUpAfter < 0 {
		return errors.New("berth: a timeout of ConnectConfig is negative")
	}
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, DefaultHandshakeTimeout)
	c.MediaTimeout = cmp.Or(c.MediaTimeout, DefaultMediaTimeout)
	c.GiveUpAfter = cmp.Or(c.GiveUpAfter, DefaultGiveUpAfter)
	return nil
}

// checkPlacement refuses a placement that nobody could connect with.
func checkPlacement(p *Placement) error {
	if p == nil {
		return errors.New("berth: the placement is nil")
	}
	u, err := url.Parse(p.Owner.SignalingURL)
	if err != nil || u.Host == "" {
		return errors.New("berth: the placement's owner.signaling_url is not a URL")
	}
	switch u.Scheme {
	case "ws", "wss", "http", "https":
	default:
		return errors.New("berth: the placement's owner.signaling_url must begin with ws:// or wss://")
	}
	if p.Token == "" {
		return errors.New("berth: the placement has no token")
	}
	return nil
}
