package signaling

import (
	"context"
	"fmt"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// join admits a connection: token, what the hub knows, the database, then a place in the session. On success the
// welcome is queued.
func (h *Hub) join(ctx context.Context, s *sender, hs handshake) (*peer, *refusal) {
	ctx, cancel := context.WithTimeout(ctx, h.config.JoinTimeout)
	defer cancel()
	grant, refused := h.verify(ctx, hs)
	if refused != nil {
		return nil, refused
	}
	leave, err := h.joins.enter(ctx, grant.Key)
	if err != nil {
		return nil, &refusal{code: CloseTryLater, reason: reasonUnavailable}
	}
	defer leave()
	h.mu.Lock()
	refused = h.refuses(grant.Held)
	h.mu.Unlock()
	if refused != nil {
		return nil, refused
	}
	return h.connect(ctx, s, grant)
}

func (h *Hub) verify(ctx context.Context, hs handshake) (Grant, *refusal) {
	if !hs.protocol {
		return Grant{}, &refusal{code: CloseBad, reason: reasonNoProtocol}
	}
	if hs.token == "" {
		return Grant{}, &refusal{code: CloseToken, reason: reasonNoToken}
	}
	grant, err := h.deps.Tokens.VerifyToken(ctx, hs.token)
	if err != nil {
		return Grant{}, tokenRefusal(err)
	}
	if grant.SessionID != hs.session {
		return Grant{}, &refusal{code: CloseToken, reason: reasonOtherSession}
	}
	return grant, nil
}

// connect writes the peer's connection to the database and attaches it. The session counts as held from before the
// write, so that no renewal in between reports less than the database may know, and for a while longer when the client
// is told to try again: its session must not be ended as forgotten before it does.
func (h *Hub) connect(ctx context.Context, s *sender, grant Grant) (*peer, *refusal) {
	p := &peer{hub: h, sender: s, info: grant.Peer, grant: grant, lastHeard: time.Now()}
	p.info.ConnectionID = berth.NewID("c")
	h.hold(grant.Held, 1)
	defer h.hold(grant.Held, -1)
	if p.info.User != "" {
		if err := h.inbox.open(ctx, p); err != nil {
			return nil, &refusal{code: CloseTryLater, reason: reasonUnavailable, err: err}
		}
	}
	connected, err := h.write(ctx, grant.Held, p.info)
	refused := connectRefusal(err)
	if refused == nil {
		refused = h.enroll(ctx, p, grant, connected)
	}
	if refused == nil {
		return p, nil
	}
	p.closeInbox()
	h.settler.disconnect(p.gone(grant.Held)) // affects nothing if the database did not take it
	if refused.code == CloseTryLater {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.await(grant.Held, h.config.DoubtHold)
	}
	return nil, refused
}

func (h *Hub) write(ctx context.Context, held berth.Held, info berth.Peer) (berth.Connected, error) {
	ctx, cancel := context.WithTimeout(ctx, h.config.ConnectTimeout)
	defer cancel()
	return h.deps.Directory.ConnectPeer(ctx, held, info)
}

// enroll finds or makes the session of a peer that the database admitted, and attaches the peer.
func (h *Hub) enroll(ctx context.Context, p *peer, grant Grant, connected berth.Connected) *refusal {
	one, err := h.sessionFor(ctx, grant.Held, connected)
	if err != nil {
		return mediaRefusal(err)
	}
	p.session = one
	replaced, refused := h.attach(one, p, connected.Peers, h.config.ICEServers(grant))
	if refused != nil {
		h.closeUnused(one)
		return refused
	}
	if replaced != nil {
		replaced.sender.close(CloseReplaced, reasonReplaced)
	}
	if one.call == nil {
		return nil
	}
	if err := one.call.enlist(ctx, p, connected); err != nil {
		p.media.Close()
		h.detach(one, p, false)
		return mediaRefusal(err)
	}
	return nil
}

// sessionFor returns the session at this generation, or a new one that attach will put on the books. A session at an
// older generation is history and dropped first. Joins of one session do not overlap, so nobody else makes one.
func (h *Hub) sessionFor(ctx context.Context, held berth.Held, connected berth.Connected) (*session, error) {
	h.mu.Lock()
	s := h.sessions[held.Key]
	h.mu.Unlock()
	if s != nil && s.held == held {
		return s, nil
	}
	if s != nil {
		h.Drop(s.held, Fate{})
	}
	media, call, err := h.openMedia(ctx, held, connected.Session)
	if err != nil {
		return nil, fmt.Errorf("open media of session %s: %w", connected.Session.ID, err)
	}
	return &session{
		held:         held,
		id:           connected.Session.ID,
		onWorkerLoss: connected.Session.OnWorkerLoss,
		idleTimeout:  connected.Session.IdleTimeout,
		media:        media,
		call:         call,
		peers:        map[string]*peer{},
		expireAt:     time.Now().Add(connected.Session.ExpiresAt.Sub(connected.At)),
	}, nil
}

// openMedia starts the media side of a session: the engine's, or a call's relay, which is returned also by its own type.
func (h *Hub) openMedia(ctx context.Context, held berth.Held, session berth.Session) (MediaSession, *call, error) {
	if session.Kind != berth.KindCall {
		media, err := h.deps.Media.Open(ctx, session)
		return media, nil, err
	}
	c, err := h.openCall(ctx, held)
	return c, c, err
}

// closeUnused ends the media of a session that was made but never put on the books.
func (h *Hub) closeUnused(s *session) {
	h.mu.Lock()
	unused := s.fate == nil && h.sessions[s.held.Key] != s
	h.mu.Unlock()
	if unused {
		s.media.Close()
	}
}
