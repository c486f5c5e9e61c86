package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Stop drains and then ends the server; see the package comment. It returns when nothing runs any more, at the latest
// soon after the context ends, which cuts the requests that still run. It may be called before Start, and again: later
// calls wait for the first.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	first := !s.stopped
	s.stopped = true
	started := s.started
	if first && !started {
		close(s.done)
	}
	s.mu.Unlock()
	if !first || !started {
		<-s.done
		s.running.Wait()
		s.service.health.wait()
		return nil
	}
	err := s.shutdown(ctx)
	close(s.done)
	return err
}

func (s *Server) shutdown(ctx context.Context) error {
	s.service.draining.Store(true)
	s.service.log.InfoContext(ctx, "api drains", slog.Duration("delay", s.service.cfg.ShutdownDelay))
	wait(ctx, s.service.cfg.ShutdownDelay)
	ctx, cancel := context.WithTimeout(ctx, s.service.cfg.ShutdownTimeout)
	defer cancel()
	s.service.held.end()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("api: requests cut at shutdown: %w", errors.Join(err, s.http.Close()))
	}
	s.cancel()
	s.running.Wait()
	s.service.health.wait()
	return err
}

// wait returns after d, or when the context ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
