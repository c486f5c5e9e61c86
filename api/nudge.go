package api

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	nudgeQueue   = 256 // workers; beyond it nudges are dropped, and the next renewal tells the worker
	nudgeTimeout = time.Second
)

// nudger tells workers to ask for their orders now instead of at their next renewal. It makes orders prompt and may be
// lost: one goroutine sends them one by one, with a short patience, and drops what does not fit its queue.
type nudger struct {
	workers Workers
	signer  Signer
	clock   *databaseClock // workers know no other time
	log     *slog.Logger
	client  *http.Client

	queue   chan string // worker ids
	mu      sync.Mutex
	pending map[string]bool // queued ids: one nudge covers every order that came before it
}

func newNudger(workers Workers, signer Signer, clock *databaseClock, log *slog.Logger) *nudger {
	return &nudger{
		workers: workers, signer: signer, clock: clock, log: log,
		client: &http.Client{
			Timeout: nudgeTimeout,
			// Its own connections, and none through a proxy that the environment names: workers are internal.
			Transport: &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: idleTimeout},
			// the bearer is for the worker alone
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		queue:   make(chan string, nudgeQueue),
		pending: make(map[string]bool),
	}
}

// send queues a nudge and never blocks.
func (n *nudger) send(workerID string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pending[workerID] {
		return
	}
	select {
	case n.queue <- workerID:
		n.pending[workerID] = true
	default: // full: the worker learns it with its next renewal
	}
}

// run sends nudges until the context ends. What is queued then is dropped.
func (n *nudger) run(ctx context.Context) {
	defer n.client.CloseIdleConnections()
	for {
		select {
		case <-ctx.Done():
			return
		case workerID := <-n.queue:
			n.mu.Lock()
			delete(n.pending, workerID)
			n.mu.Unlock()
			if err := n.nudge(ctx, workerID); err != nil && ctx.Err() == nil {
				n.log.DebugContext(ctx, "nudge lost", slog.String("worker_id", workerID), slog.Any("err", err))
			}
		}
	}
}

func (n *nudger) nudge(ctx context.Context, workerID string) error {
	ctx, cancel := context.WithTimeout(ctx, nudgeTimeout)
	defer cancel()
	worker, err := n.workers.Worker(ctx, workerID)
	if err != nil {
		return fmt.Errorf("find worker: %w", err)
	}
	if !worker.State.Serving() || worker.ControlURL == "" {
		return nil
	}
	now, err := n.clock.now(ctx)
	if err != nil {
		return fmt.Errorf("date nudge: %w", err)
	}
	token, err := n.signer.SignNudge(ctx, worker.ID, worker.Instance, now)
	if err != nil {
		return fmt.Errorf("sign nudge: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(worker.ControlURL, "/")+"/nudge", http.NoBody)
	if err != nil {
		return fmt.Errorf("address worker: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := n.client.Do(request)
	if err != nil {
		return fmt.Errorf("send nudge: %w", err)
	}
	_, _ = io.CopyN(io.Discard, response.Body, 1<<10) // so that the connection can be used again
	return response.Body.Close()
}
