package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/signaling"
)

// shutdownTimeout bounds the end of connections and servers, after the database was told.
const shutdownTimeout = 10 * time.Second

// Worker is one worker process. Make it with New, then Start; it runs until Stop or until it must stop by itself.
type Worker struct {
	config Config
	deps   Deps
	hub    *signaling.Hub
	keeper *keeper
	awake  *Awake

	signaling, control *http.Server
	tasks              sync.WaitGroup

	mu      sync.Mutex
	started bool
	stopped bool               // Stop was called
	abort   context.CancelFunc // ends the wait of a drain
	err     error
	done    chan struct{}
}

// New checks the configuration and registers metrics. It starts nothing.
func New(config Config, deps Deps) (*Worker, error) {
	config = config.withDefaults()
	if err := errors.Join(config.validate(), deps.validate()); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register worker metrics: %w", err)
	}
	awake := NewAwake(config.Now)
	k := newKeeper(config, deps.Registry, deps.Logger, m, awake)
	config.Signaling.Awake = awake.Since
	config.Signaling.Inbox = berth.InboxTopic(config.WorkerID)
	config.Signaling.ICEServers = iceServers(config.TURN, k.clock)
	hub, err := signaling.New(config.Signaling, signaling.Deps{
		Tokens:    &tokens{verifier: deps.Verifier, clock: k.clock},
		Directory: &directory{registry: deps.Registry, workerID: config.WorkerID, status: k.status, nudge: k.nudge},
		Media:     deps.Media,
		Topics:    deps.Topics,
		Logger:    deps.Logger,
		Registry:  deps.Metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	k.hub = hub
	w := &Worker{config: config, deps: deps, hub: hub, keeper: k, awake: awake, done: make(chan struct{})}
	w.signaling, w.control = w.server(w.signalingHandler()), w.server(w.controlHandler())
	return w, nil
}

// Done is closed when the worker has stopped, by Stop or by itself.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Err is why the worker stopped by itself: ErrReplaced, or what made registering anew impossible. It is nil before
// Done and after a Stop.
func (w *Worker) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Start serves HTTP, registers and returns once the worker takes sessions. It waits while another instance of the
// worker lives and while the database is away; a done ctx ends the wait, and nothing runs after an error. Only values
// of ctx reach beyond Start.
func (w *Worker) Start(ctx context.Context) error {
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	run, abort := context.WithCancel(background)
	if !w.begin(abort) {
		cancel()
		return errors.New("worker: started or stopped already")
	}
	w.tasks.Go(func() { w.awake.Run(background) })
	w.tasks.Go(func() { w.hub.Run(background) })
	w.serveHTTP(background, w.signaling, w.deps.SignalingListener)
	w.serveHTTP(background, w.control, w.deps.ControlListener)

	t, err := w.keeper.register(ctx)
	if err != nil {
		w.finish(background, nil, err)
		cancel()
		w.tasks.Wait()
		close(w.done)
		return err
	}
	go func() { // its owner is whoever waits for done
		defer close(w.done)
		last, err := w.keeper.run(run, t)
		w.finish(background, last, err)
		cancel()
		w.tasks.Wait()
	}()
	return nil
}

func (w *Worker) begin(abort context.CancelFunc) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started || w.stopped {
		return false
	}
	w.started, w.abort = true, abort
	return true
}

// Stop drains the worker and returns when it is empty, or when Config.DrainDeadline passed and the rest was moved.
// A done ctx ends the wait: what still runs is given up at once, and its error is returned. Stop may be called at any
// time, also again.
func (w *Worker) Stop(ctx context.Context) error {
	w.mu.Lock()
	first, started := !w.stopped, w.started
	w.stopped = true
	w.mu.Unlock()
	if first {
		close(w.keeper.stops)
	}
	if !started {
		if first {
			closeListener(w.deps.SignalingListener)
			closeListener(w.deps.ControlListener)
			close(w.done)
		}
		return nil
	}
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		w.abort()
		<-w.done // every step of the end is bounded
		return fmt.Errorf("stop worker: %w", ctx.Err())
	}
}

// closeListener closes what was never served; its error would change nothing.
func closeListener(l net.Listener) { _ = l.Close() }

// finish ends everything but the background tasks. What is still placed here is given up by Leave, so its clients are
// told to rejoin; if the database does not take it, they come back for it, and the reaper has seen to it by then.
func (w *Worker) finish(ctx context.Context, t *tenure, cause error) {
	w.keeper.status.store(report{phase: phaseStopped})
	w.hub.Admit(signaling.AdmitNone)
	if t != nil {
		if !errors.Is(cause, ErrReplaced) && w.leave(ctx, t.instance) {
			w.hub.DropAll(signaling.Fate{Planned: true})
		}
		w.keeper.leavePresence(ctx, t.presence)
	}
	// A database that is away has used up none of the time that clients have to read their close frames.
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	w.hub.Close(ctx, w.config.RestartSpread)
	w.shutdown(ctx, w.signaling)
	w.shutdown(ctx, w.control)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.err = cause
	}
	w.deps.Logger.InfoContext(ctx, "worker stopped", "worker_id", w.config.WorkerID, "cause", cause)
}

// leave says goodbye to the database, after the last word about sessions. Each has the time of one call.
func (w *Worker) leave(ctx context.Context, instance berth.Instance) bool {
	settling, cancel := context.WithTimeout(ctx, w.config.CallTimeout)
	defer cancel()
	w.hub.Settle(settling)
	_, err := call(ctx, w.config.CallTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.deps.Registry.Leave(ctx, w.config.WorkerID, instance)
	})
	if err != nil {
		w.deps.Logger.WarnContext(ctx, "goodbye not written", "worker_id", w.config.WorkerID, "err", err)
	}
	return err == nil
}

func (w *Worker) shutdown(ctx context.Context, s *http.Server) {
	if err := s.Shutdown(ctx); err != nil {
		w.deps.Logger.WarnContext(ctx, "http server not shut down", "err", errors.Join(err, s.Close()))
	}
}

func (w *Worker) serveHTTP(ctx context.Context, s *http.Server, l net.Listener) {
	w.tasks.Go(func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			w.deps.Logger.ErrorContext(ctx, "http server failed", "address", l.Addr().String(), "err", err)
		}
	})
}
