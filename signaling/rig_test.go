package signaling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// tb is what testing.T and rapid.T have in common.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
	Context() context.Context
}

const patience = 10 * time.Second

// rig is a hub with working fakes around it.
type rig struct {
	t         tb
	hub       *Hub
	directory *fakeDirectory
	media     *fakeMedia
	topics    *fakeTopics
	tokens    fakeTokens
	registry  *prometheus.Registry
	server    *httptest.Server // nil in fake time
}

// newRig makes a hub that admits everybody and is closed at the end of the test.
func newRig(t tb, config Config) *rig {
	t.Helper()
	r := &rig{t: t, directory: newFakeDirectory(), topics: &fakeTopics{Memory: backplane.NewMemory()}}
	return r.hubbed(config)
}

// hubbed makes the hub of a rig that has its directory and topics.
func (r *rig) hubbed(config Config) *rig {
	t := r.t
	t.Helper()
	r.media, r.registry = &fakeMedia{}, prometheus.NewRegistry()
	hub, err := New(config, Deps{
		Tokens: r.tokens, Directory: r.directory, Media: r.media, Topics: r.topics,
		Logger: slog.New(slog.DiscardHandler), Registry: r.registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.hub = hub
	hub.Admit(AdmitAll)
	return r
}

// run starts the settler and returns what ends it and the hub.
func (r *rig) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.hub.Run(ctx)
	}()
	return func() {
		grace, end := context.WithTimeout(context.Background(), patience)
		defer end()
		r.hub.Close(grace, time.Second)
		cancel()
		<-done
	}
}

// serve puts the hub behind a real HTTP server.
func (r *rig) serve() *rig {
	r.t.Helper()
	stop := r.run()
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.hub.ServeHTTP(w, req)
	}))
	r.t.Cleanup(func() {
		stop()
		r.server.Close()
	})
	return r
}

// newServer is a hub behind a real HTTP server.
func newServer(t tb, config Config) *rig {
	t.Helper()
	return newRig(t, config).serve()
}

// held is the placement of session n at its first generation.
func held(n int) berth.Held {
	return berth.Held{Key: berth.SessionKey(n), Generation: berth.Generation(100 + n)}
}

// client is a real WebSocket client.
type client struct {
	t  tb
	ws *websocket.Conn
}

// frame is any server frame.
type frame map[string]any

func (r *rig) url(session string) string {
	return "ws" + strings.TrimPrefix(r.server.URL, "http") + "/rtc?session=" + session
}

// dial connects without expecting anything.
func (r *rig) dial(session string, protocols ...string) *client {
	r.t.Helper()
	ws, answer, err := r.tryDial(session, nil, protocols...)
	if err != nil {
		r.t.Fatalf("dial: %v (status %v)", err, answer.status)
	}
	return &client{t: r.t, ws: ws}
}

// answer is the server's answer to a handshake.
type answer struct {
	status int
	header http.Header
}

func (r *rig) tryDial(session string, header http.Header, protocols ...string) (*websocket.Conn, answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, response, err := websocket.Dial(ctx, r.url(session), &websocket.DialOptions{
		Subprotocols: protocols, HTTPHeader: header,
	})
	if err == nil {
		ws.SetReadLimit(1 << 20)
		r.t.Cleanup(func() { _ = ws.CloseNow() })
	}
	if response == nil {
		return ws, answer{}, err
	}
	if response.Body != nil {
		_ = response.Body.Close()
	}
	return ws, answer{status: response.StatusCode, header: response.Header}, err
}

// join connects a peer of session n and returns its client and welcome.
func (r *rig) join(n int, peer string) (*client, frame) {
	r.t.Helper()
	c := r.joinAt(held(n), peer)
	return c, c.expect("welcome")
}

func (r *rig) joinAt(h berth.Held, peer string) *client {
	r.t.Helper()
	session := fmt.Sprintf("s-%d", h.Key)
	return r.dial(session, Protocol, "token."+token(h, session, peer))
}

func (c *client) send(text string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// next returns the next frame but pings.
func (c *client) next() (frame, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		_, data, err := c.ws.Read(ctx)
		if err != nil {
			return nil, err
		}
		var f frame
		if err := json.Unmarshal(data, &f); err != nil {
			return nil, fmt.Errorf("server sent no JSON: %w", err)
		}
		if f["type"] != "ping" {
			return f, nil
		}
	}
}

// text is a member of the frame that is a string; empty if it is not.
func (f frame) text(member string) string {
	s, _ := f[member].(string)
	return s
}

// expect returns the next frame, which must be of this type.
func (c *client) expect(kind string) frame {
	c.t.Helper()
	f, err := c.next()
	if err != nil {
		c.t.Fatalf("waiting for %s: %v", kind, err)
	}
	if f["type"] != kind {
		c.t.Fatalf("got %v, want %s", f, kind)
	}
	return f
}

// expectClose reads on until the connection is closed, and checks how.
func (c *client) expectClose(code websocket.StatusCode) websocket.CloseError {
	c.t.Helper()
	for {
		_, err := c.next()
		if err == nil {
			continue
		}
		var ce websocket.CloseError
		if !errors.As(err, &ce) {
			c.t.Fatalf("connection ended without a close frame: %v; want %d", err, code)
		}
		if ce.Code != code {
			c.t.Fatalf("closed with %d (%s), want %d", ce.Code, ce.Reason, code)
		}
		return ce
	}
}

// eventually polls a condition that no signal announces.
func eventually(t tb, what string, ok func() bool) {
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

// gauge reads a metric without labels.
func (r *rig) gauge(name string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	r.t.Fatalf("no metric %s", name)
	return 0
}

// waiting are the disconnects that the database was not told of.
func (s *settler) waiting() []departure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(append([]departure(nil), s.gone...), s.late...)
}
