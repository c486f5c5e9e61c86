package api

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/berth"
)

// exposedFields are those of an answer that a page of another origin may read.
const exposedFields = "Idempotent-Replayed, Location, Preference-Applied, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id"

// PreflightRejoin serves OPTIONS /v1/sessions/{id}/rejoin.
func (s *service) PreflightRejoin(w http.ResponseWriter, r *http.Request, _ wire.SessionID) {
	s.preflight(w, r, http.MethodPost, "Authorization, Content-Type, X-Request-Id")
}

// PreflightFollowTopic serves OPTIONS /v1/topics/{topic}/messages.
func (s *service) PreflightFollowTopic(w http.ResponseWriter, r *http.Request, _ wire.Topic) {
	s.preflight(w, r, http.MethodGet, "Authorization, Last-Event-ID, X-Request-Id")
}

// preflight says what a page may do. The middleware named its origin if that is one of those that may.
func (s *service) preflight(w http.ResponseWriter, r *http.Request, method, fields string) {
	header := w.Header()
	if header.Get("Access-Control-Allow-Origin") == "" {
		s.refuse(w, r, berth.Refuse(berth.CodeForbidden, "Pages of this origin may not call this; BERTH_ALLOWED_ORIGINS lists those that may."))
		return
	}
	header.Set("Access-Control-Allow-Methods", method)
	header.Set("Access-Control-Allow-Headers", fields)
	header.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// crossOrigin lets pages of the allowed origins read the answer. The request carries its own token and no cookie, so a page
// of another origin gains nothing by sending one; it just cannot read what comes back.
func (s *service) crossOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Add("Vary", "Origin")
		if origin := r.Header.Get("Origin"); s.allowedOrigin(origin) {
			header.Set("Access-Control-Allow-Origin", origin)
			header.Set("Access-Control-Expose-Headers", exposedFields)
		}
		next.ServeHTTP(w, r)
	})
}

func (s *service) allowedOrigin(origin string) bool {
	if origin == "" {
		return false
	}
	return slices.Contains(s.cfg.AllowedOrigins, origin) || s.cfg.Dev && isLoopbackOrigin(origin)
}

// isLoopbackOrigin tells whether an Origin header names a page that this machine served.
func isLoopbackOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Path == "" && isLoopbackHost(u.Host)
}

// isLoopbackHost tells whether a host, with or without a port, is this machine by its name or address. Any other name
// might be made to resolve to it.
func isLoopbackHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if name == "localhost" {
		return true
	}
	if len(name) > 2 && name[0] == '[' && name[len(name)-1] == ']' {
		name = name[1 : len(name)-1]
	}
	address, err := netip.ParseAddr(name)
	return err == nil && address.IsLoopback()
}
