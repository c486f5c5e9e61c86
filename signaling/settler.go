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

// settler tells the database what happened here: disconnects once, ends until they are acknowledged. What it waits
// with is bounded: ends by the sessions that the worker owns, disconnects by maxGone.
type settler struct {
	hub  *Hub
	gone chan berth.Disconnect
	poke chan struct{}
}

func newSettler(h *Hub) *settler {
	return &settler{hub: h, gone: make(chan berth.Disconnect, maxGone), poke: make(chan struct{}, 1)}
}

// disconnect queues the word that a connection is gone.
func (s *settler) disconnect(d berth.Disconnect) {
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
func (s *settler) tellGone(ctx context.Context, d berth.Disconnect) bool {
	ctx, cancel := context.WithTimeout(ctx, s.hub.config.ConnectTimeout)
	defer cancel()
	err := s.hub.deps.Directory.DisconnectPeer(ctx, d)
	if errors.Is(err, berth.ErrStale) {
		err = nil
	}
	s.hub.metrics.settled("disconnect", err)
	if err != nil {
		s.hub.deps.Logger.DebugContext(ctx, "disconnect not written", "peer_id", d.PeerID, "err", err)
	}
	return err == nil
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
