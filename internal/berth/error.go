package berth

import (
	"errors"
	"fmt"
	"time"
)

// Code names a kind of failure. It survives the wire: the API sends it, SDKs decide on it.
type Code string

// The codes, each with its HTTP status in api.
const (
	CodeInvalidArgument    Code = "invalid_argument"
	CodeUnauthenticated    Code = "unauthenticated"
	CodeForbidden          Code = "forbidden"
	CodeNotFound           Code = "not_found"
	CodeMethodNotAllowed   Code = "method_not_allowed"
	CodeConflict           Code = "conflict"
	CodeSessionEnded       Code = "session_ended"
	CodeTooLarge           Code = "too_large"
	CodeUnsupportedMedia   Code = "unsupported_media_type"
	CodeAtCapacity         Code = "at_capacity"
	CodeConcurrentSessions Code = "concurrent_sessions"
	CodeStartRateLimited   Code = "session_start_rate_limited"
	CodeIdempotency        Code = "idempotency_mismatch"
	CodeUnavailable        Code = "unavailable"
	CodeInternal           Code = "internal"
)

// FieldError says what is wrong with one member of a request, and what would be right.
type FieldError struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

// Refusal is a failure that the caller is told about. Its Detail is safe to show: it holds no submitted value
// and no text of the database.
type Refusal struct {
	Code       Code
	Detail     string
	Fields     []FieldError  // for CodeInvalidArgument
	RetryAfter time.Duration // zero: waiting does not help, or nobody knows
	Retryable  bool          // the same request may succeed later
}

func (r *Refusal) Error() string {
	if len(r.Fields) > 0 {
		return fmt.Sprintf("%s: %s: %s", r.Code, r.Fields[0].Field, r.Fields[0].Reason)
	}
	return fmt.Sprintf("%s: %s", r.Code, r.Detail)
}

// Is makes errors.Is(err, &Refusal{Code: c}) compare codes.
func (r *Refusal) Is(target error) bool {
	t, ok := target.(*Refusal)
	return ok && t.Code == r.Code
}

// Refuse returns a Refusal that is not worth a retry.
func Refuse(code Code, detail string) *Refusal { return &Refusal{Code: code, Detail: detail} }

// Invalid returns the Refusal of a request whose field is wrong.
func Invalid(field, reason string) *Refusal {
	return &Refusal{
		Code:   CodeInvalidArgument,
		Detail: "The request is not valid.",
		Fields: []FieldError{{Field: field, Reason: reason}},
	}
}

// RefusalCode returns the code of the Refusal in err's chain, and "" when there is none.
func RefusalCode(err error) Code {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Code
	}
	return ""
}

// Sentinels that cross package borders.
var (
	// ErrUnavailable means that the database did not answer in time or at all: the outcome is unknown, and the
	// same request may be sent again.
	ErrUnavailable = errors.New("database unavailable")

	// ErrStale means that a write named a placement or an instance that is history. It affected nothing.
	ErrStale = errors.New("stale generation or instance")
)
