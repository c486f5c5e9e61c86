package signaling

import (
	"context"
	"errors"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// maxGone bounds the disconnects that wait for the database. Beyond it the oldest is forgotten: the row then shows a
// connection that is gone until the peer's next one or the session's end.
const maxGone = 4096

// departure is a connection that is gone.
type departure struct {
	berth.Disconnect
	role    string
	call    bool // of a call, whose other peer is to be told
	written bool // the database was told
}

// settler tells the database what happened here: disconnects once, those of calls and ends until they are acknowledged. What
// it waits with is bounded: ends by the sessions that the worker owns, disconnects by maxGone.
type settler struct {
	hub    *Hub
	gone   chan departure
	parted []departure // of calls, not acknowledged yet; run's alone
	poke   chan struct{}
}

func newSettler(h *Hub) *settler {
	return &settler{hub: h, gone: make(chan departure, maxGone), poke: make(chan struct{}, 1)}
}

// disconnect queues the word that a connection is gone.
func (s *settler) disconnect(d departure) {
	for {
		select {
		case s.gone <- d:
			return
		default:
		}
		select {
		case <-s.gone:
			s.hub.metrics.settled("disconnect", errForgotten)
		default:
		}
	}
}

var errForgotten = errors.New("too many disconnects wait for the database")

// wake has the ends told soon.
func (s *settler) wake() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

func (s *settler) run(ctx context.Context) {
	again := time.NewTimer(s.hub.config.SettleInterval)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-s.gone:
			s.tellGone(ctx, d)
		case <-s.poke:
			s.tellEnds(ctx)
		case <-again.C:
			s.tellEnds(ctx)
			s.tellParted(ctx)
			again.Reset(s.hub.config.SettleInterval)
		}
	}
}

// settle tells what waits now, ends first: a session that left must not be moved instead.
func (s *settler) settle(ctx context.Context) {
	told := s.tellEnds(ctx)
	for told {
		select {
		case d := <-s.gone:
			told = s.tellGone(ctx, d)
		default:
			return
		}
	}
}

// tellGone tells of one disconnect, once. It reports whether the database answered.
func (s *settler) tellGone(ctx context.Context, d departure) bool {
	ctx, cancel := context.WithTimeout(ctx, s.hub.config.ConnectTimeout)
	defer cancel()
	err := s.part(ctx, &d)
	if errors.Is(err, berth.ErrStale) {
		err = nil
	}
	if err != nil && d.call && len(s.parted) < maxGone {
		s.parted = append(s.parted, d)
	}
	s.hub.metrics.settled("disconnect", err)
	if err != nil {
		s.hub.deps.Logger.DebugContext(ctx, "disconnect not written", "peer_id", d.PeerID, "err", err)
	}
	return err == nil
}

// part tells the database, and then the other peer of a call.
func (s *settler) part(ctx context.Context, d *departure) error {
	if !d.written {
		if err := s.hub.deps.Directory.DisconnectPeer(ctx, d.Disconnect); err != nil {
			return err
		}
		d.written = true
	}
	if !d.call {
		return nil
	}
	return s.hub.parted(ctx, d.Disconnect, d.role)
}

// tellParted repeats what was not acknowledged of calls.
func (s *settler) tellParted(ctx context.Context) {
	parted := s.parted
	s.parted = nil
	for i, d := range parted {
		if !s.tellGone(ctx, d) {
			s.parted = append(s.parted, parted[i+1:]...)
			return
		}
	}
}

// tellEnds ends what waits in Hub.ending. A session stays there, and thereby held, until the database answers, which it
// reports.
func (s *settler) tellEnds(ctx context.Context) bool {
	ends := s.hub.endings()
	if len(ends) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, s.hub.config.ConnectTimeout)
	defer cancel()
	err := s.hub.deps.Directory.EndSessions(ctx, ends)
	if errors.Is(err, berth.ErrStale) {
		err = nil
	}
	s.hub.metrics.settled("end", err)
	if err != nil {
		s.hub.deps.Logger.WarnContext(ctx, "ends not written", "count", len(ends), "err", err)
		return false
	}
	s.hub.ended(ends)
	return true
}

func (h *Hub) endings() []berth.End {
	h.mu.Lock()
	defer h.mu.Unlock()
	ends := make([]berth.End, 0, len(h.ending))
	for held, reason := range h.ending {
		ends = append(ends, berth.End{Held: held, Reason: reason})
	}
	return ends
}

func (h *Hub) ended(ends []berth.End) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range ends {
		delete(h.ending, e.Held)
	}
}
