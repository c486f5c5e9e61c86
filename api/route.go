package api

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

// routes mounts every call beside the roles that may make it. A test compares this with openapi.yaml both ways.
func (s *service) routes() chi.Router {
	calls := wire.ServerInterfaceWrapper{Handler: s, ErrorHandlerFunc: s.badParameter}
	r := chi.NewRouter()
	r.Use(s.observe, endBody, s.recoverPanic, middleware.GetHead)
	r.NotFound(s.unrouted)
	r.MethodNotAllowed(s.unrouted)
	s.versionOne(r, &calls)
	s.serviceRoutes(r, &calls)
	s.pageRoutes(r, &calls)
	return r
}

func (s *service) versionOne(r chi.Router, calls *wire.ServerInterfaceWrapper) {
	tenant, operator := s.guarded(auth.RoleTenant), s.guarded(auth.RoleOperator)
	either := s.guarded(auth.RoleTenant, auth.RoleOperator)
	r.With(s.limitStart).With(tenant...).Post("/v1/sessions", calls.CreateSession)
	r.Group(func(r chi.Router) {
		r.Use(limitTime(s.cfg.RequestTimeout))
		r.With(either...).Get("/v1/sessions", calls.ListSessions)
		r.With(either...).Get("/v1/sessions/{id}", calls.GetSession)
		r.With(either...).Delete("/v1/sessions/{id}", calls.EndSession)
		r.With(tenant...).Post("/v1/sessions/{id}/peers", calls.AddPeer)
		r.With(tenant...).Get("/v1/topics/{topic}", calls.GetTopic)
		r.With(tenant...).Post("/v1/topics/{topic}/messages", calls.Publish)
		r.With(tenant...).Post("/v1/users/{id}/messages", calls.SendToUser)
		r.With(operator...).Get("/v1/capacity", calls.GetCapacity)
		r.With(operator...).Get("/v1/workers", calls.ListWorkers)
		r.With(operator...).Get("/v1/workers/{id}", calls.GetWorker)
		r.With(operator...).Post("/v1/workers/{id}/drain", calls.DrainWorker)
		r.With(operator...).Delete("/v1/workers/{id}/drain", calls.UndrainWorker)
		r.With(operator...).Post("/v1/workers/{id}/shed", calls.ShedWorker)
	})
	// A renewal checks its own credential, a secret of one instance, and bounds its own time.
	r.With(s.wellFormedQuery).Post("/v1/workers/{id}/renewal", calls.RenewWorker)
	// Streams bound the time of what they do, and last.
	r.With(either...).Get("/v1/sessions/{id}/events", calls.SessionEvents)
	r.With(either...).Get("/v1/events", calls.Events)
	// Whoever follows a topic shows a tenant's key or a session token, in the query perhaps.
	r.With(s.crossOrigin, s.wellFormedQuery).Get("/v1/topics/{topic}/messages", calls.FollowTopic)
	r.With(s.crossOrigin).Options("/v1/topics/{topic}/messages", calls.PreflightFollowTopic)
	// A rejoin checks its own credential, which may be a tenant's key or a rejoin token, and may be held.
	r.With(s.crossOrigin, limitTime(s.cfg.RequestTimeout+2*s.cfg.RejoinHold)).Post("/v1/sessions/{id}/rejoin", calls.RejoinSession)
	r.With(s.crossOrigin).Options("/v1/sessions/{id}/rejoin", calls.PreflightRejoin)
}

// guarded is what stands before a call: first the caller's key, then the form of the query.
func (s *service) guarded(roles ...auth.Role) chi.Middlewares {
	return chi.Middlewares{s.only(roles...), s.wellFormedQuery}
}

