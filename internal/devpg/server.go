package devpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"syscall"
)

// superuser owns the cluster and is the user in every URL.
const superuser = "berth"

// Server is a running private PostgreSQL server. Its methods may be called from
// any goroutine.
type Server struct {
	cfg      Config
	binaries install
	who      account
	scratch  *place
	store    *place // the same as scratch if temporary
	log      *serverLog
	proc     *process
	port     int
	password string

	stopOnce sync.Once
	stopErr  error
}

// Start returns once the server accepts connections, or says why it does not.
// ctx bounds the start only; the server runs until Stop, or until this process
// dies. Errors are ErrNotInstalled or describe a field of cfg, a directory that
// cannot be used, or what the server logged.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("devpg: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.StartTimeout)
	defer cancel()
	s := &Server{cfg: cfg}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("devpg: %w", err), s.abandon(ctx))
	}
	cfg.Logger.InfoContext(ctx, "private database started", "pid", s.PID(), "port", s.port,
		"dir", s.store.path, "postgres", s.binaries.bin, "major", s.binaries.major)
	return s, nil
}

// abandon undoes what a failed start did.
func (s *Server) abandon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quitGrace)
	defer cancel()
	return s.Stop(ctx)
}

func (s *Server) start(ctx context.Context) (err error) {
	if s.binaries, err = findInstall(ctx, s.cfg.BinDir); err != nil {
		return err
	}
	if err := s.openPlaces(ctx); err != nil {
		return err
	}
	if s.log, err = openLog(s.store.log()); err != nil {
		return err
	}
	if !s.store.initialised() {
		if err := s.initialise(ctx); err != nil {
			return err
		}
	}
	if err := s.store.checkMajor(s.binaries); err != nil {
		return err
	}
	if err := s.launch(ctx); err != nil {
		return err
	}
	return s.ensurePassword(ctx)
}

// openPlaces owns the directories and cleans up after owners that died.
func (s *Server) openPlaces(ctx context.Context) (err error) {
	dataDir := ""
	if s.cfg.Dir != "" {
		dataDir = (&place{path: s.cfg.Dir}).data()
	}
	if s.who, err = serverAccount(dataDir); err != nil {
		return err
	}
	if s.scratch, err = makeScratch(s.cfg.TempDir, s.who); err != nil {
		return err
	}
	sweep(ctx, s.scratch, s.cfg.Logger)
	s.store = s.scratch
	if s.cfg.Dir == "" {
		return nil
	}
	store, err := openStore(s.cfg.Dir, s.who)
	if err != nil {
		return err
	}
	s.store = store
	return stopOrphan(ctx, store.data())
}

// Stop ends the server and returns once it is gone. It may be called often and
// from several goroutines: all wait for the first and get its result. If ctx
// ends before an orderly shutdown does, the server is stopped by force, and
// that is the error. A temporary server's data is removed.
func (s *Server) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() {
		if s.stopErr = s.stop(ctx); s.stopErr != nil {
			s.stopErr = fmt.Errorf("devpg: stop: %w", s.stopErr)
		}
	})
	return s.stopErr
}

func (s *Server) stop(ctx context.Context) error {
	var errs []error
	if s.proc != nil {
		errs = append(errs, s.proc.stop(ctx, s.stopSignal()))
		s.cfg.Logger.InfoContext(ctx, "private database stopped", "pid", s.PID(), "dir", s.store.path)
	}
	if s.log != nil {
		errs = append(errs, s.log.file.Close())
	}
	if s.store != nil && s.store != s.scratch {
		errs = append(errs, s.store.close())
	}
	if s.scratch != nil {
		errs = append(errs, s.scratch.remove())
	}
	return errors.Join(errs...)
}

// stopSignal asks for a fast shutdown with a checkpoint where the data is kept,
// and for an immediate one where it is about to be removed.
func (s *Server) stopSignal() syscall.Signal {
	if s.store == s.scratch {
		return syscall.SIGQUIT
	}
	return syscall.SIGINT
}

// Done is closed once the server has ended, for whatever reason.
func (s *Server) Done() <-chan struct{} { return s.proc.done }

// Err says how the server ended, with the end of its log, if it did so before
// Stop; nil while it runs. It is meaningful after Done and before Stop.
func (s *Server) Err() error {
	if !s.proc.exited() {
		return nil
	}
	return fmt.Errorf("devpg: server ended: %s%s", s.proc.cmd.ProcessState, s.log.tail())
}

// PID is the process id of the postmaster.
func (s *Server) PID() int { return s.proc.cmd.Process.Pid }

// Port is the TCP port on Config.Listen.
func (s *Server) Port() int { return s.port }

// Dir is the directory that holds the cluster and the server's log.
func (s *Server) Dir() string { return s.store.path }

// URL is the address of a database over TCP, with the superuser's password in
// it: a secret as far as this machine's users go.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, s.password),
		Host:     net.JoinHostPort(s.cfg.Listen, strconv.Itoa(s.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// SocketURL is the address of a database over the Unix socket. It has no
// password and works for this process's user only.
func (s *Server) SocketURL(database string) string {
	query := url.Values{
		"host": {s.scratch.run()}, "port": {strconv.Itoa(s.port)}, "user": {superuser}, "sslmode": {"disable"},
	}
	return (&url.URL{Scheme: "postgres", Path: "/" + database, RawQuery: query.Encode()}).String()
}
