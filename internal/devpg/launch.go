package devpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// portAttempts bounds how often another process may snatch the free port
// between its choice and the server's bind.
const portAttempts = 8

var errPortTaken = errors.New("port is taken")

// launch starts the postmaster and waits until it is ready.
func (s *Server) launch(ctx context.Context) error {
	if s.cfg.Port != 0 {
		err := s.launchOn(ctx, s.cfg.Port)
		if errors.Is(err, errPortTaken) {
			return fmt.Errorf("port %d on %s is in use: choose another, or 0 for a free one", s.cfg.Port, s.cfg.Listen)
		}
		return err
	}
	var err error
	for range portAttempts {
		var port int
		if port, err = freePort(ctx, s.cfg.Listen); err != nil {
			return err
		}
		if err = s.launchOn(ctx, port); !errors.Is(err, errPortTaken) {
			return err
		}
		s.cfg.Logger.DebugContext(ctx, "database port was taken meanwhile", "port", port)
	}
	return err
}

func freePort(ctx context.Context, address string) (int, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, fmt.Errorf("find a free port on %s: %w", address, err)
	}
	defer func() { _ = listener.Close() }()
	addr, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("find a free port: %T is no TCP address", listener.Addr())
	}
	return addr.Port, nil
}

func (s *Server) launchOn(ctx context.Context, port int) error {
	args := append([]string{"-D", s.store.data()}, s.cfg.settings(port, s.scratch.run())...)
	s.log.mark()
	proc, err := spawn(s.command(ctx, s.binaries.postgres(), args), syscall.SIGQUIT)
	if err != nil {
		return err
	}
	if err := s.awaitReady(ctx, proc); err != nil {
		proc.quit()
		return err
	}
	s.proc, s.port = proc, port
	return nil
}

// awaitReady watches the status that the postmaster keeps in postmaster.pid, as
// pg_ctl does: it needs no connection and no password.
func (s *Server) awaitReady(ctx context.Context, proc *process) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-proc.done:
			return s.startFailure(proc)
		case <-ctx.Done():
			return fmt.Errorf("server not ready: %w%s", ctx.Err(), s.log.tail())
		case <-ticker.C:
		}
		state, err := readPIDFile(s.store.data())
		if err != nil {
			return fmt.Errorf("server status: %w", err)
		}
		if state.pid == proc.cmd.Process.Pid && (state.status == "ready" || state.status == "standby") {
			return nil
		}
	}
}

// startFailure reads the reason from the log; exit codes do not tell.
func (s *Server) startFailure(proc *process) error {
	tail := s.log.tail()
	switch {
	case strings.Contains(tail, "could not bind") || strings.Contains(tail, "could not create any TCP/IP sockets"):
		return errPortTaken
	case strings.Contains(tail, `lock file "postmaster.pid" already exists`):
		return fmt.Errorf("data directory %s is in use by a PostgreSQL server that was started by other means: stop it first%s",
			s.store.path, tail)
	}
	return fmt.Errorf("server ended while starting: %w%s", proc.err, tail)
}

// command prepares a server binary to run as the server's user, with nothing of
// the environment that could change what it does, in a directory that is open
// to that user. It outlives ctx: run and Stop end it.
func (s *Server) command(ctx context.Context, binary string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), binary, args...)
	cmd.Dir = s.scratch.run()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	if path, ok := os.LookupEnv("LD_LIBRARY_PATH"); ok {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+path)
	}
	cmd.Stdout, cmd.Stderr = s.log.file, s.log.file
	cmd.SysProcAttr = s.who.attributes()
	return cmd
}
