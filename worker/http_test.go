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

// W08: handshakes that trickle in are cut after the header timeout, and hinder nobody meanwhile.
func TestScenario_W08_SlowHandshakesAreCut(t *testing.T) {
	t.Parallel()
	const slow, timeout = slowHandshakes, slowTimeout
	before := openFiles(t)
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
	for _, conn := range conns {
		_ = conn.Close()
	}
	eventually(t, "files are closed", func() bool { return openFiles(t) < before+slow/2 }) // other tests have some too
}

// openFiles counts this process's files, as far as the system shows them.
func openFiles(t *testing.T) int {
	t.Helper()
	dir, err := os.Open("/dev/fd")
	if err != nil {
		return 0
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
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
		tick := time.NewTicker(slowByte)
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
