package storm

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// what happened to a client.
type what int

const (
	lost    what = iota // its connection ended
	dialed              // it asked a worker for a handshake
	asked               // it asked an API for its place: a rejoin
	refused             // a worker closed the connection before its welcome
	back                // it was welcomed
	over                // it gave up
)

// lostCode is that of a connection that ended without a close frame, RFC 6455 section 7.4.1.
const lostCode = 1006

// event is one thing that happened to a client.
type event struct {
	what what
	at   time.Time // of requests: when they were answered
	made time.Time // a request
	// code is the close code of what was lost or refused, and the status of requests; zero: there was no answer.
	code int
	why  string // a connection broke without a close frame
}

// trace is what happened to one client: the SDK tells it by its requests, and by what it logs. It is safe for concurrent use.
type trace struct {
	transport http.RoundTripper

	mu     sync.Mutex // guards the rest
	events []event
	open   bool
}

func (t *trace) add(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, e)
}

// since returns what happened from a moment on.
func (t *trace) since(from time.Time) []event {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, e := range t.events {
		if !e.at.Before(from) {
			return t.events[i:len(t.events):len(t.events)]
		}
	}
	return nil
}

// returned says whether the client was welcomed since a moment, and is still connected.
func (t *trace) returned(from time.Time) bool {
	for _, e := range t.since(from) {
		if e.what == back {
			return t.stands()
		}
	}
	return false
}

// stands says whether the client is connected.
func (t *trace) stands() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open
}

// RoundTrip implements http.RoundTripper.
func (t *trace) RoundTrip(request *http.Request) (*http.Response, error) {
	made := time.Now()
	response, err := t.transport.RoundTrip(request)
	e := event{what: dialed, at: time.Now(), made: made}
	if strings.HasSuffix(request.URL.Path, "/rejoin") {
		e.what = asked
	}
	if err == nil {
		e.code = response.StatusCode
	}
	t.add(e)
	return response, err
}

// Enabled implements slog.Handler.
func (t *trace) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler: the lines of a connection's life become events.
func (t *trace) Handle(_ context.Context, r slog.Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := event{at: time.Now()}
	switch r.Message {
	case "connected":
		e.what, t.open = back, true
	case "connection over":
		e.what, t.open = over, false
	case "link lost":
		code, why := reason(r)
		e.what, e.code = refused, code
		switch {
		case t.open:
			e.what, t.open = lost, false
			if e.code == lostCode {
				e.why = why
			}
		case e.code == 0 || e.code == lostCode:
			return nil // a request that failed, which is an event already
		}
	default:
		return nil
	}
	t.events = append(t.events, e)
	return nil
}

// WithAttrs implements slog.Handler.
func (t *trace) WithAttrs([]slog.Attr) slog.Handler { return t }

// WithGroup implements slog.Handler.
func (t *trace) WithGroup(string) slog.Handler { return t }

// reason is by which close code a link was lost, as the client sees it, and why; 0: it was none yet.
func reason(r slog.Record) (code int, why string) {
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "code":
			code = int(a.Value.Int64())
		case "err":
			why = a.Value.String()
		}
		return true
	})
	return code, why
}
