package media

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/pion/webrtc/v4"
)

const (
	channelBuffer    = 16 << 10 // grows with the messages that arrive
	maxChannelBuffer = 4 << 20  // above SCTP's receive window, which bounds what a client can send
)

// ErrMessageTooBig reports a message above the limit that the receiving side announced: 256 KiB from a
// client, the client's own limit (64 KiB by default) to it. That message is dropped; the channel goes on.
var ErrMessageTooBig = errors.New("media: message too big")

// Channel is a data channel that a client opened. One goroutine may read, another write.
type Channel struct {
	label, protocol string
	raw             messageConn
	traffic         *traffic
	buf             []byte
	limit           int // bytes that the client takes in one message
}

// messageConn is the detached data channel.
type messageConn interface {
	ReadDataChannel(b []byte) (n int, text bool, err error)
	WriteDataChannel(b []byte, text bool) (n int, err error)
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
	Close() error
}

func newChannel(pc *webrtc.PeerConnection, dc *webrtc.DataChannel, t *traffic) (*Channel, error) {
	raw, err := dc.DetachWithDeadline()
	if err != nil {
		return nil, err
	}
	return &Channel{
		label: dc.Label(), protocol: dc.Protocol(), raw: raw, traffic: t, buf: make([]byte, channelBuffer),
		limit: int(pc.SCTP().GetCapabilities().MaxMessageSize),
	}, nil
}

// Label is what the client called the channel.
func (c *Channel) Label() string { return c.label }

// Protocol is the subprotocol the client named.
func (c *Channel) Protocol() string { return c.protocol }

// Read returns the next message and whether it is text. The bytes are valid until the next Read. It
// returns io.EOF when the channel or the peer ends, and ErrMessageTooBig for a message that was dropped.
func (c *Channel) Read() (message []byte, text bool, err error) {
	for {
		n, text, err := c.raw.ReadDataChannel(c.buf)
		switch {
		case errors.Is(err, io.ErrShortBuffer) && len(c.buf) < maxChannelBuffer:
			c.buf = make([]byte, 2*len(c.buf)) // SCTP keeps the message until a buffer is large enough
		case err != nil:
			return nil, false, err
		case n > maxMessageBytes:
			c.buf = make([]byte, channelBuffer)
			return nil, false, ErrMessageTooBig
		default:
			c.traffic.message()
			return c.buf[:n], text, nil
		}
	}
}

// Write sends a message. It waits while earlier ones wait for the client, so what is buffered is bounded
// by one message and SCTP's window.
func (c *Channel) Write(message []byte, text bool) error {
	if len(message) > c.limit {
		return ErrMessageTooBig
	}
	_, err := c.raw.WriteDataChannel(message, text)
	return err
}

// serve runs f and closes the channel. The end of ctx releases blocked reads and writes.
func (c *Channel) serve(ctx context.Context, f func(context.Context, *Channel) error) error {
	stop := context.AfterFunc(ctx, func() {
		_ = c.raw.SetWriteDeadline(time.Unix(1, 0))
		_ = c.raw.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	defer func() { _ = c.raw.Close() }()
	return f(ctx, c)
}
