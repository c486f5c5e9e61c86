package media

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/webrtc/v4"
)

// PeerState is the state of a peer's connection; see the package documentation.
type PeerState string

// The states of a peer.
const (
	StateConnecting   PeerState = "connecting"
	StateConnected    PeerState = "connected"
	StateDisconnected PeerState = "disconnected"
	StateFailed       PeerState = "failed"
	StateClosed       PeerState = "closed"
)

// PeerEvents receives what the server has to tell a client. The methods are called in order by the
// session's goroutine: they must not block and must not wait for the session. A panic fails the peer.
type PeerEvents interface {
	// Candidate reports a candidate that no description held, and nil at the end of those.
	Candidate(c *Candidate)
	// Offer reports an offer of the server. The client must answer within 15 s.
	Offer(sdp string)
	// State reports a change of state. The error says why, for StateFailed and StateClosed.
	State(state PeerState, err error)
}

// PeerConfig describes a peer to Session.AddPeer.
type PeerConfig struct {
	// ID names the peer in logs and to the handler.
	ID string
	// Events is required.
	Events PeerEvents
}

// Peer is one client's end of a session. All methods are safe for concurrent use; those that take a
// context must not be called by events or PeerHandler.Negotiate, since the session's goroutine serves them.
type Peer struct {
	id      string
	session *Session
	events  PeerEvents
	log     *slog.Logger
	done    chan struct{}
	// ctx lives as long as the peer: handlers receive it, and its cause says why the peer ends.
	ctx      context.Context //nolint:containedctx // the lifetime of the peer's goroutines
	cancel   context.CancelCauseFunc
	failed   sync.Once
	channels atomic.Int64
	wg       sync.WaitGroup // of goroutines that serve the peer

	// Owned by the session's goroutine.
	pc         *webrtc.PeerConnection
	handler    PeerHandler
	state      PeerState
	closing    bool
	running    bool // PeerHandler.Run was started
	negotiated bool // an offer was answered
	needOffer  bool
	trickle    bool // candidates are reported as events
	tracks     int
	remote     *description
	candidates remoteCandidates
	answer     func(string, error) // waits for candidates
	started    time.Time           // of the first offer
	timers     map[string]*time.Timer
}

func newPeer(ctx context.Context, s *Session, cfg PeerConfig) *Peer {
	p := &Peer{
		id:      cfg.ID,
		session: s,
		events:  cfg.Events,
		log:     s.log.With("peer_id", cfg.ID),
		done:    make(chan struct{}),
		state:   StateConnecting,
		timers:  make(map[string]*time.Timer),
	}
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return p
}

// ID is the id the peer was added with.
func (p *Peer) ID() string { return p.id }

// Session is the session the peer is part of.
func (p *Peer) Session() *Session { return p.session }

// Done is closed when the peer is down, after its last event.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Close begins to close the peer and returns at once.
func (p *Peer) Close() { p.cancel(ErrClosed) }

