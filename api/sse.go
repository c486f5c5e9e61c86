package api

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

const (
	// streamRetry is how long an EventSource waits before it connects again, up to twice as long: streams that ended
	// together should not return together.
	streamRetry = 2 * time.Second
	// lastWriteTimeout bounds how long the end of a stream may take to be sent.
	lastWriteTimeout = time.Second
)

// sse writes server-sent events (WHATWG HTML section 9.2) to one client. Its request's goroutine owns it.
type sse struct {
	w          http.ResponseWriter
	connection *http.ResponseController
	timeout    time.Duration // for the client to read what was sent
	keepAlive  time.Duration // the silence that is filled
	silence    *time.Ticker
}

func (s *service) newSSE(w http.ResponseWriter) sse {
	return sse{w: w, connection: http.NewResponseController(w), timeout: s.cfg.StreamWriteTimeout, keepAlive: s.cfg.StreamKeepAlive}
}

// head answers that a stream follows, and reports whether the client wants it. If so, the caller calls end.
func (s *sse) head(r *http.Request) (wanted bool) {
	header := s.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // nginx would keep events until it has enough of them
	s.w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return false
	}
	_ = s.connection.SetReadDeadline(time.Time{}) // the server's is for requests; a test's writer has none
	s.silence = time.NewTicker(s.keepAlive)
	return true
}

// end lets the answer end, which a client can tell from a broken connection.
func (s *sse) end() {
	s.silence.Stop()
	s.setWriteDeadline(lastWriteTimeout)
}

// writeRetry appends when the client is to return, in a block that the caller goes on with.
func writeRetry(text *bytes.Buffer) {
	fmt.Fprintf(text, "retry: %d\n", (streamRetry + rand.N(streamRetry)).Milliseconds())
}

// write ends the silence. It sends text within a deadline of its own, so that a client that does not read is cut. Stop
// sets the deadline to now after it ended the context, so the context is looked at after the deadline was set.
func (s *sse) write(ctx context.Context, text []byte) error {
	s.setWriteDeadline(s.timeout)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, err := s.w.Write(text); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	s.silence.Reset(s.keepAlive)
	return s.connection.Flush()
}

// setWriteDeadline bounds how long the client may take. A test's writer has no deadlines, and no client to wait for.
func (s *sse) setWriteDeadline(timeout time.Duration) {
	_ = s.connection.SetWriteDeadline(time.Now().Add(timeout))
}
