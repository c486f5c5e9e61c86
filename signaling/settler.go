package signaling

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// maxGone bounds the disconnects that wait for the database. Beyond it the oldest is forgotten: the row then shows a
	// connection that is gone until the peer's next one or the session's end.
	maxGone = 1 << 16
	// goneAtOnce is how many disconnects are told side by side: the database takes those that come together in one statement.
	goneAtOnce = 64
)

// departure is a connection that is gone.
type departure struct {
	berth.Disconnect
	role    string
	call    bool            // of a call, whose other peer is to be told
	written bool            // the database was told
	told    func(err error) // hears how telling the database ended, once; may be nil
}

// settler tells the database what happened here: disconnects once, those of calls and ends until they are acknowledged. What
// it waits with is bounded: ends by the sessions that the worker owns, disconnects by maxGone.
type settler struct {
	hub  *Hub
	poke chan struct{}

	mu   sync.Mutex
	gone []departure // to be told
	late []departure // of calls, not acknowledged yet
}

func newSettler(h *Hub) *settler { return &settler{hub: h, poke: make(chan struct{}, 1)} }

// disconnect queues the word that a connection is gone.
func (s *settler) disconnect(d departure) {
	s.mu.Lock()
	if len(s.gone) >= maxGone {
		s.gone = s.gone[1:]
		s.hub.metrics.settled("disconnect", errForgotten)
	}
	s.gone = append(s.gone, d)
	s.mu.Unlock()
	s.wake()
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
		case <-s.poke:
			s.tellEnds(ctx)
			s.tellGone(ctx)
		case <-again.C:
			s.tellEnds(ctx)
			s.tellLate(ctx)
			again.Reset(s.hub.config.SettleInterval)
		}
	}
}

// settle tells what waits now, ends first: a session that left must not be moved instead.
func (s *settler) settle(ctx context.Context) {
	if s.tellEnds(ctx) {
		s.tellGone(ctx)
	}
}

// tellGone tells of disconnects until none waits, or the database does not answer.
func (s *settler) tellGone(ctx context.Context) {
	for {
		s.mu.Lock()
		some := s.gone[:min(len(s.gone), goneAtOnce)]
		s.gone = s.gone[len(some):]
		s.mu.Unlock()
		if len(some) == 0 || !s.tellAll(ctx, some) {
			return
		}
	}
}

// tellLate repeats what was not acknowledged of calls.
func (s *settler) tellLate(ctx context.Context) {
	s.mu.Lock()
	s.gone = append(s.late, s.gone...)
	s.late = nil
	s.mu.Unlock()
	s.tellGone(ctx)
}

// tellAll tells of some disconnects side by side, and reports whether the database answered any.
func (s *settler) tellAll(ctx context.Context, some []departure) bool {
	var telling sync.WaitGroup
	var answered atomic.Bool
	for _, d := range some {
		telling.Go(func() {
			if s.tell(ctx, d) {
				answered.Store(true)
			}
		})
	}
	telling.Wait()
	return answered.Load()
}

// tell tells of one disconnect, once. It reports whether the database answered.
func (s *settler) tell(ctx context.Context, d departure) bool {
	ctx, cancel := context.WithTimeout(ctx, s.hub.config.ConnectTimeout)
	defer cancel()
	err := s.part(ctx, &d)
	if errors.Is(err, berth.ErrStale) {
		err = nil
	}
	s.hub.metrics.settled("disconnect", err)
	if err != nil {
		s.hub.deps.Logger.DebugContext(ctx, "disconnect not written", "peer_id", d.PeerID, "err", err)
		s.retry(d)
	}
	return err == nil
}

// retry keeps what is not acknowledged of a call, up to maxGone. A peer that could not be shed stays.
func (s *settler) retry(d departure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.call && !d.Shed && len(s.late) < maxGone {
		s.late = append(s.late, d)
	}
}

// part tells the database, and then the other peer of a call.
func (s *settler) part(ctx context.Context, d *departure) error {
	if !d.written {
		err := s.hub.deps.Directory.DisconnectPeer(ctx, d.Disconnect)
		if d.told != nil {
			d.told(err)
			d.told = nil
		}
		if err != nil {
			return err
		}
		d.written = true
	}
	if !d.call {
		return nil
	}
	return s.hub.parted(ctx, d.Disconnect, d.role)
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
