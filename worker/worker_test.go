package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/media"
	"github.com/berthdev/berth/signaling"
)

const patience = 15 * time.Second

// running is a whole worker with a real media engine on real sockets.
type running struct {
	t         *testing.T
	worker    *Worker
	registry  *fakeRegistry
	signaling string // host:port
	control   string
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newWorker(t *testing.T, config Config) *running {
	t.Helper()
	metrics, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	engine, err := media.New(media.Config{Listen: "127.0.0.1:0", DisableTCP: true}, log, metrics)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := engine.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	s, c := listen(t), listen(t)
	r := &running{t: t, registry: newFakeRegistry(), signaling: s.Addr().String(), control: c.Addr().String()}
	config.WorkerID, config.Capacity = "w-1", 4
	config.SignalingURL, config.ControlURL = "ws://"+r.signaling+"/rtc", "http://"+r.control
	r.worker, err = New(config, Deps{
		Registry: r.registry, Verifier: fakeVerifier{}, Media: NewMedia(engine), Topics: backplane.NewMemory(),
		SignalingListener: s, ControlListener: c, Logger: log, Metrics: metrics,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // forces it, if the test did not stop it
		_ = r.worker.Stop(ctx)
	})
	return r
}

func startWorker(t *testing.T, config Config) *running {
	t.Helper()
	r := newWorker(t, config)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.worker.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *running) get(address, path string) (int, string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return do(r.t, request)
}

func do(t *testing.T, request *http.Request) (int, string) {
	t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// join connects a peer of session key and reads its welcome.
func (r *running) join(key int) *websocket.Conn {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	ws, response, err := websocket.Dial(ctx, fmt.Sprintf("ws://%s/rtc?session=s-%d", r.signaling, key), &websocket.DialOptions{
		Subprotocols: []string{signaling.Protocol, fmt.Sprintf("token.%d.7.s-%d.p-1", key, key)},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if response.Body != nil {
		_ = response.Body.Close()
	}
	r.t.Cleanup(func() { _ = ws.CloseNow() })
	if f := read(r.t, ws); f["type"] != "welcome" {
		r.t.Fatal(f)
	}
	return ws
}

func read(t *testing.T, ws *websocket.Conn) map[string]any {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, data, err := ws.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var f map[string]any
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func closeCode(ws *websocket.Conn) websocket.StatusCode {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		if _, _, err := ws.Read(ctx); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout.C:
			t.Fatalf("never: %s", what)
		}
	}
}

func TestWorkerAnswersItsProbesAndServesMedia(t *testing.T) {
	t.Parallel()
	r := startWorker(t, Config{})
	code, body := r.get(r.control, "/livez")
	if code != http.StatusOK || body != `{"worker_id":"w-1","instance":1}` {
		t.Fatalf("%d %s", code, body)
	}
	for _, path := range []string{"/livez", "/readyz", "/availz"} {
		if code, body := r.get(r.signaling, path); code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, code, body)
		}
	}
	ws := r.join(1)
	if err := ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"offer","id":"1","sdp":"v=0"}`)); err != nil {
		t.Fatal(err)
	}
	if f := read(t, ws); f["type"] != "error" || f["code"] != signaling.MediaBadSDP {
		t.Fatal(f)
	}
	if err := ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"offer","id":"2","sdp":`+quote(dataChannelOffer)+`}`)); err != nil {
		t.Fatal(err)
	}
	if f := read(t, ws); f["type"] != "answer" || f["reply_to"] != "2" || !strings.Contains(fmt.Sprint(f["sdp"]), "a=fingerprint") {
		t.Fatal(f)
	}
	_, metrics := r.get(r.control, "/metrics")
	for _, want := range []string{"berth_signaling_connections 1", "berth_worker_in_doubt 0", "berth_worker_renewals_total"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in /metrics", want)
		}
	}
}

func TestNudgeMustBeSignedAndMakesOrdersPrompt(t *testing.T) {
	t.Parallel()
	r := startWorker(t, Config{RenewInterval: time.Hour, Lease: 3 * time.Hour})
	ws := r.join(1)
	eventually(t, "first renewal", func() bool { return r.registry.counts().renewals > 0 })
	r.registry.set(func() { delete(r.registry.sessions, 1); r.registry.ended[1] = berth.EndedDeleted })
	nudge := func(token string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.control+"/nudge", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		code, _ := do(t, request)
		return code
	}
	if code := nudge("forged"); code != http.StatusUnauthorized {
		t.Fatal(code)
	}
	if code := nudge("nudge"); code != http.StatusAccepted {
		t.Fatal(code)
	}
	if code := closeCode(ws); code != signaling.CloseEnded {
		t.Fatal(code)
	}
}

