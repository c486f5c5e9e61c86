package signaling

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// pingTimeout is how long a protocol ping waits for its pong. Nothing follows from a missing one: the application
// pong decides.
const pingTimeout = 5 * time.Second

// socket is the wire of a real connection. Its context carries values only: an expired context makes
// coder/websocket drop the connection without a close frame, so time limits are kept by the sender, which cuts.
type socket struct {
	ws    *websocket.Conn
	raw   net.Conn
	read  func() (websocket.MessageType, []byte, error)
	write func(frame []byte) error
	ping  func()
}

// accept upgrades the request. The caller has checked the origin; tokens among the offered subprotocols are never
// echoed, since only berth.v1 is on offer.
func accept(w http.ResponseWriter, r *http.Request) (*socket, error) {
	tap := &hijackTap{ResponseWriter: w}
	ws, err := websocket.Accept(tap, r, &websocket.AcceptOptions{
		Subprotocols:       []string{Protocol},
		InsecureSkipVerify: true, // because originAllowed decided already, on the whole origin and an exact list
	})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(MaxMessageBytes)
	ctx := context.WithoutCancel(r.Context())
	return &socket{
		ws:    ws,
		raw:   tap.conn,
		read:  func() (websocket.MessageType, []byte, error) { return ws.Read(ctx) },
		write: func(frame []byte) error { return ws.Write(ctx, websocket.MessageText, frame) },
		ping: func() {
			ctx, cancel := context.WithTimeout(ctx, pingTimeout)
			defer cancel()
			_ = ws.Ping(ctx) // because the wait for the pong is only there to keep one goroutine per ping
		},
	}, nil
}

// Read implements wire.
func (s *socket) Read() (text bool, message []byte, err error) {
	kind, message, err := s.read()
	return kind == websocket.MessageText, message, err
}

// Write implements wire.
func (s *socket) Write(frame []byte) error { return s.write(frame) }

// Ping implements wire.
func (s *socket) Ping() { s.ping() }

// Close implements wire. The error of a closing handshake is of no use: the connection is gone either way.
func (s *socket) Close(code websocket.StatusCode, reason string) {
	_ = s.ws.Close(code, reason)
	s.Cut()
}

// Cut implements wire. It closes the TCP connection itself, because websocket.Conn.CloseNow waits for a Close that is
// under way.
func (s *socket) Cut() { _ = s.raw.Close() }

// hijackTap remembers the connection that a ResponseWriter gives away.
type hijackTap struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (t *hijackTap) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	t.conn = conn
	return conn, rw, err
}

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
