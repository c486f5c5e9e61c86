package signaling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// fakeTokens accepts "key.generation.session.peer.role", of tenant "acme", and a user's id as a sixth part.
type fakeTokens struct {
	topics berth.TopicGrant // of every token
}

func (f fakeTokens) VerifyToken(_ context.Context, token string) (Grant, error) {
	part := strings.Split(token, ".")
	if len(part) != 5 && len(part) != 6 {
		return Grant{}, errors.New("forged")
	}
	if part[0] == "away" {
		return Grant{}, berth.ErrUnavailable
	}
	var g Grant
	if _, err := fmt.Sscan(part[0]+" "+part[1], &g.Key, &g.Generation); err != nil {
		return Grant{}, fmt.Errorf("forged: %w", err)
	}
	g.SessionID, g.TenantID, g.Peer, g.Topics = part[2], "acme", berth.Peer{ID: part[3], Role: part[4]}, f.topics
	if len(part) == 6 {
		g.Peer.User = part[5]
	}
	return g, nil
}

func token(held berth.Held, session, peer string) string {
	return fmt.Sprintf("%d.%d.%s.%s.offer", held.Key, held.Generation, session, peer)
}

// fakeDirectory works like the database: it knows which generation is current, which sessions ended and who is
// connected.
type fakeDirectory struct {
	mu        sync.Mutex
	err       error                // of every call, when set
	hang      bool                 // ConnectPeer waits for its context
	during    func()               // called by ConnectPeer once the database has decided; may be nil
	delay     func() time.Duration // of ConnectPeer's answer; may be nil
	looked    func()               // called by OtherPeers between its reading and its answer; may be nil
	ends      int                  // calls of EndSessions
	gone      int                  // calls of DisconnectPeer
	goneDelay time.Duration        // before each of them takes effect
	idle      time.Duration
	ttl       time.Duration
	policy    berth.OnWorkerLoss
	current   map[berth.SessionKey]berth.Generation // absent: any
	ended     map[berth.Held]berth.EndedReason
	connected map[string]string // session key and peer: connection
	kind      berth.SessionKind
	id        string          // of every session; empty: made of its key
	joined    map[string]bool // session key and peer: was connected once
	connects  int

	behind   time.Duration        // its clock was set back
	admitted map[string]time.Time // connections, when they were
}

func newFakeDirectory() *fakeDirectory {
	return &fakeDirectory{
		idle: time.Minute, ttl: time.Hour,
		current:   map[berth.SessionKey]berth.Generation{},
		ended:     map[berth.Held]berth.EndedReason{},
		connected: map[string]string{}, admitted: map[string]time.Time{},
		joined: map[string]bool{},
	}
}

func (d *fakeDirectory) set(f func(d *fakeDirectory)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

func (d *fakeDirectory) endedAs(held berth.Held) berth.EndedReason {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended[held]
}

func (d *fakeDirectory) connections() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.connected)
}

func peerKey(key berth.SessionKey, peer string) string { return fmt.Sprintf("%d/%s", key, peer) }

