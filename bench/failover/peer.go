package failover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coder/websocket"

	sdk "github.com/berthdev/berth/sdk/go"
)

const (
	// connectLimit bounds the way to a welcome, writeLimit one frame.
	connectLimit = 15 * time.Second
	writeLimit   = 5 * time.Second
	// maxFrame is more than a worker sends.
	maxFrame = 256 << 10
)

// frame is what a peer says or hears.
type frame struct {
	Type      string          `json:"type"`
	SDP       string          `json:"sdp,omitempty"`
	PeerID    string          `json:"peer_id,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Candidate *frameCandidate `json:"candidate,omitempty"`
}

type frameCandidate struct {
	Candidate string `json:"candidate"`
}

// heard is a frame and when it came.
type heard struct {
	frame

	at time.Time
}

// peer is one end of a call, over all its connections. It answers offers and pings by itself.
type peer struct {
	id        string
	placement *sdk.Placement
	worker    *member // that it is connected to

	mu       sync.Mutex // guards what follows
	socket   *websocket.Conn
	frames   []heard
	lostAt   time.Time // when the last connection ended; zero: it has not
	why      error
	reading  chan struct{} // closed when nobody reads the last connection any more
	expected bool          // this end is meant to be lost
}

// connect opens a connection to the peer's worker and returns once it was welcomed.
func (p *peer) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	//nolint:bodyclose // because Dial closes the body of a failed upgrade itself, and a good one has none
	socket, _, err := websocket.Dial(ctx, p.placement.Owner.SignalingURL, &websocket.DialOptions{
		Subprotocols: []string{"berth.v1", "token." + p.placement.Token},
	})
	if err != nil {
		return fmt.Errorf("connect peer %s of %s: %w", p.id, p.placement.ID, err)
	}
	socket.SetReadLimit(maxFrame)
	began := time.Now()
	p.mu.Lock()
	p.socket, p.lostAt, p.why, p.expected = socket, time.Time{}, nil, false
	p.reading = make(chan struct{})
	reading := p.reading
	p.mu.Unlock()
	go p.read(context.WithoutCancel(ctx), socket, reading)
	welcomed := eventually(ctx, connectLimit, func() bool { return p.has("welcome", began) || p.gone() })
	if !welcomed || p.gone() {
		return fmt.Errorf("connect peer %s of %s: no welcome: %w", p.id, p.placement.ID, p.reason())
	}
	return nil
}

// read takes frames until the connection ends.
func (p *peer) read(ctx context.Context, socket *websocket.Conn, done chan struct{}) {
	defer close(done)
	for {
		_, data, err := socket.Read(ctx)
		at := time.Now()
		if err != nil {
			_ = socket.CloseNow() // it ended already
			p.mu.Lock()
			p.lostAt, p.why = at, err
			p.mu.Unlock()
			return
		}
		var f frame
		if json.Unmarshal(data, &f) != nil {
			continue // frames of later versions
		}
		p.hear(ctx, socket, heard{f, at})
	}
}

// hear remembers a frame, and answers it if it asks for something.
func (p *peer) hear(ctx context.Context, socket *websocket.Conn, h heard) {
	switch h.Type {
	case "ping":
		_ = say(ctx, socket, frame{Type: "pong"}) // the next read tells
		return
	case "offer", "rejoin-offer":
		_ = say(ctx, socket, frame{Type: "answer", SDP: "answer to " + h.SDP}) // as above
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frames = append(p.frames, h)
}

// say sends a frame on the peer's connection.
func (p *peer) say(ctx context.Context, f frame) error {
	p.mu.Lock()
	socket := p.socket
	p.mu.Unlock()
	return say(ctx, socket, f)
}

func say(ctx context.Context, socket *websocket.Conn, f frame) error {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return socket.Write(ctx, websocket.MessageText, data)
}

// since returns the frames of a type that came after a moment.
func (p *peer) since(kind string, after time.Time) []heard {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []heard
	for i := len(p.frames) - 1; i >= 0 && p.frames[i].at.After(after); i-- {
		if p.frames[i].Type == kind {
			found = append(found, p.frames[i])
		}
	}
	return found
}

func (p *peer) has(kind string, after time.Time) bool { return len(p.since(kind, after)) > 0 }

// gone says whether the last connection ended.
func (p *peer) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.lostAt.IsZero()
}

// reason is why the last connection ended.
func (p *peer) reason() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why == nil {
		return errStands
	}
	return p.why
}

var errStands = errors.New("the connection stands")

// doom says that the end of the peer's connection is part of a fault.
func (p *peer) doom() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = true
}

// dropped says whether the connection ended though no fault was about it.
func (p *peer) dropped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.lostAt.IsZero() && !p.expected
}

// hangUp cuts the connection and waits until nobody reads it.
func (p *peer) hangUp() {
	p.mu.Lock()
	socket, reading := p.socket, p.reading
	p.expected = true
	p.mu.Unlock()
	if socket == nil {
		return
	}
	_ = socket.CloseNow() // it may have ended already
	<-reading
}

// forget drops the frames that were heard, which nobody asks for any more.
func (p *peer) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frames = nil
}
