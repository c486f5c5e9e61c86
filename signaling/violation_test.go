package signaling

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// rawClient speaks WebSocket by hand, to break its rules.
type rawClient struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func (r *rig) raw(t *testing.T, n int, peer string) *rawClient {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", r.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	session := fmt.Sprintf("s-%d", n)
	_, err = fmt.Fprintf(conn, "GET /rtc?session=%s HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"+
		"Sec-WebSocket-Protocol: %s, token.%s\r\n\r\n", session, Protocol, token(held(n), session, peer))
	if err != nil {
		t.Fatal(err)
	}
	c := &rawClient{t: t, conn: conn, r: bufio.NewReader(conn)}
	response, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(response.Status)
	}
	return c
}

// write sends one frame; first is its first byte (FIN, RSV, opcode). The masking key is zero.
func (c *rawClient) write(first byte, payload string, masked bool) {
	head := []byte{first}
	mask := byte(0)
	if masked {
		mask = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		head = append(head, mask|byte(n))
	case n < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, mask|126), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, mask|127), uint64(n))
	}
	if masked {
		head = append(head, 0, 0, 0, 0)
	}
	// The server may have hung up already; what it answered is what counts.
	_, _ = c.conn.Write(append(head, payload...))
}

// closeCode reads frames until the close frame.
func (c *rawClient) closeCode() (websocket.StatusCode, error) {
	for {
		var head [2]byte
		if _, err := io.ReadFull(c.r, head[:]); err != nil {
			return 0, err
		}
		size := uint64(head[1] & 0x7f)
		switch size {
		case 126:
			var n [2]byte
			if _, err := io.ReadFull(c.r, n[:]); err != nil {
				return 0, err
			}
			size = uint64(binary.BigEndian.Uint16(n[:]))
		case 127:
			return 0, errors.New("server frame too large for this test")
		}
		payload := make([]byte, size)
		if _, err := io.ReadFull(c.r, payload); err != nil {
			return 0, err
		}
		if head[0]&0x0f == 8 {
			return websocket.StatusCode(binary.BigEndian.Uint16(payload)), nil
		}
	}
}

// W05, W06: broken frames end one connection with the right code, and the server goes on.
func TestScenario_W05_W06_BrokenMessagesCloseOneConnectionWithItsCode(t *testing.T) {
	t.Parallel()
	const (
		text, binaryFrame, cont, ping = 0x81, 0x82, 0x80, 0x89
		textPart, contPart            = 0x01, 0x00
	)
	long := strings.Repeat("x", MaxMessageBytes+1)
	cases := []struct {
		name string
		send func(c *rawClient)
		code websocket.StatusCode
	}{
		{"invalid UTF-8", func(c *rawClient) { c.write(text, "{\"type\":\"\xff\"}", true) }, CloseNotUTF8},
		{"invalid UTF-8 over two fragments", func(c *rawClient) {
			c.write(textPart, "{\"type\":\"\xc3", true)
			c.write(cont, "\x28\"}", true)
		}, CloseNotUTF8},
		{"reserved opcode", func(c *rawClient) { c.write(0x83, "x", true) }, CloseProtocol},
		{"reserved bit", func(c *rawClient) { c.write(text|0x40, "{}", true) }, CloseProtocol},
		{"unmasked", func(c *rawClient) { c.write(text, "{}", false) }, CloseProtocol},
		{"ping of 126 bytes", func(c *rawClient) { c.write(ping, strings.Repeat("x", 126), true) }, CloseProtocol},
		{"continuation of nothing", func(c *rawClient) { c.write(cont, "x", true) }, CloseProtocol},
		{"binary", func(c *rawClient) { c.write(binaryFrame, "{}", true) }, CloseBad},
		{"no JSON", func(c *rawClient) { c.write(text, "hello", true) }, CloseBad},
		{"no object", func(c *rawClient) { c.write(text, `["type"]`, true) }, CloseBad},
		{"duplicate member", func(c *rawClient) { c.write(text, `{"type":"pong","type":"bye"}`, true) }, CloseBad},
		{"trailing data", func(c *rawClient) { c.write(text, `{"type":"pong"} {}`, true) }, CloseBad},
		{"no type", func(c *rawClient) { c.write(text, `{}`, true) }, CloseBad},
		{"over the limit", func(c *rawClient) { c.write(text, long, true) }, CloseTooBig},
		{"far over the limit", func(c *rawClient) { c.write(text, strings.Repeat(long, 20), true) }, CloseTooBig},
		{"endless fragments", func(c *rawClient) {
			c.write(textPart, "{", true)
			for range 40 {
				c.write(contPart, strings.Repeat(" ", 4096), true)
			}
		}, CloseTooBig},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newServer(t, Config{CloseGrace: time.Second})
			good, _ := r.join(1, "good")
			bad := r.raw(t, 1, "bad")
			good.expect("peer-connected")
			go tc.send(bad)
			code, err := bad.closeCode()
			if err != nil || code != tc.code {
				t.Fatalf("closed with %d (%v), want %d", code, err, tc.code)
			}
			_ = bad.conn.Close()
			good.expect("peer-disconnected")
			good.send(`{"type":"offer","sdp":"v=0"}`)
			good.expect("answer")
		})
	}
}

