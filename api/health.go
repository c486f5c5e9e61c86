package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/berth"
)

// readyWithin bounds the question to the database, so that the answer of /readyz is there within a second.
const readyWithin = 900 * time.Millisecond

// Livez serves GET /livez: whoever can answer is alive.
func (s *service) Livez(w http.ResponseWriter, r *http.Request) {
	s.answer(w, r, http.StatusOK, wire.Health{Status: wire.Ok}, nil)
}

// Readyz serves GET /readyz.
func (s *service) Readyz(w http.ResponseWriter, r *http.Request) {
	s.answer(w, r, http.StatusOK, wire.Health{Status: wire.Ok}, s.ready(r.Context()))
}

func (s *service) ready(ctx context.Context) error {
	if s.draining.Load() {
		return unavailable("This process is about to stop.")
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := s.health.ask(ctx); err != nil {
		return &berth.Refusal{
			Code: berth.CodeUnavailable, Detail: "The database does not answer.", RetryAfter: retryUnavailable, Retryable: true,
		}
	}
	return nil
}

// health asks the database at most once at a time. Everybody who asks meanwhile shares the answer, so that probes of a
// frozen database do not pile up.
type health struct {
	database Database

	mu      sync.Mutex
	current *look // nil: nobody asks now
	looks   sync.WaitGroup
}

// look is one question to the database.
type look struct {
	done chan struct{}
	err  error // after done
}

// ask returns the database's answer, or the context's error if it takes longer.
func (h *health) ask(ctx context.Context) error {
	look := h.join(ctx)
	select {
	case <-look.done:
		return look.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join returns the look that runs, or begins one.
func (h *health) join(ctx context.Context) *look {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != nil {
		return h.current
	}
	current := &look{done: make(chan struct{})}
	h.current = current
	// Others may wait for this look, so it outlives the request that began it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin)
	h.looks.Go(func() {
		defer cancel()
		current.err = h.database.Ping(ctx)
		h.mu.Lock()
		h.current = nil
		h.mu.Unlock()
		close(current.done)
	})
	return current
}

// wait returns when no look runs.
func (h *health) wait() { h.looks.Wait() }
