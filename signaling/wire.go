package signaling

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/coder/websocket"
)

// socket is the wire of a real connection. Its context carries values only: an expired context makes
// coder/websocket drop the connection without a close frame, so time limits are kept by the sender, which cuts.
type socket struct {
	ws     *websocket.Conn
	stream *stream
	read   func() (websocket.MessageType, io.Reader, error)
}

// accept upgrades the request. The caller has checked the origin; tokens among the offered subprotocols are never
// echoed, since only berth.v1 is on offer. Context takeover is never offered: it costs 1.2 MB a connection.
func accept(w http.ResponseWriter, r *http.Request, compress bool) (*socket, error) {
	mode := websocket.CompressionDisabled
	if compress {
		mode = websocket.CompressionNoContextTakeover
	}
	taken := &hijacker{ResponseWriter: w}
	ws, err := websocket.Accept(taken, r, &websocket.AcceptOptions{
		Subprotocols:       []string{Protocol},
		CompressionMode:    mode,
		InsecureSkipVerify: true, // because originAllowed decided already, on the whole origin and an exact list
	})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(MaxMessageBytes)
	ctx := context.Background() //nolint:forbidigo // as for start
	return &socket{
		ws:     ws,
		stream: taken.stream,
		read:   func() (websocket.MessageType, io.Reader, error) { return ws.Reader(ctx) },
	}, nil
}

// Await implements wire.
func (s *socket) Await() { s.stream.in.await() }

// Read implements wire.
func (s *socket) Read() (text bool, message []byte, err error) {
	kind, r, err := s.read()
	if err != nil {
		return false, nil, err
	}
	room, _ := messages.Get().(*bytes.Buffer)
	room.Reset()
	if _, err = room.ReadFrom(r); err == nil {
		message = bytes.Clone(room.Bytes())
	}
	if room.Cap() <= copiedFrame {
		messages.Put(room)
	}
	return kind == websocket.MessageText, message, err
}

// messages holds room to read messages of unknown length into.
var messages = sync.Pool{New: func() any { return new(bytes.Buffer) }}

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
