package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/telemetry"
)

// statusClientGone is logged for a request whose caller went away before the answer. Nobody receives it.
const statusClientGone = 499

// Defaults of Retry-After for refusals that pass but carry no estimate.
const (
	retryCapacity    = 2 * time.Second
	retryUnavailable = time.Second
	maxRetryJitter   = 10  // seconds
	maxRetryEstimate = 300 // seconds; nobody knows how a system stands after that
)

// fail answers err. It is the only place where an error becomes a status; it logs what only we should know.
func (s *service) fail(w http.ResponseWriter, r *http.Request, err error) {
	refusal := s.refusal(r, err)
	if refusal == nil {
		w.WriteHeader(statusClientGone)
		return
	}
	s.refuse(w, r, refusal)
}

// refusal turns any error into what the caller is told; nil means that there is no caller any more.
func (s *service) refusal(r *http.Request, err error) *berth.Refusal {
	ctx := r.Context()
	var refusal *berth.Refusal
	switch {
	case errors.As(err, &refusal):
		return refusal
	case errors.Is(ctx.Err(), context.Canceled): // whatever went wrong, it did because the caller left
		s.log.DebugContext(ctx, "caller left", slog.String("route", r.Pattern), slog.Any("err", err))
		return nil
	case errors.Is(err, auth.ErrUnauthenticated), errors.Is(err, auth.ErrTokenInvalid):
		return berth.Refuse(berth.CodeUnauthenticated, "The key or token is unknown, malformed or revoked.")
	case isUnavailable(err):
		s.log.WarnContext(ctx, "database unavailable", slog.String("route", r.Pattern), slog.Any("err", err))
		return unavailable("The database did not answer in time, so a change may or may not be made. Ask again.")
	default:
		s.log.ErrorContext(ctx, "request failed", slog.String("route", r.Pattern), slog.Any("err", err))
		return errInternal()
	}
}

func errInternal() *berth.Refusal {
	return berth.Refuse(berth.CodeInternal, "This is a bug in Berth. Please report it with the request id.")
}

// isUnavailable tells whether the same request may succeed once the database answers, or signing keys are there.
func isUnavailable(err error) bool {
	return errors.Is(err, berth.ErrUnavailable) || errors.Is(err, auth.ErrUnavailable) || errors.Is(err, auth.ErrNoSigningKey) ||
		errors.Is(err, context.DeadlineExceeded)
}

// unavailable is the refusal of a request that may well succeed in a moment, here or at another replica.
func unavailable(detail string) *berth.Refusal {
	return &berth.Refusal{Code: berth.CodeUnavailable, Detail: detail, RetryAfter: retryUnavailable, Retryable: true}
}

// refuse writes a refusal as application/problem+json (RFC 9457).
func (s *service) refuse(w http.ResponseWriter, r *http.Request, refusal *berth.Refusal) {
	kind := problemKind(refusal.Code)
	header := w.Header()
	if seconds := retryAfter(refusal); seconds > 0 {
		header.Set("Retry-After", strconv.Itoa(seconds))
	}
	if refusal.Code == berth.CodeUnauthenticated {
		header.Set("WWW-Authenticate", `Bearer realm="berth"`)
	}
	if refusal.Code == berth.CodeTooLarge {
		header.Set("Connection", "close") // the rest of the body is not worth reading
	}
	id := telemetry.RequestID(r.Context())
	problem := wire.Problem{
		Type:      s.publicURL + "/docs/errors#" + string(kind.code),
		Title:     kind.title,
		Status:    kind.status,
		Detail:    detail(refusal),
		Instance:  "urn:berth:request:" + id,
		Code:      wire.Code(kind.code),
		RequestID: id,
		Retryable: refusal.Retryable || kind.passes,
	}
	if len(refusal.Fields) > 0 {
		problem.Errors = fieldErrors(refusal.Fields)
	}
	s.write(w, r, "application/problem+json", kind.status, problem)
}

// detail is the sentence of a refusal: the first field that is wrong, where there is one.
func detail(refusal *berth.Refusal) string {
	if len(refusal.Fields) == 0 {
		return refusal.Detail
	}
	return refusal.Fields[0].Field + ": " + refusal.Fields[0].Reason
}

func fieldErrors(fields []berth.FieldError) *[]wire.FieldError {
	wires := make([]wire.FieldError, len(fields))
	for i, f := range fields {
		wires[i] = wire.FieldError(f)
	}
	return &wires
}

// retryAfter is the number of seconds for Retry-After, 0 for none. It is never less than what the refusal says, and
// random above that, so that callers who were refused together do not return together. Only what was estimated is cut
// to maxRetryEstimate.
func retryAfter(refusal *berth.Refusal) int {
	wait := refusal.RetryAfter
	if wait <= 0 {
		switch refusal.Code {
		case berth.CodeAtCapacity:
			wait = retryCapacity
		case berth.CodeUnavailable:
			wait = retryUnavailable
		default:
			return 0
		}
	}
	seconds := int((wait + time.Second - 1) / time.Second)
	jitter := min(seconds, maxRetryJitter)
	if refusal.Code == berth.CodeAtCapacity {
		seconds = min(seconds, maxRetryEstimate-jitter)
	}
	return seconds + rand.IntN(jitter+1)
}

// answer writes value as JSON, or the problem that err is.
func (s *service) answer(w http.ResponseWriter, r *http.Request, status int, value any, err error) {
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.write(w, r, "application/json", status, value)
}

// write sends one JSON document. Answers are small, so they are encoded before the status is sent.
func (s *service) write(w http.ResponseWriter, r *http.Request, contentType string, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		s.log.ErrorContext(r.Context(), "answer not encoded", slog.String("route", r.Pattern), slog.Any("err", err))
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	// An error here is a caller that went away; the access log has the bytes that were sent.
	_, _ = w.Write(append(body, '\n'))
}
