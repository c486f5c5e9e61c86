package telemetry

import (
	"context"
	"crypto/rand"
	"regexp"
)

// requestIDForm is what is accepted from a caller: short, and harmless in logs and headers.
var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$`)

// requestIDKey is the context key of the request id.
type requestIDKey struct{}

// NewRequestID returns a random request id of 26 letters and digits.
func NewRequestID() string { return rand.Text() }

// RequestIDFrom returns the id that a caller sent in X-Request-Id, or a new one if that is missing or
// not an id.
func RequestIDFrom(header string) string {
	if requestIDForm.MatchString(header) {
		return header
	}
	return NewRequestID()
}

// WithRequestID returns a context that carries a request id.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID returns the request id of the context, or "".
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