func (d *fakeDirectory) ConnectPeer(ctx context.Context, held berth.Held, peer berth.Peer) (berth.Connected, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.connects++
	if d.hang {
		d.mu.Unlock()
		<-ctx.Done()
		d.mu.Lock()
		return berth.Connected{}, fmt.Errorf("connect: %w: %w", berth.ErrUnavailable, ctx.Err())
	}
	if d.err != nil {
		return berth.Connected{}, d.err
	}
	if g, ok := d.current[held.Key]; ok && g != held.Generation {
		return berth.Connected{}, berth.ErrStale
	}
	if _, ok := d.ended[held]; ok {
		return berth.Connected{}, berth.Refuse(berth.CodeSessionEnded, "ended")
	}
	again := d.joined[peerKey(held.Key, peer.ID)]
	d.joined[peerKey(held.Key, peer.ID)] = true
	d.connected[peerKey(held.Key, peer.ID)] = peer.ConnectionID
	if d.during != nil {
		d.during()
	}
	if d.delay != nil {
		if err := d.wait(ctx, d.delay()); err != nil {
			return berth.Connected{}, err
		}
	}
	now := time.Now().Add(17*time.Hour - d.behind).Truncate(time.Microsecond) // the database's clock is its own
	d.admitted[peer.ConnectionID] = now
	return berth.Connected{
		Session: berth.Session{
			Key: held.Key, ID: cmp.Or(d.id, fmt.Sprintf("s-%d", held.Key)), Generation: held.Generation,
			IdleTimeout: d.idle, ExpiresAt: now.Add(d.ttl), OnWorkerLoss: d.policy, Kind: d.kind,
		},
		Peers: d.others(held.Key, peer.ID), Again: again, At: now,
	}, nil
}

// OtherPeers answers after looked, with what was true before it.
func (d *fakeDirectory) OtherPeers(_ context.Context, held berth.Held, peer berth.Peer) ([]berth.Peer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	if d.connected[peerKey(held.Key, peer.ID)] != peer.ConnectionID {
		return nil, berth.ErrStale
	}
	others := d.others(held.Key, peer.ID)
	if d.looked != nil {
		d.mu.Unlock()
		d.looked()
		d.mu.Lock()
	}
	return others, nil
}

// others are the connected peers of a session but one. It is called with mu held.
func (d *fakeDirectory) others(key berth.SessionKey, peer string) (others []berth.Peer) {
	for id, connection := range d.connected {
		if other, ours := strings.CutPrefix(id, peerKey(key, "")); ours && other != peer {
			others = append(others, berth.Peer{ID: other, Role: berth.RoleOffer, ConnectionID: connection, ConnectedAt: d.admitted[connection]})
		}
	}
	return others
}

// wait holds an answer back. It is called with mu held.
func (d *fakeDirectory) wait(ctx context.Context, delay time.Duration) error {
	d.mu.Unlock()
	defer d.mu.Lock()
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("connect: %w: %w", berth.ErrUnavailable, ctx.Err())
	}
}

func (d *fakeDirectory) DisconnectPeer(ctx context.Context, gone berth.Disconnect) error {
	d.mu.Lock()
	if d.goneDelay > 0 {
		if err := d.wait(ctx, d.goneDelay); err != nil {
			d.mu.Unlock()
			return err
		}
	}
	defer d.mu.Unlock()
	d.gone++
	if d.err != nil {
		return d.err
	}
	k := peerKey(gone.Key, gone.PeerID)
	if d.connected[k] != gone.ConnectionID {
		return berth.ErrStale
	}
	delete(d.connected, k)
	if gone.Left && d.kind == berth.KindCall {
		d.ended[gone.Held] = berth.EndedLeft
	}
	return nil
}

// fakeTopics are topics in memory.
type fakeTopics struct {
	*backplane.Memory

	mu  sync.Mutex
	err error // of Publish, when set
}

func (f *fakeTopics) Publish(ctx context.Context, messages ...backplane.Outgoing) ([]backplane.Published, error) {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return f.Memory.Publish(ctx, messages...)
}

func (f *fakeTopics) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (d *fakeDirectory) EndSessions(_ context.Context, ends []berth.End) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ends++
	if d.err != nil {
		return d.err
	}
	for _, e := range ends {
		if _, ok := d.ended[e.Held]; !ok {
			d.ended[e.Held] = e.Reason
		}
	}
	return nil
}

// fakeMedia answers every offer with "answer to <sdp>", refuses the offer "bad" and records candidates.
type fakeMedia struct {
	mu         sync.Mutex
	err        error
	sessions   int // open now
	peers      int // open now
	candidates []*Candidate
	events     map[string]PeerEvents // by peer, the latest
}

