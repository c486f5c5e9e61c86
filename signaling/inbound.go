package signaling

import (
	"encoding/binary"
	"net"
	"sync"
	"syscall"
)

// inboundBuffer holds a usual frame of a client with its head; the rest of a larger one is read past it.
const inboundBuffer = 128

// inbound is the reading half of a connection. It hands out one frame at a time, so that nothing above it reads ahead, and
// it is known whether there is anything to read.
//
// An idle connection waits in await and not in a read of the library, whose stack is so deep that it would double what the
// connection costs.
type inbound struct {
	conn net.Conn
	raw  syscall.RawConn // nil: await returns at once

	mu         sync.Mutex
	buf        []byte // of inboundBuffer, or what the HTTP server had read if that is more
	start, end int    // of what buf holds
	left       uint64 // of the frame that is handed out
}

// newInbound reads from conn, after what was read from it early.
func newInbound(conn net.Conn, early []byte) *inbound {
	in := &inbound{conn: conn, buf: make([]byte, max(inboundBuffer, len(early))), end: len(early)}
	copy(in.buf, early)
	if c, ok := conn.(syscall.Conn); ok {
		in.raw, _ = c.SyscallConn() // without it await is of no use, and of no harm
	}
	return in
}

// await blocks until there is something to read, or the connection is closed.
func (in *inbound) await() {
	in.mu.Lock()
	idle := in.left == 0 && in.start == in.end
	in.mu.Unlock()
	if idle && in.raw != nil {
		_ = in.raw.Read(isReadable) // because a read will say the same
	}
}

// Read implements io.Reader. It is called by one goroutine at a time.
func (in *inbound) Read(p []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.left == 0 {
		if err := in.nextFrame(); err != nil {
			return 0, err
		}
	}
	if uint64(len(p)) > in.left {
		p = p[:in.left]
	}
	n, err := in.take(p)
	in.left -= uint64(n)
	return n, err
}

// take reads what is there, or else past the buffer.
func (in *inbound) take(p []byte) (int, error) {
	if in.start == in.end {
		return in.conn.Read(p)
	}
	n := copy(p, in.buf[in.start:in.end])
	in.start += n
	return n, nil
}

// nextFrame reads until the length of the next frame is known. It judges nothing: that is the library's.
func (in *inbound) nextFrame() error {
	in.end, in.start = copy(in.buf, in.buf[in.start:in.end]), 0
	for {
		if size, ok := frameSize(in.buf[:in.end]); ok {
			in.left = size
			return nil
		}
		n, err := in.conn.Read(in.buf[in.end:])
		in.end += n
		if err != nil {
			return err
		}
	}
}

// frameSize is the length of the frame that begins with these bytes, head included (RFC 6455 section 5.2); false if more
// of them are needed. A length beyond all limits is cut to one that still is.
func frameSize(begin []byte) (uint64, bool) {
	if len(begin) < 2 {
		return 0, false
	}
	head, size := uint64(2), uint64(begin[1]&0x7f)
	switch size {
	case 126:
		if len(begin) < 4 {
			return 0, false
		}
		head, size = 4, uint64(binary.BigEndian.Uint16(begin[2:]))
	case 127:
		if len(begin) < 10 {
			return 0, false
		}
		head, size = 10, min(binary.BigEndian.Uint64(begin[2:]), 1<<62)
	}
	if begin[1]&0x80 != 0 {
		head += 4
	}
	return head + size, true
}
