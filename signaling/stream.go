package signaling

import (
	"bufio"
	"encoding/binary"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

const (
	// readBuffer is the least that bufio takes. It holds the head of any frame; inbound has a buffer.
	readBuffer = 16
	// controlBuffer holds any control frame (RFC 6455 section 5.5), so that each is one Write.
	controlBuffer = 128
	// copiedFrame is the size up to which a frame is copied behind its head rather than written in two pieces.
	copiedFrame = 4 << 10

	frameText  = 0x81 // the last frame of a text message
	compressed = 0x40 // the bit that says so (RFC 7692 section 6)
	frameClose = 0x88
	framePing  = 0x89
	framePong  = 0x8a
)

// stream is the TCP connection under a WebSocket. The library reads from it, and writes control frames, each at once; text
// frames are written here, so that a connection needs no buffer while it has nothing to say.
type stream struct {
	net.Conn

	in       *inbound
	compress bool // frames that are worth it

	mu    sync.Mutex // held by who writes
	ended bool       // a close frame was the last
	pong  atomic.Pointer[[]byte]
}

// Read implements net.Conn.
func (s *stream) Read(p []byte) (int, error) { return s.in.Read(p) }

// Write implements net.Conn. It writes one control frame of the library. A pong waits for nobody: while another frame is
// stuck, because the client does not read, the reader must not get stuck with it.
func (s *stream) Write(frame []byte) (int, error) {
	if len(frame) > 0 && frame[0] == framePong {
		last := append([]byte(nil), frame...)
		s.pong.Store(&last)
		s.answer()
		return len(frame), nil
	}
	defer s.answer()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = s.ended || len(frame) > 0 && frame[0] == frameClose
	return s.Conn.Write(frame)
}

// answer writes the pong that waits, unless somebody writes, who does it afterwards. Pings that came meanwhile have the
// last one's pong (RFC 6455 section 5.5.3).
func (s *stream) answer() {
	for s.pong.Load() != nil && s.mu.TryLock() {
		if pong := s.pong.Swap(nil); pong != nil && !s.ended {
			_, _ = s.Conn.Write(*pong) // because who reads and writes after it gets the same error
		}
		s.mu.Unlock()
	}
}

// ping writes a ping without content.
func (s *stream) ping() error {
	_, err := s.Write([]byte{framePing, 0})
	return err
}

// frames holds room for small frames with their heads.
var frames = sync.Pool{New: func() any { room := make([]byte, 0, copiedFrame); return &room }}

// writeText writes one text frame.
func (s *stream) writeText(payload []byte) error {
	if !s.compress || len(payload) < compressible {
		return s.writeFrame(frameText, payload)
	}
	d, _ := deflaters.Get().(*deflater)
	defer deflaters.Put(d)
	small, err := d.deflate(payload)
	if err != nil {
		return err
	}
	return s.writeFrame(frameText|compressed, small)
}

func (s *stream) writeFrame(first byte, payload []byte) error {
	defer s.answer()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return net.ErrClosed
	}
	var space [10]byte
	head := appendHead(space[:0], first, len(payload))
	if len(head)+len(payload) > copiedFrame {
		pieces := net.Buffers{head, payload}
		_, err := pieces.WriteTo(s.Conn)
		return err
	}
	room, _ := frames.Get().(*[]byte)
	defer frames.Put(room)
	_, err := s.Conn.Write(append(append((*room)[:0], head...), payload...))
	return err
}

// appendHead appends the head of an unmasked frame (RFC 6455 section 5.2).
func appendHead(to []byte, first byte, size int) []byte {
	switch to = append(to, first); {
	case size < 126:
		return append(to, byte(size))
	case size < 1<<16:
		return binary.BigEndian.AppendUint16(append(to, 126), uint16(size))
	default:
		return binary.BigEndian.AppendUint64(append(to, 127), uint64(size))
	}
}

// hijacker takes the connection from the HTTP server with small buffers in place of its own, which hold 4 KiB each.
type hijacker struct {
	http.ResponseWriter

	stream *stream
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, _ := rw.Reader.Peek(rw.Reader.Buffered()) // it is there
	h.stream = &stream{
		Conn: conn, in: newInbound(conn, early), compress: h.Header().Get("Sec-WebSocket-Extensions") != "", // by now the answer is made
	}
	return h.stream, bufio.NewReadWriter(bufio.NewReaderSize(h.stream, readBuffer), bufio.NewWriterSize(h.stream, controlBuffer)), nil
}
