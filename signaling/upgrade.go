package signaling

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/berthdev/berth/internal/berth"
)

const tokenPrefix = "token."

// handshake is what an upgrade request says.
type handshake struct {
	session  string // of the query
	token    string
	protocol bool // berth.v1 is on offer
}

func readHandshake(r *http.Request) handshake {
	hs := handshake{session: r.URL.Query().Get("session")}
	for _, header := range r.Header.Values("Sec-WebSocket-Protocol") {
		for offer := range strings.SplitSeq(header, ",") {
			offer = strings.TrimSpace(offer)
			if offer == Protocol {
				hs.protocol = true
			} else if token, ok := strings.CutPrefix(offer, tokenPrefix); ok && hs.token == "" {
				hs.token = token
			}
		}
	}
	return hs
}

// ServeHTTP serves GET /rtc. It refuses by status what costs least to refuse (rate, origin, draining, too many) and
// leaves the rest to close frames, because a browser's script cannot see a status.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.door.paced(w, r) {
		return
	}
	if !originAllowed(r, h.config.AllowedOrigins, h.config.AllowLoopback) {
		h.door.refuse(w, "origin", http.StatusForbidden, "this page's origin is not in BERTH_ALLOWED_ORIGINS\n")
		return
	}
	hs := readHandshake(r)
	if !h.servesHere(r.Context(), hs) {
		h.door.refuse(w, "draining", http.StatusServiceUnavailable, "draining, and the session is not placed here\n")
		return
	}
	if !h.door.enter(w) {
		return
	}
	socket, err := accept(w, r, h.config.Compression)
	if err != nil {
		h.door.leave()
		h.metrics.refused("handshake") // accept has answered
		return
	}
	h.start(context.Background(), socket, hs) //nolint:forbidigo // the request's would keep the request in memory
}

// servesHere is false while the worker drains and nothing shows that the session is placed here: the hub does not
// hold it and the token, whose audience is a worker, does not verify.
func (h *Hub) servesHere(ctx context.Context, hs handshake) bool {
	h.mu.Lock()
	draining := h.admission == AdmitOwned
	known := draining && h.holdsID(hs.session)
	h.mu.Unlock()
	if !draining || known {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, h.config.ConnectTimeout)
	defer cancel()
	grant, err := h.deps.Tokens.VerifyToken(ctx, hs.token)
	return err == nil && grant.SessionID == hs.session
}

// holdsID reports whether a session with this id is served, of whatever tenant. It is called with mu held.
func (h *Hub) holdsID(id string) bool {
	for _, s := range h.sessions {
		if s.id == id {
			return true
		}
	}
	return false
}

// start serves an upgraded connection in a goroutine of its own, which needs a smaller stack than the HTTP server's.
func (h *Hub) start(ctx context.Context, wire wire, hs handshake) {
	s := newSender(wire, limits{bytes: h.config.QueueBytes, age: h.config.QueueAge, grace: h.config.CloseGrace},
		h.config.Awake, h.crew.do, h.metrics.closed)
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		h.door.leave()
		wire.Cut() // too late for a close frame: nobody waits for this connection any more
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	h.open[s] = cancel
	h.tasks.Go(func() { h.admit(ctx, s, hs) })
	h.mu.Unlock()
}

// admit joins a connection and has it served in another goroutine with another context: what a join needs of stack and
// context would stay.
func (h *Hub) admit(ctx context.Context, s *sender, hs handshake) {
	var joined *peer
	defer func() {
		if joined == nil {
			h.forget(s)
		}
	}()
	defer h.contain(ctx, s)
	p, refused := h.join(ctx, s, hs)
	if refused != nil {
		if refused.err != nil {
			h.deps.Logger.WarnContext(ctx, "join refused", "code", int(refused.code), "err", refused.err)
		}
		s.close(refused.code, refused.reason) // the closing handshake reads what the client still sends
		return
	}
	joined = p
	serving := h.renew(ctx, s)
	h.tasks.Go(func() { h.serve(serving, p) })
}

// renew returns a context that ends when the connection's does, and has no memory of children.
func (h *Hub) renew(ctx context.Context, s *sender) context.Context {
	fresh, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.open[s]
	h.open[s] = cancel
	if h.stopped {
		cancel() // Close has given up what it found
	}
	last()
	return fresh
}

// serve runs a joined connection until it is gone.
func (h *Hub) serve(ctx context.Context, p *peer) {
	defer h.forget(p.sender)
	defer h.contain(ctx, p.sender)
	p.run(ctx)
}

// forget waits until the connection is gone and takes it off the books.
func (h *Hub) forget(s *sender) {
	s.release()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open[s]()
	delete(h.open, s)
	h.door.leave()
}

// contain ends one connection whose service panicked, and no other: what a client sends must not end a process that
// serves others.
func (h *Hub) contain(ctx context.Context, s *sender) {
	if r := recover(); r != nil {
		h.deps.Logger.ErrorContext(ctx, "connection panic contained", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		s.close(CloseTryLater, reasonInternal)
	}
}

// survive contains a panic that belongs to no connection.
func (h *Hub) survive(what string) {
	if r := recover(); r != nil {
		h.deps.Logger.Error("panic contained", "in", what, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
	}
}

// refuses reports why the hub does not let this placement in, as far as it knows without the database. It is called
// with mu held.
func (h *Hub) refuses(held berth.Held) *refusal {
	s := h.sessions[held.Key]
	_, ending := h.ending[held]
	switch {
	case ending:
		return &refusal{code: CloseEnded, reason: reasonEnded}
	case s != nil && s.held.Generation > held.Generation:
		return &refusal{code: CloseMoved, reason: reasonStale}
	case h.stopped:
		return &refusal{code: CloseRestart, reason: retryReason(0)}
	case h.admission == AdmitNone:
		return &refusal{code: CloseTryLater, reason: reasonNotReady}
	case h.admission == AdmitHeld && (s == nil || s.held != held):
		return &refusal{code: CloseTryLater, reason: reasonInDoubt}
	}
	return nil
}
