package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/api/internal/wire"
)

// quick makes streams fast enough for a test.
func quick(c *Config, _ *store) { c.StreamPoll = 2 * time.Millisecond }

// block is one block of a stream: an event, or what fills the silence.
type block struct {
	id, event, data, comment, retry string
}

// listener reads a stream as an EventSource would.
type listener struct {
	t        *testing.T
	response *http.Response
	lines    *bufio.Reader
	cancel   context.CancelFunc
	last     string // Last-Event-ID
}

// listen opens a stream that must be one. It is cut after ten seconds, or when the test ends.
func (r *rig) listen(path, key, last string) *listener {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	request := r.request(http.MethodGet, path, key, http.NoBody).WithContext(ctx)
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response, err := r.client.Do(request) //nolint:bodyclose // close does
	if err != nil {
		r.t.Fatalf("%s: %v", path, err)
	}
	l := &listener{t: r.t, response: response, lines: bufio.NewReader(response.Body), cancel: cancel, last: last}
	r.t.Cleanup(l.close)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(response.Body)
		r.t.Fatalf("%s: %d as %s: %s", path, response.StatusCode, response.Header.Get("Content-Type"), body)
	}
	checkAnswer(r.t, request, response, nil)
	if first := l.block(); first.retry == "" || first.event != "" {
		r.t.Errorf("%s begins with %+v", path, first)
	}
	return l
}

func (l *listener) close() {
	l.cancel()
	_ = l.response.Body.Close()
}

// next reads the next block; io.EOF means that the stream ended in good order.
func (l *listener) next() (b block, err error) {
	for {
		line, err := l.lines.ReadString('\n')
		if err != nil {
			return b, err
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			return b, nil
		}
		name, text, _ := strings.Cut(line, ":")
		text = strings.TrimPrefix(text, " ")
		switch name {
		case "":
			b.comment = text
		case "id":
			b.id, l.last = text, text
		case "event":
			b.event = text
		case "data":
			b.data += text
		case "retry":
			b.retry = text
		default:
			return b, fmt.Errorf("the line %q", line)
		}
	}
}

func (l *listener) block() block {
	l.t.Helper()
	b, err := l.next()
	if err != nil {
		l.t.Fatalf("stream: %v", err)
	}
	return b
}

// event reads the next event, past what fills the silence.
func (l *listener) event() (block, wire.Event) {
	l.t.Helper()
	for {
		b := l.block()
		if b.data == "" {
			continue
		}
		var event wire.Event
		if err := json.Unmarshal([]byte(b.data), &event); err != nil || event.Type != b.event || b.id == "" {
			l.t.Errorf("%+v is no event: %v", b, err)
		}
		return b, event
	}
}

// names reads so many events and says what they are, as in "created s-1".
func (l *listener) names(n int) string {
	l.t.Helper()
	names := make([]string, n)
	for i := range names {
		_, event := l.event()
		names[i] = event.Type + " " + event.SessionID
	}
	return strings.Join(names, ", ")
}

// ends reads on to the end of the stream and tells whether it came in good order, and how many events before it.
func (l *listener) ends() (events int, err error) {
	for {
		b, err := l.next()
		if err != nil {
			return events, err
		}
		if b.data != "" {
			events++
		}
	}
}
