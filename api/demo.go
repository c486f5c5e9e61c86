package api

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/berth"
)

// Killer kills a worker's process, as `berth dev` can. An unknown worker is a not_found Refusal.
type Killer interface {
	Kill(ctx context.Context, workerID string) error
}

// Demo opens the calls behind the demo page, which hold no key. Only `berth dev` sets it.
type Demo struct {
	TenantID string // whose sessions the page starts
	Killer   Killer
}

// CreateDemoSession serves POST /demo/sessions.
func (s *service) CreateDemoSession(w http.ResponseWriter, r *http.Request) {
	s.createSession(w, r, s.cfg.Demo.TenantID)
}

// KillDemoWorker serves POST /demo/kill.
func (s *service) KillDemoWorker(w http.ResponseWriter, r *http.Request) {
	request, err := decode[wire.KillRequest](s, w, r)
	if err == nil && !berth.ValidID(request.WorkerID) {
		err = berth.Invalid("worker_id", reasonID)
	}
	if err == nil {
		err = s.cfg.Demo.Killer.Kill(r.Context(), request.WorkerID)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.log.InfoContext(r.Context(), "worker killed by demo page", slog.String("worker_id", request.WorkerID))
	w.WriteHeader(http.StatusNoContent)
}

// sameMachine lets through only pages that this server gave to a browser on this machine. Host must be loopback too,
// or a name that an attacker points at 127.0.0.1 would do.
func (s *service) sameMachine(next http.Handler) http.Handler {
	var protection http.CrossOriginProtection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if !isLoopbackHost(r.Host) || !isLoopbackOrigin(origin) || protection.Check(r) != nil {
			s.refuse(w, r, berth.Refuse(berth.CodeForbidden, "Only the demo page may do this, opened on this machine by its loopback address."))
			return
		}
		next.ServeHTTP(w, r)
	})
}
