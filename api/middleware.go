package api

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/berthdev/berth/internal/telemetry"
)

// observe names each request, sets headers that every answer has, and logs and counts it once it is answered.
func (s *service) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		id := telemetry.RequestIDFrom(r.Header.Get("X-Request-Id"))
		r = r.WithContext(telemetry.WithRequestID(r.Context(), id))
		s.commonHeaders(w.Header(), r, id)
		recorder := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() { s.record(r, recorder, time.Since(began)) }()
		next.ServeHTTP(recorder, r)
	})
}

func (s *service) commonHeaders(header http.Header, r *http.Request, id string) {
	header.Set("X-Request-Id", id)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Frame-Options", "DENY")
	if strings.HasPrefix(r.URL.Path, "/v1/") || strings.HasPrefix(r.URL.Path, "/demo/") {
		header.Set("Cache-Control", "no-store") // answers hold tokens
	}
	if s.draining.Load() {
		header.Set("Connection", "close") // the next request should reach another replica
	}
}

// record writes the access log and the metric. Paths and queries may hold anything, so the route is named by its
// pattern; ids are logged where something happens to them.
func (s *service) record(r *http.Request, w middleware.WrapResponseWriter, took time.Duration) {
	route, status := chi.RouteContext(r.Context()).RoutePattern(), cmp.Or(w.Status(), http.StatusOK)
	if s.cfg.HTTPMetrics != nil {
		s.cfg.HTTPMetrics.Observe(route, r.Method, status, took)
	}
	level := slog.LevelInfo
	switch {
	case status >= http.StatusInternalServerError:
	case status < http.StatusBadRequest && took < slowAnswer, !strings.HasPrefix(route, "/v1/"):
		level = slog.LevelDebug // metrics count them and the history has them; a line each was a tenth of a start
	}
	s.log.LogAttrs(r.Context(), level, "request answered",
		slog.String("method", r.Method), slog.String("route", route), slog.Int("status", status),
		slog.Int("bytes", w.BytesWritten()), slog.Duration("took", took), slog.String("remote", r.RemoteAddr))
}

// slowAnswer is how long a request may take before its line is worth reading.
const slowAnswer = time.Second

// recoverPanic answers 500 for a bug that panicked, if nothing was sent yet.
func (s *service) recoverPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			s.log.ErrorContext(r.Context(), "handler panicked", slog.Any("err", cause), slog.String("stack", string(debug.Stack())))
			if recorder, ok := w.(middleware.WrapResponseWriter); ok && recorder.Status() == 0 {
				s.refuse(w, r, errInternal())
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// limitTime ends the work on a request; the store returns the context's error, which is answered with 503.
func limitTime(limit time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), limit)
			defer cancel()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}
