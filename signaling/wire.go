package signaling

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/coder/websocket"
)

// socket is the wire of a real connection. Its context carries values only: an expired context makes
// coder/websocket drop the connection without a close frame, so time limits are kept by the sender, which cuts.
type socket struct {
	ws     *websocket.Conn
	stream *stream
	read   func() (websocket.MessageType, []byte, error)
}

// accept upgrades the request. The caller has checked the origin; tokens among the offered subprotocols are never
// echoed, since only berth.v1 is on offer.
func accept(w http.ResponseWriter, r *http.Request) (*socket, error) {
	taken := &hijacker{ResponseWriter: w}
	ws, err := websocket.Accept(taken, r, &websocket.AcceptOptions{
		Subprotocols:       []string{Protocol},
		InsecureSkipVerify: true, // because originAllowed decided already, on the whole origin and an exact list
	})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(MaxMessageBytes)
	ctx := context.WithoutCancel(r.Context())
	return &socket{
		ws:     ws,
		stream: taken.stream,
		read:   func() (websocket.MessageType, []byte, error) { return ws.Read(ctx) },
	}, nil
}

// Read implements wire.
func (s *socket) Read() (text bool, message []byte, err error) {
	kind, message, err := s.read()
	return kind == websocket.MessageText, message, err
}

// Write implements wire.
func (s *socket) Write(frame []byte) error { return s.stream.writeText(frame) }

// Ping implements wire.
func (s *socket) Ping() { _ = s.stream.ping() } // because the next write meets the same error

// Close implements wire. The error of a closing handshake is of no use: the connection is gone either way.
func (s *socket) Close(code websocket.StatusCode, reason string) {
	_ = s.ws.Close(code, reason)
	s.Cut()
}

// Cut implements wire. It closes the TCP connection itself, because websocket.Conn.CloseNow waits for a Close that is
// under way.
func (s *socket) Cut() { _ = s.stream.Close() }

// violation is the close code for a read error that the client caused by a broken message, or zero when the
// connection is simply gone.
func violation(err error) (websocket.StatusCode, string) {
	var network *net.OpError
	switch {
	case errors.Is(err, websocket.ErrMessageTooBig):
		return CloseTooBig, reasonTooBig
	case websocket.CloseStatus(err) != -1,
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, io.ErrClosedPipe), errors.As(err, &network):
		return 0, ""
	default:
		return CloseProtocol, reasonProtocol
	}
}