func (s *service) serviceRoutes(r chi.Router, calls *wire.ServerInterfaceWrapper) {
	r.Get("/livez", calls.Livez)
	r.Get("/readyz", calls.Readyz)
	r.Get("/metrics", calls.Metrics)
	r.With(limitTime(s.cfg.RequestTimeout)).Get("/.well-known/jwks.json", calls.Jwks)
	r.Get("/openapi.yaml", calls.Openapi)
	r.Get("/docs", calls.Docs)
	r.Get("/docs/errors", calls.DocsErrors)
}

// pageRoutes mounts the pages and what the demo page calls, as far as they are configured.
func (s *service) pageRoutes(r chi.Router, calls *wire.ServerInterfaceWrapper) {
	if s.cfg.Web != nil {
		r.Get("/", calls.Dashboard)
		r.Get("/assets/*", s.asset)
	}
	if s.cfg.Demo == nil {
		return
	}
	if s.cfg.Web != nil {
		r.Get("/demo", calls.Demo)
	}
	r.Group(func(r chi.Router) {
		r.Use(s.sameMachine)
		r.With(s.limitStart).Post("/demo/sessions", calls.CreateDemoSession)
		r.With(limitTime(s.cfg.RequestTimeout)).Post("/demo/kill", calls.KillDemoWorker)
	})
}

// badParameter answers for a path or query parameter that the generated code could not read. Its error repeats the
// value, so only the name is used.
func (s *service) badParameter(w http.ResponseWriter, r *http.Request, err error) {
	var format *wire.InvalidParamFormatError
	var many *wire.TooManyValuesForParamError
	switch {
	case errors.As(err, &format) && format.ParamName == "limit":
		err = berth.Invalid("limit", "must be one integer from 1 to 200")
	case errors.As(err, &format):
		err = berth.Invalid(format.ParamName, "must be one valid value, percent-encoded")
	case errors.As(err, &many):
		err = berth.Invalid(many.ParamName, "must be given once")
	}
	s.fail(w, r, err)
}

// unrouted answers for a path that does not exist, or not with this method.
func (s *service) unrouted(w http.ResponseWriter, r *http.Request) {
	allowed := allowedMethods(chi.RouteContext(r.Context()).Routes, r.URL)
	if len(allowed) == 0 {
		s.notFound(w, r)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	s.refuse(w, r, berth.Refuse(berth.CodeMethodNotAllowed, "This path has other methods only; the Allow header lists them."))
}

func (s *service) notFound(w http.ResponseWriter, r *http.Request) {
	s.refuse(w, r, berth.Refuse(berth.CodeNotFound, "There is no such path; paths end without a slash. See /docs."))
}

// allowedMethods lists the methods that a path has.
func allowedMethods(routes chi.Routes, path *url.URL) []string {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodOptions} {
		if !routes.Match(chi.NewRouteContext(), method, path.EscapedPath()) {
			continue
		}
		allowed = append(allowed, method)
		if method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	return allowed
}

// Dashboard serves GET / by the pages that were configured.
func (s *service) Dashboard(w http.ResponseWriter, r *http.Request) { s.cfg.Web.ServeHTTP(w, r) }

// Demo serves GET /demo by the pages that were configured.
func (s *service) Demo(w http.ResponseWriter, r *http.Request) { s.cfg.Web.ServeHTTP(w, r) }

// asset serves a page's file. One that does not exist is a problem like every unknown path.
func (s *service) asset(w http.ResponseWriter, r *http.Request) {
	answer := &fileAnswer{ResponseWriter: w}
	s.cfg.Web.ServeHTTP(answer, r)
	if answer.absent {
		s.notFound(w, r)
	}
}

// fileAnswer passes an answer on, unless it is that there is no such file.
type fileAnswer struct {
	http.ResponseWriter

	absent bool
}

// WriteHeader implements http.ResponseWriter.
func (a *fileAnswer) WriteHeader(status int) {
	if a.absent = status == http.StatusNotFound; !a.absent {
		a.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (a *fileAnswer) Write(p []byte) (int, error) {
	if a.absent {
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}
