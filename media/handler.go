package media

import "context"

// Handler serves the peers of one session. It may hold what they share.
type Handler interface {
	// Attach returns what serves a new peer. It runs on the session's goroutine and must not block. It is
	// called again for a peer whose first offer failed, in place of the earlier result.
	Attach(p *Peer) (PeerHandler, error)
}

// HandlerFactory makes the handler of a session that opens. It must not block.
type HandlerFactory func(s *Session) (Handler, error)

// HandlerFunc is a Handler whose peers share nothing.
type HandlerFunc func(p *Peer) (PeerHandler, error)

// Attach calls f.
func (f HandlerFunc) Attach(p *Peer) (PeerHandler, error) { return f(p) }

// PeerHandler serves one peer. Every context ends when the peer does, and then the methods that run in
// goroutines of their own must return. An error of Negotiate refuses the offer; an error of Run fails
// the peer; those of Track and Channel end that track or channel only. A panic fails the peer.
type PeerHandler interface {
	// Negotiate is called for each offer of the client, after it was applied and before it is answered.
	// It decides what to send, and what it adds is part of the answer. It runs on the session's goroutine
	// and must not block.
	Negotiate(ctx context.Context, n *Negotiation) error
	// Run is called once, in its own goroutine, when the peer is connected for the first time.
	Run(ctx context.Context) error
	// Track is called in its own goroutine for each track that the client sends.
	Track(ctx context.Context, t *Track) error
	// Channel is called in its own goroutine for each data channel that the client opens. The channel is
	// closed when it returns.
	Channel(ctx context.Context, c *Channel) error
}

// Kind is the kind of a track or line.
type Kind string

// The kinds of media.
const (
	KindAudio Kind = "audio"
	KindVideo Kind = "video"
)

// Codec is a negotiated codec.
type Codec struct {
	// MimeType is as "video/VP8"; compare without regard to case.
	MimeType string
	// ClockRate is the RTP clock in ticks per second.
	ClockRate uint32
	// Channels is the number of audio channels; 0 for video.
	Channels uint16
	// Fmtp is the value of a=fmtp.
	Fmtp string
	// PayloadType is the RTP payload type it has on this peer's connection.
	PayloadType uint8
}

// Line is one audio or video section that the client offered.
type Line struct {
	// MID is the section's a=mid.
	MID string
	// Kind is audio or video.
	Kind Kind
	// Sends and Receives tell what the client wants to do on it.
	Sends, Receives bool
	// Sending is whether a track of ours is on it already.
	Sending bool
	// Codecs lists what both sides support, in the client's order.
	Codecs []Codec
}
