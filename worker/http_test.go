package worker

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berthdev/berth/signaling"
)

// Handshakes that trickle in are cut after the header timeout, and hinder nobody meanwhile.
func TestScenario_W08_SlowHandshakesAreCut(t *testing.T) {
	t.Parallel()
	const slow, timeout = 200, 500 * time.Millisecond
	r := startWorker(t, Config{HeaderTimeout: timeout})
	begin := time.Now()
	conns := make([]net.Conn, slow)
	for i := range conns {
		conns[i] = trickle(t, r.signaling)
	}
	for key := range 3 {
		ws := r.join(key + 1)
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"bye"}`)); err != nil {
			t.Fatal(err)
		}
		if code := closeCode(ws); code != signaling.CloseBye {
			t.Fatal(code)
		}
	}
	for i, conn := range conns {
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is still open after %v", i, time.Since(begin))
		}
	}
	if took := time.Since(begin); took < timeout {
		t.Fatalf("cut after %v already", took)
	}
}

// trickle opens a connection that sends its header byte by byte until it is cut.
func trickle(t *testing.T, address string) net.Conn {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for _, b := range []byte("GET /rtc HTTP/1.1\r\nX-Slow: " + strings.Repeat("x", 1000)) {
			<-tick.C
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return conn
}
