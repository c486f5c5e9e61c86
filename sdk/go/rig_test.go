package berth

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/pion/webrtc/v4"
)

// rig is a client's side of a connection under test: a track that is fed and what came back.
type rig struct {
	t      *testing.T
	client *Client
	naps   *naps
	config ConnectConfig
	tracks chan *webrtc.TrackRemote

	mu     sync.Mutex
	states []StateChange
	logs   bytes.Buffer
}

func newRig(t *testing.T, apiURL string) *rig {
	t.Helper()
	r := &rig{t: t, tracks: make(chan *webrtc.TrackRemote, 64)}
	logger := slog.New(slog.NewJSONHandler(lockedWriter{r}, nil))
	r.client, r.naps = testClient(t, Config{URL: apiURL, Logger: logger})
	track := newTestTrack(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { feed(track, stop) })
	t.Cleanup(func() {
		close(stop)
		wg.Wait()
		r.noSecrets()
	})
	r.config = ConnectConfig{
		Tracks:  []webrtc.TrackLocal{track},
		OnTrack: func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) { r.tracks <- track },
		OnState: func(c StateChange) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.states = append(r.states, c)
		},
	}
	return r
}

type lockedWriter struct{ r *rig }

func (w lockedWriter) Write(p []byte) (int, error) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return w.r.logs.Write(p)
}

// connect connects and closes at the end of the test.
func (r *rig) connect(p *Placement) (*Conn, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	conn, err := r.client.Connect(ctx, p, r.config)
	if err == nil {
		r.t.Cleanup(func() {
			_ = conn.Close()
			receive(r.t, conn.Done(), "the connection's goroutines")
		})
	}
	return conn, err
}

// mustConnect connects and waits for the first packet.
func (r *rig) mustConnect(p *Placement) *Conn {
	r.t.Helper()
	conn, err := r.connect(p)
	if err != nil {
		r.t.Fatal(err)
	}
	r.flows()
	return conn
}

// flows waits for a new remote track with a packet on it.
func (r *rig) flows() {
	r.t.Helper()
	track := receive(r.t, r.tracks, "a remote track")
	if _, _, err := track.ReadRTP(); err != nil {
		r.t.Fatalf("read track: %v", err)
	}
}

func (r *rig) history() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, c := range r.states {
		names = append(names, string(c.State))
	}
	return strings.Join(names, " ")
}

// went waits until the states are these.
func (r *rig) went(states string) {
	r.t.Helper()
	eventually(r.t, "the states "+states, func() bool { return r.history() == states })
}

func (r *rig) noSecrets() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, secret := range []string{"secretjwt", "secretrejoin", "a=ice-ufrag"} {
		if strings.Contains(r.logs.String(), secret) {
			r.t.Errorf("the log holds %q:\n%s", secret, r.logs.String())
		}
	}
}
