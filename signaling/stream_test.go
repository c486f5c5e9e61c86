package signaling

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/coder/websocket"
	"pgregory.net/rapid"
)

func TestFramesAreCompressedForClientsThatOfferIt(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{Compression: true})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, mode := range []websocket.CompressionMode{websocket.CompressionDisabled, websocket.CompressionNoContextTakeover, websocket.CompressionContextTakeover} {
		ws, response, err := websocket.Dial(ctx, r.url("s-1"), &websocket.DialOptions{
			Subprotocols: []string{Protocol, "token." + token(held(1), "s-1", "a")}, CompressionMode: mode, CompressionThreshold: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		if response.Body != nil {
			_ = response.Body.Close()
		}
		ws.SetReadLimit(1 << 20)
		offered := response.Header.Get("Sec-WebSocket-Extensions")
		if wanted := mode != websocket.CompressionDisabled; wanted != strings.Contains(offered, "server_no_context_takeover") {
			t.Errorf("mode %v: the server answers %q", mode, offered)
		}
		c := &client{t: t, ws: ws}
		c.expect("welcome")
		for _, size := range []int{10, 2000, 60_000} { // under the threshold, copied, in two pieces
			sdp := strings.Repeat("v=0 ", size/4)
			c.send(`{"type":"offer","sdp":"` + sdp + `"}`)
			if f := c.expect("answer"); f.text("sdp") != "answer to "+sdp {
				t.Errorf("mode %v: the answer to %d bytes is another", mode, size)
			}
		}
		_ = ws.CloseNow()
	}
}

// pipe is a connection whose far end is in the test's hands.
func pipe(t *testing.T) (near *stream, far net.Conn) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return &stream{Conn: a, in: newInbound(a, nil)}, b
}

func TestPongWaitsForNobody(t *testing.T) {
	t.Parallel()
	s, far := pipe(t)
	written := make(chan error, 1)
	go func() { written <- s.writeText([]byte("stuck")) }()
	eventually(t, "a frame is stuck", func() bool {
		if s.mu.TryLock() {
			s.mu.Unlock()
			return false
		}
		return true
	})
	for _, content := range []byte{'1', '2'} {
		if n, err := s.Write([]byte{framePong, 1, content}); n != 3 || err != nil {
			t.Fatal(n, err)
		}
	}
	got := make([]byte, 2+5+3)
	if _, err := io.ReadFull(far, got); err != nil {
		t.Fatal(err)
	}
	if string(got) != "\x81\x05stuck\x8a\x012" {
		t.Fatalf("%q", got)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}

func TestNothingFollowsACloseFrame(t *testing.T) {
	t.Parallel()
	s, far := pipe(t)
	go func() { _, _ = s.Write([]byte{frameClose, 0}) }()
	if _, err := io.ReadFull(far, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	if err := s.writeText([]byte("late")); err == nil {
		t.Fatal("a text frame followed")
	}
	_, _ = s.Write([]byte{framePong, 0})
	if err := far.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if n, _ := far.Read(make([]byte, 1)); n != 0 {
		t.Fatal("something followed")
	}
}

// arrived is a connection that has received data already, which a read returns piece by piece.
type arrived struct {
	net.Conn

	data io.Reader
}

func (a *arrived) Read(p []byte) (int, error) { return a.data.Read(p) }

func TestPropertyInboundHandsOutOneFrameAtATime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 200), rapid.SampledFrom([]int{125, 126, 127, 300, 65_535, 65_536})), 1, 4).Draw(rt, "sizes")
		var all []byte
		var ends []int
		for _, size := range sizes {
			all = append(all, maskedHead(size)...)
			all = append(all, strings.Repeat("x", size)...)
			ends = append(ends, len(all))
		}
		early := rapid.IntRange(0, len(all)).Draw(rt, "early")
		var rest io.Reader = strings.NewReader(string(all[early:]))
		if rapid.Bool().Draw(rt, "byte by byte") {
			rest = iotest.OneByteReader(rest)
		}
		in := newInbound(&arrived{data: rest}, all[:early])
		var got []byte
		room := make([]byte, rapid.IntRange(16, 300).Draw(rt, "room"))
		for {
			n, err := in.Read(room)
			before := len(got)
			got = append(got, room[:n]...)
			for _, end := range ends {
				if before < end && len(got) > end {
					rt.Fatalf("a read went from %d to %d, over the end of a frame at %d", before, len(got), end)
				}
			}
			if err != nil {
				break
			}
		}
		if string(got) != string(all) {
			rt.Fatalf("read %d bytes of %d, or others", len(got), len(all))
		}
	})
}

// maskedHead is the head of a client's text frame with a mask of zeros.
func maskedHead(size int) []byte {
	head := []byte{frameText}
	switch {
	case size < 126:
		head = append(head, 0x80|byte(size))
	case size < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, 0x80|126), uint16(size))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 0x80|127), uint64(size))
	}
	return append(head, 0, 0, 0, 0)
}
