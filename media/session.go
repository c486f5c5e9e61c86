package media

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// SessionConfig describes a session to Engine.Open.
type SessionConfig struct {
	// Key names the session in logs.
	Key string
	// Handler is the name of the handler. Default "echo".
	Handler string
}

// Session is the media of one placed session. All methods are safe for concurrent use.
type Session struct {
	engine  *Engine
	key     string
	handler Handler
	log     *slog.Logger
	since   time.Time
	traffic traffic

	ops      chan func()
	stop     chan struct{} // closed by Close
	stopOnce sync.Once
	done     chan struct{} // closed when the goroutine has ended
	count    atomic.Int64  // of peers

	// Owned by the goroutine of run.
	peers   map[*Peer]struct{}
	closing bool
}

// Key is the key that the session was opened with.
func (s *Session) Key() string { return s.key }

// Done is closed when the session and all its peers are down.
func (s *Session) Done() <-chan struct{} { return s.done }

// Stats returns what the session has carried so far.
func (s *Session) Stats() Stats {
	return Stats{
		Peers:      int(s.count.Load()),
		PacketsIn:  s.traffic.packetsIn.Load(),
		PacketsOut: s.traffic.packetsOut.Load(),
		BytesIn:    s.traffic.bytesIn.Load(),
		BytesOut:   s.traffic.bytesOut.Load(),
		Messages:   s.traffic.messages.Load(),
		Since:      s.since,
	}
}

// Close begins to close the session and its peers, and returns at once; Done tells when it is over, which
// takes at most Config.CloseTimeout. Only the first reason counts; it is logged.
func (s *Session) Close(reason string) {
	s.stopOnce.Do(func() {
		s.log.Debug("media session closing", "reason", reason)
		close(s.stop)
	})
}

// run owns the session until it is closed and its last peer is gone.
func (s *Session) run() {
	defer close(s.done)
	stop := s.stop
	for {
		select {
		case op := <-s.ops:
			op()
		case <-stop:
			stop = nil
			s.closing = true
			for p := range s.peers {
				p.cancel(ErrClosed)
			}
		}
		if s.closing && len(s.peers) == 0 {
			return
		}
	}
}

// post enqueues an operation and waits while the queue is full. It reports false when the session has
// ended. Operations must not wait for what waits for the session.
func (s *Session) post(op func()) bool {
	select {
	case s.ops <- op:
		return true
	case <-s.done:
		return false
	}
}

// postFor enqueues an operation on behalf of a peer; it is dropped once the peer closes.
func (s *Session) postFor(p *Peer, op func()) {
	s.post(func() {
		if p.closing {
			return
		}
		defer p.recoverPanic("callback")
		op()
	})
}

// call runs f on the session's goroutine and returns its result. f may still run after ctx has ended.
func (s *Session) call(ctx context.Context, p *Peer, f func() error) error {
	result := make(chan error, 1)
	op := func() {
		err := fmt.Errorf("%w", ErrPanic) // stands if f panics
		defer func() { result <- err }()
		if p != nil {
			if p.closing {
				err = ErrClosed
				return
			}
			defer p.recoverPanic("operation")
		}
		err = f()
	}
	select {
	case s.ops <- op:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done:
		return ErrClosed
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done:
		return ErrClosed
	}
}

// AddPeer adds a peer that will be negotiated by its offers. Closing a peer takes a moment, so ids may
// repeat. The context bounds the call only; its values reach the handler.
func (s *Session) AddPeer(ctx context.Context, cfg PeerConfig) (*Peer, error) {
	if cfg.Events == nil {
		return nil, fmt.Errorf("media: PeerConfig.Events is required")
	}
	p := newPeer(ctx, s, cfg)
	if err := s.call(ctx, nil, func() error { return s.admit(p) }); err != nil {
		p.cancel(ErrClosed) // in case the call goes through after ctx has ended
		return nil, err
	}
	return p, nil
}

// admit makes p part of the session.
func (s *Session) admit(p *Peer) (err error) {
	if s.closing {
		return ErrClosed
	}
	if len(s.peers) >= s.engine.cfg.MaxSessionPeers || !s.engine.reservePeer() {
		return ErrTooManyPeers
	}
	defer func() {
		if r := recover(); r != nil {
			p.logPanic("attach", r)
			err = ErrPanic
		}
		if err != nil {
			p.abandon()
			s.engine.releasePeer()
		}
	}()
	if err := p.connect(); err != nil {
		return err
	}
	s.peers[p] = struct{}{}
	s.count.Store(int64(len(s.peers)))
	// The peer may be cancelled already; then this runs at once, in a goroutine of its own.
	context.AfterFunc(p.ctx, func() { s.post(p.beginClose) })
	return nil
}

// remove forgets a peer that is down.
func (s *Session) remove(p *Peer) {
	delete(s.peers, p)
	s.count.Store(int64(len(s.peers)))
	s.engine.releasePeer()
	p.report(StateClosed)
	close(p.done)
}

// logPanic records a panic where it was contained.
func (p *Peer) logPanic(where string, value any) {
	p.log.Error("media panic contained", "where", where, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
}

// recoverPanic is deferred around everything that is done for a peer: only that peer fails.
func (p *Peer) recoverPanic(where string) {
	if r := recover(); r != nil {
		p.logPanic(where, r)
		p.fail("panic", ErrPanic)
	}
}