func TestScenario_W06_MessagesUpToTheLimitPass(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	c, _ := r.join(1, "a")
	const around = len(`{"type":"offer","sdp":""}`)
	for _, size := range []int{60 << 10, MaxMessageBytes - 1, MaxMessageBytes} {
		sdp := strings.Repeat("v", size-around)
		c.send(`{"type":"offer","sdp":"` + sdp + `"}`)
		if f := c.expect("answer"); f["sdp"] != "answer to "+sdp {
			t.Fatalf("the answer to %d bytes is cut", size)
		}
	}
}

// W10: a client that upgrades and then says nothing is closed, whatever its protocol pongs say.
func TestScenario_W10_SilentClientsAreClosed(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{PingInterval: 10 * time.Millisecond, JoinTimeout: 50 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, _ := r.join(1, "a")
	for {
		_, _, err := c.ws.Read(ctx) // answers protocol pings
		if err != nil {
			if websocket.CloseStatus(err) != CloseTryLater {
				t.Fatal(err)
			}
			break
		}
	}
	eventually(t, "no connection counted", func() bool { return r.gauge("berth_signaling_connections") == 0 })
}

// W03: a client that stops reading is closed with 1013 once it reads again, and delays nobody.
func TestScenario_W03_SlowReaderIsClosedWith1013(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{QueueBytes: 1 << 20, QueueAge: 50 * time.Millisecond, CloseGrace: patience})
	good, _ := r.join(1, "good")
	slow, _ := r.join(1, "slow")
	good.expect("peer-connected")
	slow.send(`{"type":"offer","sdp":"v=0"}`)
	slow.expect("answer")
	r.media.mu.Lock()
	events := r.media.events["slow"]
	r.media.mu.Unlock()
	big := strings.Repeat("x", 100<<10)
	r.hub.mu.Lock()
	sender := r.hub.sessions[1].peers["slow"].sender
	r.hub.mu.Unlock()
	eventually(t, "slow client is being closed", func() bool {
		events.Offer(big) // never blocks
		_, closing := sender.closed()
		return closing
	})
	good.send(`{"type":"offer","sdp":"v=0"}`)
	good.expect("answer")
	// It reads on, and finds the close frame right after what the kernel held.
	if last := slow.expectClose(CloseTryLater); last.Reason != reasonSlow {
		t.Errorf("closed because of %q", last.Reason)
	}
	good.expect("peer-disconnected")
}

// W11: whatever a client repeats, its connection counts once and the gauge returns to zero.
func TestScenario_W11_RepeatedJoinsCountOnce(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	clients := make([]*client, 0, repeatedJoins)
	for range repeatedJoins {
		c, _ := r.join(1, "a")
		clients = append(clients, c)
		if n := r.gauge("berth_signaling_connections"); n != 1 {
			t.Fatalf("%v connections counted", n)
		}
	}
	for _, c := range clients[:repeatedJoins-1] {
		c.expectClose(CloseReplaced)
	}
	clients[repeatedJoins-1].send(`{"type":"bye"}`)
	clients[repeatedJoins-1].expectClose(CloseBye)
	if n := r.gauge("berth_signaling_connections"); n != 0 {
		t.Fatalf("%v connections counted", n)
	}
	eventually(t, "nobody is connected", func() bool { return r.directory.connections() == 0 })
}
