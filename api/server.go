package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/berth"
)

// Timeouts of a connection. ReadTimeout is a backstop for bodies that nobody reads; handlers have their own.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 60 * time.Second
	writeSlack        = 10 * time.Second // for an answer, after the longest call of all
	idleTimeout       = 75 * time.Second
	maxHeaderBytes    = 32 << 10
)

// service holds what handlers use. It has a method for each operation of openapi.yaml.
type service struct {
	deps      Dependencies
	cfg       Config
	log       *slog.Logger
	publicURL string // without a slash at its end
	draining  atomic.Bool
	health    health
	nudges    *nudger
	watcher   *watcher
	held      held
	relay     *relay
	rejoins   *line // of rejoins
	documents documents

	topicPlaces *places
	followed    *followed
	clock       *databaseClock
	metrics     *metrics
}

var _ wire.ServerInterface = (*service)(nil)

// Server is one API process's HTTP server.
type Server struct {
	service *service
	http    *http.Server
	done    chan struct{} // closed when nothing of it runs any more

	mu       sync.Mutex
	started  bool
	stopped  bool
	listener net.Listener
	cancel   context.CancelFunc // ends the nudger and the watcher
	running  sync.WaitGroup     // those and the accept loop
	err      error              // why serving failed; after done
}

// New returns a server that does not run yet.
func New(deps Dependencies, cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(deps.validate(), cfg.validate()); err != nil {
		return nil, err
	}
	documents, err := newDocuments()
	if err != nil {
		return nil, err
	}
	places, rejoins := newPlaces(cfg.TopicStreams), newLine(cfg.RejoinRate, cfg.RejoinHold)
	metrics, err := newMetrics(cfg.Registerer, places.taken, rejoins.waits)
	if err != nil {
		return nil, err
	}
	clock := newDatabaseClock(deps.Database.Clock)
	s := &service{
		deps: deps, cfg: cfg, log: deps.Log, publicURL: cfg.PublicURL, documents: documents,
		health:  health{database: deps.Database},
		nudges:  newNudger(deps.Workers, deps.Signer, clock, deps.Log),
		watcher: newWatcher(deps.Events, deps.Log, cfg.StreamPoll, cfg.Streams),
		relay:   newRelay(deps.Renewals, cfg.TrustedProxies),
		rejoins: rejoins,

		topicPlaces: places,
		followed:    newFollowed(deps.Sessions, cfg.StreamKeepAlive),
		clock:       clock,
		metrics:     metrics,
	}
	return &Server{
		service: s,
		done:    make(chan struct{}),
		http: &http.Server{
			Handler:           s.routes(),
			ReadHeaderTimeout: readHeaderTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      cfg.BodyTimeout + cfg.RequestTimeout + max(berth.MaxWait, 2*cfg.RejoinHold) + writeSlack,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          slog.NewLogLogger(deps.Log.Handler(), slog.LevelDebug),
		},
	}, nil
}

// Start listens and serves; it returns once requests are accepted, or with the reason why they cannot be. The context
// is for listening only. A server starts once.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.stopped {
		return errors.New("api: started or stopped already")
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", s.service.cfg.Listen)
	if err != nil {
		return fmt.Errorf("api: listen: %w", err)
	}
	s.started, s.listener = true, listener
	if s.service.publicURL == "" {
		s.service.publicURL = "http://" + listener.Addr().String()
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.running.Go(func() { s.service.nudges.run(background) })
	s.running.Go(func() { s.service.watcher.run(background) })
	s.running.Go(func() { s.serve(listener) })
	return nil
}

// serve accepts until Stop. A listener that fails ends the server: whoever started it waits on Done.
func (s *Server) serve(listener net.Listener) {
	err := s.http.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped, s.err = true, fmt.Errorf("api: serve: %w", err)
		s.cancel()
		s.service.held.end()
		close(s.done)
	}
}

// Addr is the bound address; nil before Start.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// PublicURL is what clients call this API by, without a slash at its end; empty before Start if it was not configured.
func (s *Server) PublicURL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.service.publicURL
}

// Done is closed when the server has stopped, by Stop or because it failed.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err is why the server failed; nil while it runs and after Stop.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
