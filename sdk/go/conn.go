package berth

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/pion/webrtc/v4"
)

// Conn is a peer's connection to whoever owns its session. Create it with Client.Connect.
type Conn struct {
	client *Client
	config ConnectConfig
	log    *slog.Logger

	cancel    context.CancelCauseFunc
	connected chan struct{} // closed when media flows for the first time
	ended     chan struct{} // closed when sockets and media are closed
	done      chan struct{} // closed when every goroutine has ended
	notifier  *notifier
	topics    *subscriptions
	closing   sync.WaitGroup // peer connections on their way down

	// Only run touches these.
	policy     policy
	reached    bool      // connected is closed
	awaySince  time.Time // zero while connected
	generation int64     // of the last link that was connected
	refusals   int       // first offers that were refused in a row

	mu    sync.Mutex // guards what others read; never held during a call
	state StateChange
	moves int
	pc    *webrtc.PeerConnection // of the current link, or nil
	last  error                  // the last loss
}

// errClosed is the cause of a Conn.Close.
var errClosed = errors.New("berth: connection closed")

func newConn(c *Client, placement Placement, config ConnectConfig) *Conn {
	return &Conn{
		client:    c,
		config:    config,
		log:       c.log,
		connected: make(chan struct{}),
		ended:     make(chan struct{}),
		done:      make(chan struct{}),
		notifier:  newNotifier(config.OnState),
		topics:    newSubscriptions(&config),
		policy: policy{
			signalingOnly: placement.Kind == "call",
			giveUpAfter:   config.GiveUpAfter,
			random:        c.random,
		},
		awaySince: time.Now(),
		state:     StateChange{State: StateConnecting, Placement: placement},
	}
}

// Placement returns the current placement. Its generation grows with every move.
func (c *Conn) Placement() Placement {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Placement
}

// State returns the current state.
func (c *Conn) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.State
}

// Err returns why the connection closed: nil while it is open and after Close.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.State != StateClosed {
		return nil
	}
	return c.state.Err
}

// Done is closed when the connection is closed, its last OnState returned and all its goroutines have ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close says bye to the owner, which ends the session if no other peer is left, and closes sockets and media before
// it returns. It is idempotent and may be called from callbacks. It returns nil.
func (c *Conn) Close() error {
	c.cancel(errClosed)
	<-c.ended
	return nil
}

// Stats is a snapshot of a connection.
type Stats struct {
	State      State
	WorkerID   string             // the owner's
	Generation int64              // of the placement
	Moves      int                // how often media came back with a larger generation
	LastLoss   error              // why the last link was lost; nil: none was
	Media      webrtc.StatsReport // of the current PeerConnection; nil: none
}

// Stats returns a snapshot.
func (c *Conn) Stats() Stats {
	c.mu.Lock()
	s := Stats{
		State:      c.state.State,
		WorkerID:   c.state.Placement.Owner.WorkerID,
		Generation: c.state.Placement.Generation,
		Moves:      c.moves,
		LastLoss:   c.last,
	}
	pc := c.pc
	c.mu.Unlock()
	if pc != nil {
		s.Media = pc.GetStats()
	}
	return s
}

func (c *Conn) lastLoss() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// change publishes a new state; reason is why, for reconnecting and closed.
func (c *Conn) change(state State, reason error) {
	c.mu.Lock()
	if c.state.State == state {
		c.mu.Unlock()
		return
	}
	c.state.State, c.state.Err = state, reason
	change := c.state
	c.mu.Unlock()
	c.notifier.tell(change)
}

func (c *Conn) setLastLoss(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = err
}

func (c *Conn) setPlacement(p Placement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Placement = p
}

func (c *Conn) setMedia(pc *webrtc.PeerConnection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pc = pc
}
