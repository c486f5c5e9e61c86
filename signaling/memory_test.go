//go:build linux

package signaling

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"strconv"
	"testing"
	"time"
)

// serveVariable makes a test process serve a hub, whose memory another test measures.
const serveVariable = "BERTH_TEST_SERVE_HUB"

// idleLimit is the most that one idle connection may add to the resident memory of a process, in KiB. The centrifuge
// library takes 27.
const idleLimit = 27 * 3 / 4

// footprint is the memory of a process, in bytes.
type footprint struct {
	RSS, Heap, Stack uint64
}

// BenchmarkIdleConnection measures what a connection costs that has joined and is idle since. The hub is in a process of
// its own, where everything but the database and the media engine is real.
func BenchmarkIdleConnection(b *testing.B) {
	const connections = 2000
	for b.Loop() {
		server := startHubProcess(b)
		warm := server.connect(b, 0, 50)
		before := server.measure(b)
		idle := server.connect(b, 50, connections)
		after := server.measure(b)
		per := func(after, before uint64) float64 { return (float64(after) - float64(before)) / 1024 / connections }
		rss := per(after.RSS, before.RSS)
		b.ReportMetric(rss, "rss-KiB/conn")
		b.ReportMetric(per(after.Heap, before.Heap), "heap-KiB/conn")
		b.ReportMetric(per(after.Stack, before.Stack), "stack-KiB/conn")
		if rss > idleLimit {
			b.Errorf("%.1f KiB for each idle connection, want at most %d", rss, idleLimit)
		}
		for _, conn := range append(warm, idle...) {
			_ = conn.Close()
		}
		server.stop(b)
	}
}

// hubProcess is a process that serves a hub.
type hubProcess struct {
	cmd     *exec.Cmd
	ask     *os.File // each line asks for a footprint
	answers *bufio.Scanner
	address string
}

func startHubProcess(b *testing.B) *hubProcess {
	b.Helper()
	in, ask, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	p := &hubProcess{cmd: exec.Command(os.Args[0], "-test.run=^TestServeHubForOthers$"), ask: ask}
	p.cmd.Env = append(os.Environ(), serveVariable+"=1")
	p.cmd.Stdin, p.cmd.Stderr = in, os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	p.answers = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	_ = in.Close() // the process has its own
	if !p.answers.Scan() {
		b.Fatal("the process with the hub said nothing")
	}
	p.address = p.answers.Text()
	return p
}

func (p *hubProcess) stop(b *testing.B) {
	b.Helper()
	_ = p.ask.Close()
	if err := p.cmd.Wait(); err != nil {
		b.Error(err)
	}
}

// measure asks for the footprint.
func (p *hubProcess) measure(b *testing.B) footprint {
	b.Helper()
	if _, err := p.ask.WriteString("\n"); err != nil || !p.answers.Scan() {
		b.Fatal("the process with the hub does not answer", err)
	}
	var f footprint
	if err := json.Unmarshal(p.answers.Bytes(), &f); err != nil {
		b.Fatal(err)
	}
	return f
}

// connect joins peers of sessions from to from+n, two peers a session, and reads their welcomes.
func (p *hubProcess) connect(b *testing.B, from, n int) []net.Conn {
	b.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		key := 1 + (from+i)/2
		session := fmt.Sprintf("s-%d", key)
		conn, err := net.Dial("tcp", p.address)
		if err != nil {
			b.Fatal(err)
		}
		conns[i] = conn
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, err = fmt.Fprintf(conn, "GET /rtc?session=%s HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"+
			"Sec-WebSocket-Protocol: %s, token.%s\r\n\r\n", session, Protocol, token(held(key), session, fmt.Sprintf("p-%d", (from+i)%2)))
		if err != nil {
			b.Fatal(err)
		}
		var got []byte
		for !bytes.Contains(got, []byte(`"welcome"`)) {
			chunk := make([]byte, 4096)
			size, err := conn.Read(chunk)
			if err != nil {
				b.Fatalf("connection %d: %v after %q", i, err, got)
			}
			got = append(got, chunk[:size]...)
		}
	}
	return conns
}

// TestServeHubForOthers is no test of its own: BenchmarkIdleConnection runs it in another process.
func TestServeHubForOthers(t *testing.T) {
	t.Parallel()
	if os.Getenv(serveVariable) == "" {
		return
	}
	r := newServer(t, Config{PingInterval: time.Hour, UpgradeRate: 1e6})
	fmt.Fprintln(os.Stdout, r.server.Listener.Addr())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		answer, err := json.Marshal(measureSelf(t))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(os.Stdout, string(answer))
	}
}

// measureSelf measures after garbage is gone, which a server that is idle collects within two minutes.
func measureSelf(t *testing.T) footprint {
	t.Helper()
	for range 3 {
		debug.FreeOSMemory()
	}
	samples := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	runtimemetrics.Read(samples)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	rss := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	kib, err := strconv.ParseUint(string(rss[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return footprint{RSS: kib << 10, Heap: samples[0].Value.Uint64(), Stack: samples[1].Value.Uint64()}
}