func (m *fakeMedia) Open(context.Context, berth.Session) (MediaSession, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, m.err
	}
	m.sessions++
	return &fakeMediaSession{media: m}, nil
}

func (m *fakeMedia) open() (sessions, peers int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sessions, m.peers
}

type fakeMediaSession struct {
	media *fakeMedia
	once  sync.Once
}

func (s *fakeMediaSession) AddPeer(_ context.Context, peer berth.Peer, events PeerEvents) (MediaPeer, error) {
	s.media.mu.Lock()
	defer s.media.mu.Unlock()
	s.media.peers++
	if s.media.events == nil {
		s.media.events = map[string]PeerEvents{}
	}
	s.media.events[peer.ID] = events
	return &fakeMediaPeer{media: s.media}, nil
}

func (s *fakeMediaSession) Close() {
	s.once.Do(func() {
		s.media.mu.Lock()
		defer s.media.mu.Unlock()
		s.media.sessions--
	})
}

type fakeMediaPeer struct {
	media *fakeMedia
	dead  bool
	once  sync.Once
}

func (p *fakeMediaPeer) Offer(_ context.Context, sdp string, answer func(string)) error {
	switch {
	case p.dead:
		return ErrMediaClosed
	case sdp == "bad":
		return &MediaError{Code: MediaBadSDP, Message: "no sections"}
	case sdp == "secret":
		return errors.New("internal detail")
	case sdp == "panic":
		panic("a bug")
	case sdp == "die":
		p.dead = true
	}
	answer("answer to " + sdp)
	return nil
}

func (p *fakeMediaPeer) Answer(context.Context, string) error {
	return &MediaError{Code: MediaNoOffer, Message: "no offer is open"}
}

func (p *fakeMediaPeer) Candidate(_ context.Context, c *Candidate) error {
	p.media.mu.Lock()
	defer p.media.mu.Unlock()
	p.media.candidates = append(p.media.candidates, c)
	return nil
}

func (p *fakeMediaPeer) Close() {
	p.once.Do(func() {
		p.media.mu.Lock()
		defer p.media.mu.Unlock()
		p.media.peers--
	})
}

// fakeWire is a connection in memory, for tests in fake time. Its client reads when told to.
type fakeWire struct {
	in    chan []byte   // from the client; closed when it hangs up
	cut   chan struct{} // closed by Cut
	stall chan struct{} // Write waits until it is closed; nil: never waits
	chat  bool          // answers pings

	mu     sync.Mutex
	out    []string
	closed websocket.StatusCode
	gone   bool
	pings  int
}

func newFakeWire() *fakeWire {
	return &fakeWire{in: make(chan []byte, 16), cut: make(chan struct{})}
}

func (w *fakeWire) Await() {}

func (w *fakeWire) Read() (bool, []byte, error) {
	select {
	case m, ok := <-w.in:
		if !ok {
			return false, nil, io.EOF
		}
		return true, m, nil
	case <-w.cut:
		return false, nil, io.ErrClosedPipe
	}
}

func (w *fakeWire) Write(frame []byte) error {
	if w.stall != nil {
		select {
		case <-w.stall:
		case <-w.cut:
			return io.ErrClosedPipe
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return io.ErrClosedPipe
	}
	w.out = append(w.out, string(frame))
	if w.chat && string(frame) == `{"type":"ping"}` {
		w.in <- []byte(`{"type":"pong"}`)
	}
	return nil
}

func (w *fakeWire) Ping() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pings++
}

func (w *fakeWire) Close(code websocket.StatusCode, _ string) {
	w.mu.Lock()
	if !w.gone {
		w.closed = code
	}
	w.mu.Unlock()
	w.Cut()
}

func (w *fakeWire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.gone {
		w.gone = true
		close(w.cut)
	}
}

func (w *fakeWire) code() websocket.StatusCode {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

func (w *fakeWire) pinged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pings
}

func (w *fakeWire) frames() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.out...)
}
