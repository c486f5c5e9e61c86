package berth

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// Code names a kind of refusal. New codes may appear: treat an unknown one by its Status and Retryable.
type Code string

// The codes of the API.
const (
	CodeInvalidArgument         Code = "invalid_argument"           // 400; Fields says what is wrong
	CodeUnauthenticated         Code = "unauthenticated"            // 401
	CodeForbidden               Code = "forbidden"                  // 403
	CodeNotFound                Code = "not_found"                  // 404
	CodeMethodNotAllowed        Code = "method_not_allowed"         // 405
	CodeConflict                Code = "conflict"                   // 409
	CodeSessionEnded            Code = "session_ended"              // 410
	CodeTooLarge                Code = "too_large"                  // 413
	CodeUnsupportedMedia        Code = "unsupported_media_type"     // 415
	CodeIdempotencyMismatch     Code = "idempotency_mismatch"       // 422
	CodeConcurrentSessions      Code = "concurrent_sessions"        // 429; waiting does not help until a session ends
	CodeSessionStartRateLimited Code = "session_start_rate_limited" // 429
	CodeAtCapacity              Code = "at_capacity"                // 503; no worker has a free slot
	CodeUnavailable             Code = "unavailable"                // 503
	CodeInternal                Code = "internal"                   // 500; a bug, report RequestID
)

// FieldError says what is wrong with one member of a request.
type FieldError struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

// Error is a refusal by the API, or by this package before anything was sent (Status 0). It follows RFC 9457.
type Error struct {
	Status     int           // HTTP status; 0: refused by the client
	Code       Code          // empty: the answer did not come from Berth, but from a proxy on the way
	Detail     string        // for people
	Fields     []FieldError  // for CodeInvalidArgument
	RequestID  string        // finds the request in the API's logs
	Retryable  bool          // the same request may succeed later
	RetryAfter time.Duration // the server's wish; 0: it named no time
}

// Error names code, status, detail and the first wrong field.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("berth: ")
	switch {
	case e.Code != "" && e.Status != 0:
		fmt.Fprintf(&b, "%s (%d)", e.Code, e.Status)
	case e.Code != "":
		b.WriteString(string(e.Code))
	default:
		fmt.Fprintf(&b, "unexpected HTTP status %d", e.Status)
	}
	if len(e.Fields) > 0 {
		fmt.Fprintf(&b, ": %s: %s", e.Fields[0].Field, e.Fields[0].Reason)
	} else if e.Detail != "" {
		b.WriteString(": " + strings.TrimSuffix(e.Detail, "."))
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, ", retry after %s", e.RetryAfter)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " [request %s]", e.RequestID)
	}
	return b.String()
}

// ErrorCode returns the code of the *Error in err's chain, and "" when there is none.
func ErrorCode(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// IsNotFound reports whether the session or worker is unknown to this key.
func IsNotFound(err error) bool { return ErrorCode(err) == CodeNotFound }

// IsEnded reports whether the session has ended: no retry or rejoin brings it back.
func IsEnded(err error) bool {
	return ErrorCode(err) == CodeSessionEnded || errors.Is(err, ErrSessionEnded)
}

// IsAtCapacity reports whether no worker had a free slot; RetryAfter says when to ask again.
func IsAtCapacity(err error) bool { return ErrorCode(err) == CodeAtCapacity }

// IsConcurrentSessions reports whether the tenant has as many live sessions as it may have.
func IsConcurrentSessions(err error) bool { return ErrorCode(err) == CodeConcurrentSessions }

// IsRetryable reports whether the same call may succeed later: the API said so, or it could not be reached.
func IsRetryable(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Retryable
	}
	_, ok := errors.AsType[*transportError](err)
	return ok
}

// RetryAfter returns how long the server asked to wait, and false when it named no time.
func RetryAfter(err error) (time.Duration, bool) {
	if e, ok := errors.AsType[*Error](err); ok && e.RetryAfter > 0 {
		return e.RetryAfter, true
	}
	return 0, false
}

// transportError is a call that got no answer: the request may or may not have been carried out.
type transportError struct{ err error }

func (e *transportError) Error() string { return e.err.Error() }
func (e *transportError) Unwrap() error { return e.err }

// invalid is the error of an argument that is refused before anything is sent.
func invalid(field, reason string) *Error {
	return &Error{
		Code:   CodeInvalidArgument,
		Detail: "The request is not valid.",
		Fields: []FieldError{{Field: field, Reason: reason}},
	}
}

// problem is the body of a refusal, RFC 9457 section 3.
type problem struct {
	Title     string       `json:"title"`
	Detail    string       `json:"detail"`
	Code      Code         `json:"code"`
	RequestID string       `json:"request_id"`
	Retryable *bool        `json:"retryable"`
	Errors    []FieldError `json:"errors"`
}

// maxProblemBytes is more than any refusal of Berth needs; a proxy's error page may be longer and is not read.
const maxProblemBytes = 64 << 10

// readError turns an answer that is not a success into an *Error. A body that is no problem document is ignored: the
// status is enough.
func readError(resp *http.Response, now time.Time) *Error {
	e := &Error{Status: resp.StatusCode, RequestID: resp.Header.Get("X-Request-Id")}
	e.Retryable = retryableStatus(resp.StatusCode)
	e.RetryAfter, _ = parseRetryAfter(resp.Header, now)
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || (media != "application/problem+json" && media != "application/json") {
		return e
	}
	var p problem
	if json.NewDecoder(io.LimitReader(resp.Body, maxProblemBytes)).Decode(&p) != nil {
		return e
	}
	e.Code, e.Fields = p.Code, p.Errors
	e.Detail = p.Detail
	if e.Detail == "" {
		e.Detail = p.Title
	}
	if p.RequestID != "" {
		e.RequestID = p.RequestID
	}
	if p.Retryable != nil {
		e.Retryable = *p.Retryable
	}
	return e
}
