package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berthdev/berth/signaling"
)

// caller is a client of one session.
type caller struct {
	ws     *websocket.Conn
	closed error // why it ended; read it after done
	done   chan struct{}
}

// dial connects a peer of session key through an address and reads its welcome.
func dial(ctx context.Context, address string, key int) (*caller, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ws, response, err := websocket.Dial(ctx, fmt.Sprintf("ws://%s/rtc?session=s-%d", address, key), &websocket.DialOptions{
		Subprotocols: []string{signaling.Protocol, fmt.Sprintf("token.%d.7.s-%d.p-1", key, key)},
		HTTPHeader:   http.Header{"X-Forwarded-For": {fmt.Sprintf("203.0.%d.%d", key>>8, key&0xff)}}, // as of a proxy before the proxy
	})
	if response != nil && response.Body != nil {
		_ = response.Body.Close()
	}
	if err != nil {
		return nil, err
	}
	c := &caller{ws: ws, done: make(chan struct{})}
	if _, data, err := ws.Read(ctx); err != nil || !strings.Contains(string(data), `"welcome"`) {
		return nil, errors.Join(err, ws.CloseNow(), fmt.Errorf("no welcome: %s", data))
	}
	return c, nil
}

// listen answers pings until the connection ends.
func (c *caller) listen(ctx context.Context) {
	defer close(c.done)
	for {
		_, data, err := c.ws.Read(ctx)
		if err != nil {
			c.closed = err
			return
		}
		if strings.Contains(string(data), `"ping"`) {
			_ = c.ws.Write(ctx, websocket.MessageText, []byte(`{"type":"pong"}`)) // the next read says why not
		}
	}
}

// callAll connects n clients, each to a session of its own. They end with the test.
func callAll(t *testing.T, address string, n int) []*caller {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	all := make([]*caller, n)
	var listening sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		listening.Wait()
	})
	var connecting sync.WaitGroup
	for i := range n {
		connecting.Go(func() {
			if all[i] = comeBack(t, address, i+1); all[i] != nil {
				listening.Go(func() { all[i].listen(ctx) })
			}
		})
	}
	connecting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// comeBack connects one client as an SDK does: full jitter, doubling from 500 ms.
func comeBack(t *testing.T, address string, key int) *caller {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for window := 500 * time.Millisecond; ; window = min(2*window, 30*time.Second) {
		select {
		case <-time.After(rand.N(window)):
		case <-ctx.Done():
			t.Errorf("client %d is not back", key)
			return nil
		}
		if c, err := dial(ctx, address, key); err == nil {
			return c
		}
	}
}

// W01: every client of a worker that stops reads a close frame: that its session moved, or, if the worker was forced to stop
// and could not have it moved, when to come back.
func TestScenario_W01_StopSaysGoodbyeToEverySocket(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		forced bool // and without the database
		code   websocket.StatusCode
	}{
		{"drained", false, signaling.CloseMoved},
		{"forced, and the database is away", true, signaling.CloseRestart},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := startWorker(t, Config{DrainDeadline: time.Second, CallTimeout: 200 * time.Millisecond})
			all := callAll(t, r.signaling, stoppedSockets)
			r.registry.set(func() { r.registry.away = tc.forced })
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if tc.forced {
				cancel()
			}
			began := time.Now()
			if err := r.worker.Stop(ctx); err != nil && !tc.forced {
				t.Fatal(err)
			}
			t.Logf("stopped after %v", time.Since(began))
			for i, c := range all {
				<-c.done
				var last websocket.CloseError
				if !errors.As(c.closed, &last) || last.Code != tc.code {
					t.Fatalf("client %d: %v", i, c.closed)
				}
				if tc.forced && !strings.HasPrefix(last.Reason, "retry_ms=") {
					t.Fatalf("client %d: %q", i, last.Reason)
				}
			}
		})
	}
}

// W28: clients that ignore whatever they are told do not keep a worker alive.
func TestScenario_W28_ClientsThatIgnoreTheDrainAreCutAtItsDeadline(t *testing.T) {
	t.Parallel()
	const deadline, grace = time.Second, time.Second
	r := startWorker(t, Config{DrainDeadline: deadline, Signaling: signaling.Config{CloseGrace: grace}})
	polite := callAll(t, r.signaling, 5)
	for key := range 20 {
		r.join(100 + key) // and never reads again, so that it answers no close frame
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	if err := r.worker.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > deadline+grace+3*time.Second {
		t.Errorf("stopped after %v", took)
	}
	for i, c := range polite {
		<-c.done
		if code := websocket.CloseStatus(c.closed); code != signaling.CloseMoved {
			t.Errorf("client %d, which reads, ended with %v", i, c.closed)
		}
	}
}

// W23: pings keep an idle connection alive behind a proxy that cuts those without traffic.
func TestScenario_W23_IdleConnectionsSurviveAProxysReadTimeout(t *testing.T) {
	t.Parallel()
	r := startWorker(t, Config{Signaling: signaling.Config{PingInterval: proxyPing, PongTimeout: time.Hour, JoinTimeout: time.Hour}})
	proxy := startNginx(t, r.signaling, proxyReadTimeout, "1s")
	quiet := startWorker(t, Config{Signaling: signaling.Config{PingInterval: time.Hour}})
	control := startNginx(t, quiet.signaling, proxyReadTimeout, "1s")
	kept, lost := callAll(t, proxy.address, 10), callAll(t, control.address, 1)
	select {
	case <-lost[0].done: // so the proxy does cut
	case <-time.After(proxyReadTimeout + patience):
		t.Fatal("the proxy cuts nobody")
	}
	<-time.After(proxyWatch)
	for i, c := range kept {
		select {
		case <-c.done:
			t.Errorf("connection %d was lost: %v", i, c.closed)
		default:
		}
	}
}

// W25: a proxy that is reloaded cuts all sockets at once, without a close frame. All are back soon, though they come from
// one address; one that is trusted to name the clients' limits nobody.
func TestScenario_W25_ClientsComeBackAfterAProxyIsReloaded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		trusted []netip.Prefix
	}{
		{"one address for all", nil},
		{"a trusted proxy", []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := startWorker(t, Config{Signaling: signaling.Config{UpgradeRatePerAddress: 100, TrustedProxies: tc.trusted}})
			proxy := startNginx(t, r.signaling, time.Minute, reloadWait)
			all := callAll(t, proxy.address, reloadedSockets)
			for round := range 3 {
				proxy.reload()
				for i, c := range all {
					<-c.done
					if code := websocket.CloseStatus(c.closed); code != -1 {
						t.Fatalf("client %d read a close frame: %v", i, c.closed)
					}
				}
				began := time.Now()
				all = callAll(t, proxy.address, reloadedSockets)
				t.Logf("round %d: all %d were back after %v", round, reloadedSockets, time.Since(began))
			}
		})
	}
}
