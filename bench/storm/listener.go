package storm

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	sdk "github.com/berthdev/berth/sdk/go"
)

// latency is how long a message took from its publisher to a client that heard it, or an answer from its worker.
type latency struct {
	At   time.Time     `json:"at"` // when it was published, or asked for
	Took time.Duration `json:"took_ns"`
}

// hearing is what one client heard of its topic.
type hearing struct {
	epoch time.Time // that messages count from; zero: how long they take is not noted

	mu        sync.Mutex // guards the rest
	offset    int64
	since     time.Time // when the last subscribed frame came; zero: none did
	messages  int
	missed    int // offsets that never came, and those that came twice
	partial   int // resumes that lost something, by the server's own word
	latencies []latency
}

func (h *hearing) subscribed(s sdk.Subscribed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = time.Now()
	switch {
	case s.Err != nil, s.Recovered == sdk.RecoveredPart, s.Recovered == sdk.RecoveredNone:
		h.partial++
		h.offset = s.Offset
	case s.Recovered == "":
		h.offset = s.Offset
	}
}

// message checks that a topic's offsets are dense, over all connections.
func (h *hearing) message(m sdk.Message) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.Offset != h.offset+1 {
		h.missed += max(1, int(m.Offset-h.offset-1))
	}
	h.offset = m.Offset
	h.messages++
	if h.epoch.IsZero() {
		return
	}
	if sent, err := strconv.ParseInt(string(m.Data), 10, 64); err == nil {
		at := h.epoch.Add(time.Duration(sent))
		h.latencies = append(h.latencies, latency{at, now.Sub(at)})
	}
}

// last is the offset of the newest message that was heard.
func (h *hearing) last() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.offset
}

// expect counts as missed what should have come by now.
func (h *hearing) expect(offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.missed += max(0, int(offset-h.offset))
}

// resumed says whether the client was told since a moment that it hears its topic.
func (h *hearing) resumed(from time.Time) bool { return h.told().After(from) }

// told is when the client was last told that it hears its topic.
func (h *hearing) told() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since
}

// between picks those that began in a span, in milliseconds.
func between(latencies []latency, from, until time.Time) (ms []float64) {
	for _, l := range latencies {
		if l.At.After(from) && l.At.Before(until) {
			ms = append(ms, float64(l.Took)/float64(time.Millisecond))
		}
	}
	return ms
}

// listener is a client: the Go SDK's connection to one seat of a call, without media, that listens to one topic.
type listener struct {
	trace trace
	heard hearing

	conn *sdk.Conn
	home string // the worker where it was when the case began
}

// manner is how clients behave that is not the SDK's own choice.
type manner struct {
	random func() float64 // which part of a backoff's window they wait; nil: any
	aged   bool           // they take their tokens for expired once they lost their connection
}

// listen connects a client and returns once it was welcomed.
func listen(ctx context.Context, transport http.RoundTripper, epoch time.Time, p *sdk.Placement, topic string, m manner) (*listener, error) {
	l := &listener{trace: trace{transport: transport}, heard: hearing{epoch: epoch}, home: p.Owner.WorkerID}
	client, err := sdk.New(sdk.Config{HTTPClient: &http.Client{Transport: &l.trace}, Logger: slog.New(&l.trace), Random: m.random})
	if err != nil {
		return nil, err
	}
	seat := *p
	if m.aged {
		seat.TokenExpiresAt = time.Now()
	}
	l.conn, err = client.Connect(ctx, &seat, sdk.ConnectConfig{
		SignalingOnly: true, Topics: []string{topic}, OnMessage: l.heard.message, OnSubscribed: l.heard.subscribed,
	})
	return l, err
}

// worker is where the client belongs now.
func (l *listener) worker() string { return l.conn.Placement().Owner.WorkerID }

// settled says whether the client is connected and heard that it listens.
func (l *listener) settled() bool { return l.trace.stands() && l.heard.resumed(time.Time{}) }
