package media

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Engine runs the media of a process. All methods are safe for concurrent use.
type Engine struct {
	cfg      Config
	log      *slog.Logger
	metrics  *metrics
	sockets  *sockets
	stack    *stack
	handlers map[string]HandlerFactory

	mu       sync.Mutex
	sessions map[*Session]struct{}
	peers    int
	closed   bool
	wg       sync.WaitGroup // of sessions

	closeOnce sync.Once
	down      chan struct{} // closed when everything is
}

// New opens the sockets and registers metrics. Without a registerer the metrics are private.
func New(cfg Config, log *slog.Logger, reg prometheus.Registerer) (*Engine, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	handlers, err := builtinHandlers()
	if err != nil {
		return nil, err
	}
	maps.Copy(handlers, cfg.Handlers)
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, log: log, metrics: m, handlers: handlers,
		sessions: make(map[*Session]struct{}), down: make(chan struct{}),
	}
	if err := e.open(); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *Engine) open() error {
	loggers := pionLoggers{log: e.log}
	var err error
	if e.sockets, err = openSockets(e.cfg, loggers, e.log); err != nil {
		return err
	}
	if e.stack, err = newStack(e.sockets, loggers); err != nil {
		_ = e.sockets.close()
		return err
	}
	return nil
}

// Addrs returns the UDP addresses in use, as bound; an unspecified one in wildcard mode.
func (e *Engine) Addrs() []netip.AddrPort { return slices.Clone(e.sockets.bound) }

// Handlers returns the names of the handlers, sorted.
func (e *Engine) Handlers() []string { return slices.Sorted(maps.Keys(e.handlers)) }

// Open starts a session. It ends by Session.Close or Close. ErrUnknownHandler if no handler has the name.
func (e *Engine) Open(cfg SessionConfig) (*Session, error) {
	name := cmp.Or(cfg.Handler, "echo")
	factory, ok := e.handlers[name]
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrUnknownHandler, name)
	}
	s := &Session{
		engine: e,
		key:    cfg.Key,
		log:    e.log.With("session_key", cfg.Key),
		since:  time.Now(),
		ops:    make(chan func(), sessionQueue),
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
		peers:  make(map[*Peer]struct{}),
	}
	s.traffic.metrics = e.metrics
	var err error
	if s.handler, err = factory(s); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrHandler, name, err)
	}
	if !e.start(s) {
		return nil, ErrClosed
	}
	return s, nil
}

// start runs a session's goroutine, unless the engine is closing.
func (e *Engine) start(s *Session) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.sessions[s] = struct{}{}
	e.metrics.sessions.Inc()
	e.wg.Go(func() {
		s.run()
		e.mu.Lock()
		delete(e.sessions, s)
		e.mu.Unlock()
		e.metrics.sessions.Dec()
	})
	return true
}

// Close closes every session and the sockets. It is idempotent and returns when all is down, or when ctx
// ends; then the rest goes on closing within Config.CloseTimeout.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	open := slices.Collect(maps.Keys(e.sessions))
	e.mu.Unlock()
	for _, s := range open {
		s.Close("engine closed")
	}
	e.closeOnce.Do(func() { go e.finishClose() })
	select {
	case <-e.down:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("media: close: %w", ctx.Err())
	}
}

// finishClose closes the sockets after the last session. Close waits for it.
func (e *Engine) finishClose() {
	defer close(e.down)
	e.wg.Wait()
	if err := e.sockets.close(); err != nil {
		e.log.Warn("media sockets close", "err", err)
	}
}

// reservePeer takes one of the process's places.
func (e *Engine) reservePeer() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.peers >= e.cfg.MaxPeers {
		return false
	}
	e.peers++
	e.metrics.peers.Inc()
	return true
}

func (e *Engine) releasePeer() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.peers--
	e.metrics.peers.Dec()
}