func TestDrainingWorkerIsReadyButNotAvailable(t *testing.T) {
	t.Parallel()
	r := startWorker(t, Config{RenewInterval: 20 * time.Millisecond})
	ws := r.join(1)
	r.registry.set(func() {
		r.registry.state, r.registry.deadline = berth.WorkerDraining, time.Now().Add(time.Hour)
	})
	eventually(t, "not available", func() bool {
		code, _ := r.get(r.signaling, "/availz")
		return code == http.StatusServiceUnavailable
	})
	if code, body := r.get(r.signaling, "/readyz"); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	if err := ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"bye"}`)); err != nil {
		t.Fatal(err)
	}
	if code := closeCode(ws); code != signaling.CloseBye {
		t.Fatal(code)
	}
}

func TestStopWaitsForPeersThenSaysGoodbye(t *testing.T) {
	t.Parallel()
	r := startWorker(t, Config{RenewInterval: 20 * time.Millisecond, DrainDeadline: time.Hour})
	ws := r.join(1)
	stopped := make(chan error, 1)
	go func() { stopped <- r.worker.Stop(context.Background()) }()
	eventually(t, "draining", func() bool { return r.registry.counts().drains == 1 })
	select {
	case err := <-stopped:
		t.Fatalf("stopped with a peer connected: %v", err)
	default:
	}
	if err := ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"bye"}`)); err != nil {
		t.Fatal(err)
	}
	if code := closeCode(ws); code != signaling.CloseBye {
		t.Fatal(code)
	}
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if got := r.registry.counts(); got.state != berth.WorkerGone || got.present != 0 {
		t.Fatalf("%+v", got)
	}
	if r.registry.ended[1] != berth.EndedLeft {
		t.Fatalf("ended as %q", r.registry.ended[1])
	}
	if err := r.worker.Stop(context.Background()); err != nil || r.worker.Err() != nil {
		t.Fatal("stop is not idempotent")
	}
	if err := r.worker.Start(context.Background()); err == nil {
		t.Fatal("started after stop")
	}
}

func TestForcedStopMovesSessionsAtOnce(t *testing.T) {
	t.Parallel()
	r := startWorker(t, Config{DrainDeadline: time.Hour})
	ws := r.join(1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- r.worker.Stop(ctx) }()
	if code := closeCode(ws); code != signaling.CloseMoved {
		t.Fatal(code)
	}
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got := r.registry.counts(); got.state != berth.WorkerGone || got.present != 0 {
		t.Fatalf("%+v", got)
	}
}

func TestForcedStopWithoutDatabaseSendsClientsBackLater(t *testing.T) {
	t.Parallel()
	r := startWorker(t, Config{CallTimeout: 20 * time.Millisecond})
	ws := r.join(1)
	r.registry.set(func() { r.registry.hang = true })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- r.worker.Stop(ctx) }()
	if code := closeCode(ws); code != signaling.CloseRestart {
		t.Fatal(code)
	}
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestReplacedWorkerStopsByItself(t *testing.T) {
	t.Parallel()
	r := startWorker(t, Config{RenewInterval: 20 * time.Millisecond})
	ws := r.join(1)
	r.registry.set(func() { r.registry.instance += 10 })
	if code := closeCode(ws); code != signaling.CloseMoved {
		t.Fatal(code)
	}
	<-r.worker.Done()
	if err := r.worker.Err(); !errors.Is(err, ErrReplaced) {
		t.Fatal(err)
	}
	if r.registry.counts().state != berth.WorkerReady {
		t.Fatal("said goodbye in its successor's name")
	}
}

func TestStartFailsCleanly(t *testing.T) {
	t.Parallel()
	r := newWorker(t, Config{CallTimeout: 10 * time.Millisecond})
	r.registry.hang = true
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.worker.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	<-r.worker.Done()
	stopped := newWorker(t, Config{})
	if err := stopped.worker.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-stopped.worker.Done()
}

func TestConfigurationErrorsNameTheRemedy(t *testing.T) {
	t.Parallel()
	good := Config{WorkerID: "w", Capacity: 1, SignalingURL: "ws://x", ControlURL: "http://x"}
	for name, change := range map[string]func(c *Config){
		"worker id":      func(c *Config) { c.WorkerID = "a b" },
		"region":         func(c *Config) { c.Region = "EU" },
		"capacity":       func(c *Config) { c.Capacity = 0 },
		"signaling url":  func(c *Config) { c.SignalingURL = "" },
		"renew interval": func(c *Config) { c.RenewInterval = time.Minute },
	} {
		c := good
		change(&c)
		if err := c.withDefaults().validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := good.withDefaults().validate(); err != nil {
		t.Error(err)
	}
}

func quote(s string) string {
	data, _ := json.Marshal(s)
	return string(data)
}

const dataChannelOffer = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n" +
	"m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\n" +
	"a=ice-ufrag:abcd\r\na=ice-pwd:abcdefghijklmnopqrstuvwx\r\na=ice-options:trickle\r\n" +
	"a=fingerprint:sha-256 00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF\r\n" +
	"a=setup:actpass\r\na=mid:0\r\na=sctp-port:5000\r\n"