// Offer applies an offer of the client and returns the answer, which holds the candidates that were found
// in time. ErrBadSDP and ErrGlare leave the peer as it was.
func (p *Peer) Offer(ctx context.Context, sdp string) (string, error) {
	type result struct {
		sdp string
		err error
	}
	reply := make(chan result, 1)
	if err := p.offer(ctx, sdp, func(sdp string, err error) { reply <- result{sdp, err} }); err != nil {
		return "", err
	}
	select {
	case r := <-reply:
		return r.sdp, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// OfferFunc is Offer for callers whose answer has to be in order with the peer's events: answer is called by
// the session's goroutine, as events are, unless an error is returned or the peer ends first.
func (p *Peer) OfferFunc(ctx context.Context, sdp string, answer func(sdp string)) error {
	return p.offer(ctx, sdp, func(sdp string, err error) {
		if err == nil {
			answer(sdp)
		}
	})
}

func (p *Peer) offer(ctx context.Context, sdp string, answer func(string, error)) error {
	desc, err := p.parse(sdp)
	if err != nil {
		return err
	}
	return p.session.call(ctx, p, func() error { return p.applyOffer(desc, answer) })
}

// parse reads a description in the caller's goroutine, so that no other peer waits for a large one.
func (p *Peer) parse(sdp string) (desc *description, err error) {
	defer func() {
		if desc == nil && err == nil {
			err = ErrPanic
		}
	}()
	defer p.recoverPanic("description")
	return parseDescription(sdp)
}

// Answer applies the client's answer to an offer of the server.
func (p *Peer) Answer(ctx context.Context, sdp string) error {
	desc, unreadable := p.parse(sdp)
	return p.session.call(ctx, p, func() error { return p.applyAnswer(desc, unreadable) })
}

// Candidate adds a candidate of the client; nil or an empty one is the end of them. Up to 64 may come
// before the description they belong to.
func (p *Peer) Candidate(ctx context.Context, c *Candidate) error {
	if c == nil || c.Candidate == "" {
		return nil // nothing depends on the end: checks go on until the peer is connected
	}
	if err := c.validate(); err != nil {
		return err
	}
	return p.session.call(ctx, p, func() error { return p.addCandidate(*c) })
}

// Renegotiate calls f on the session's goroutine to add tracks, and then offers to the client, at once
// or when it is its turn. It is for handlers, outside of Negotiate.
func (p *Peer) Renegotiate(ctx context.Context, f func(n *Negotiation) error) error {
	return p.session.call(ctx, p, func() error {
		if err := f(&Negotiation{peer: p}); err != nil {
			return err
		}
		p.needOffer = true
		return p.offerIfNeeded()
	})
}

// abandon undoes connect for a peer that never became part of the session.
func (p *Peer) abandon() {
	p.cancel(ErrClosed)
	if p.pc != nil {
		p.closeConnection(p.pc)
	}
}

// fail ends the peer for a reason that is counted.
func (p *Peer) fail(reason string, err error) {
	p.failed.Do(func() {
		p.session.engine.metrics.failed.WithLabelValues(reason).Inc()
		p.cancel(err)
	})
}

// spawn runs f in a goroutine that the closing of the peer waits for.
func (p *Peer) spawn(where string, f func() error) {
	p.wg.Go(func() {
		defer p.recoverPanic(where)
		if err := f(); err != nil && p.ctx.Err() == nil {
			p.log.Debug("media handler ended", "where", where, "err", err)
		}
	})
}

// after runs f on the session's goroutine in d, unless the peer closes or another timer takes the name.
func (p *Peer) after(name string, d time.Duration, f func()) {
	p.stopTimer(name)
	p.timers[name] = time.AfterFunc(d, func() { p.session.postFor(p, f) })
}

func (p *Peer) stopTimer(name string) {
	if t := p.timers[name]; t != nil {
		t.Stop()
		delete(p.timers, name)
	}
}

// report moves to a state and tells the client's side.
func (p *Peer) report(state PeerState) {
	p.state = state
	var cause error
	if state == StateFailed || state == StateClosed {
		cause = context.Cause(p.ctx)
	}
	defer p.recoverPanic("event")
	p.events.State(state, cause)
}

// beginClose stops the use of the connection and closes it in a goroutine that reports back to the
// session, which waits for it.
func (p *Peer) beginClose() {
	if p.closing {
		return
	}
	cause := context.Cause(p.ctx)
	if !errors.Is(cause, ErrClosed) && !errors.Is(cause, ErrLeft) {
		p.log.Warn("media peer failed", "err", cause)
		if p.state != StateFailed {
			p.report(StateFailed)
		}
	}
	p.closing = true
	for name := range p.timers {
		p.stopTimer(name)
	}
	p.reply("", ErrClosed)
	go p.finishClose(p.pc)
}

// finishClose waits for the connection and the peer's goroutines, within bounds.
func (p *Peer) finishClose(pc *webrtc.PeerConnection) {
	down := make(chan struct{})
	go func() {
		defer close(down)
		p.closeConnection(pc)
		p.wg.Wait()
	}()
	timeout := time.NewTimer(p.session.engine.cfg.CloseTimeout)
	defer timeout.Stop()
	select {
	case <-down:
	case <-timeout.C:
		p.session.engine.metrics.abandoned.Inc()
		p.log.Error("media peer abandoned", "err", "did not close in time")
	}
	p.session.post(func() { p.session.remove(p) })
}

func (p *Peer) closeConnection(pc *webrtc.PeerConnection) {
	defer func() {
		if r := recover(); r != nil {
			p.logPanic("close", r)
		}
	}()
	if err := pc.GracefulClose(); err != nil {
		p.log.Debug("media connection close", "err", fmt.Sprint(err))
	}
}
