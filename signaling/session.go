package signaling

import (
	"maps"
	"slices"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// session is one placement that the worker serves. Hub.mu guards it; held, id, media and the timeouts never change.
type session struct {
	held         berth.Held
	id           string
	onWorkerLoss berth.OnWorkerLoss
	idleTimeout  time.Duration
	media        MediaSession
	call         *call // the media, if it is a call; else nil
	peers        map[string]*peer
	joined       time.Time // when a peer was attached last
	emptySince   time.Time // when the last peer went; meaningless while there are peers
	idle         *time.Timer
	expireAt     time.Time // by this process's clock
	expiry       *time.Timer
	fate         *Fate // how it left the hub, never to be served again; nil before
}

// Fate is what becomes of a session that leaves the hub.
type Fate struct {
	Ended   bool              // it is over: 4404. Otherwise it moved: 4410
	Reason  berth.EndedReason // for Ended
	Restart bool              // the worker stops or loses its right to all sessions: 1012
	Retry   time.Duration     // for Restart: each client is told to wait a random part of it

	// Planned: it moved because the worker drains. Connections of calls, whose media does not depend on them, are told to
	// come back in their turn (1012); media sessions move at once.
	Planned bool

	// AsOf is when the database was asked that said so; zero: it is certain. A call that somebody joined since stays.
	AsOf time.Time

	// Return: the placement stands as far as is known, so clients may come back to it. It counts as held for its idle
	// timeout, from when the hub lets them in again.
	Return bool
}

// refusal is the close frame that tells a client of it.
func (f Fate) refusal() *refusal {
	switch {
	case f.Restart:
		return &refusal{code: CloseRestart, reason: retryReason(f.Retry)}
	case f.Ended:
		return &refusal{code: CloseEnded, reason: endedReason(string(f.Reason))}
	default:
		return &refusal{code: CloseMoved, reason: reasonMoved}
	}
}

func (f Fate) close(p *peer) {
	last := f.refusal()
	if f.Planned && p.session.call != nil {
		last = &refusal{code: CloseRestart, reason: shedReason()}
	}
	if last.code == CloseMoved {
		p.sender.send(encode(movedFrame{Type: typeMoved}))
	}
	p.sender.close(last.code, last.reason)
}

// Drop takes one placement out of the hub, closes its peers and ends its media. It does nothing when the hub serves
// another generation of the session, or none. The caller has told the database, or was told by it.
func (h *Hub) Drop(held berth.Held, fate Fate) {
	h.mu.Lock()
	delete(h.ending, held)
	delete(h.absent, held)
	s := h.sessions[held.Key]
	if s == nil || s.held != held || s.call != nil && !fate.Ended && !fate.AsOf.IsZero() && s.joined.After(fate.AsOf) {
		h.mu.Unlock()
		return
	}
	h.remove(s, fate)
	h.mu.Unlock()
	s.finish()
}

// DropAll drops every session.
func (h *Hub) DropAll(fate Fate) {
	h.mu.Lock()
	all := slices.Collect(maps.Values(h.sessions))
	if !fate.Return {
		clear(h.ending)
		clear(h.absent)
	}
	for _, s := range all {
		h.remove(s, fate)
	}
	h.mu.Unlock()
	for _, s := range all {
		s.finish()
	}
}

// remove takes s off the books. It is called with mu held; finish follows without it.
func (h *Hub) remove(s *session, fate Fate) {
	delete(h.sessions, s.held.Key)
	s.fate = &fate
	if fate.Return {
		h.await(s.held, s.idleTimeout)
	}
	s.idle.Stop()
	s.expiry.Stop()
	h.metrics.sessions.Dec()
	h.metrics.connections.Sub(float64(len(s.peers)))
}

// finish closes the peers and the media of a removed session. Nobody changes its peers any more.
func (s *session) finish() {
	for _, p := range s.peers {
		s.fate.close(p)
	}
	s.media.Close()
}

// end removes s, if it is still served, and has the database told why. It is called without mu.
func (h *Hub) end(s *session, reason berth.EndedReason, still func() bool) {
	h.mu.Lock()
	if h.sessions[s.held.Key] != s || !still() {
		h.mu.Unlock()
		return
	}
	h.remove(s, Fate{Ended: true, Reason: reason})
	if s.call == nil { // a call is the database's to end: its other peer may be elsewhere
		h.ending[s.held] = reason
	}
	h.mu.Unlock()
	s.finish()
	h.settler.wake()
}

// attach makes p the connection of its peer. It returns the older connection that p replaces, if there is one, and
// a refusal when s was dropped meanwhile or the hub no longer admits it. Welcome and the word to the others are queued
// under the same lock, so every peer sees joins and leaves in one order.
func (h *Hub) attach(s *session, p *peer, others []berth.Peer, ice []ICEServer) (replaced *peer, refused *refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.fate != nil {
		return nil, s.fate.refusal()
	}
	if refused := h.refuses(s.held); refused != nil {
		return nil, refused
	}
	delete(h.absent, s.held)
	if h.sessions[s.held.Key] == nil {
		h.sessions[s.held.Key] = s
		h.metrics.sessions.Inc()
		h.arm(s)
	}
	replaced = s.peers[p.info.ID]
	s.peers[p.info.ID] = p
	s.joined = time.Now()
	s.idle.Stop()
	p.sender.send(encode(h.welcome(s, p, others, ice)))
	h.inbox.welcomed(p)
	if replaced == nil {
		h.metrics.connections.Inc()
		s.tellOthers(p, peerFrame{Type: typePeerConnected, PeerID: p.info.ID, Role: p.info.Role})
	}
	return replaced, nil
}

// welcome names the others as the hub knows them; those of a call, which may be elsewhere, as the database does.
func (h *Hub) welcome(s *session, p *peer, elsewhere []berth.Peer, ice []ICEServer) welcomeFrame {
	others := make([]peerInfo, 0, len(s.peers)+len(elsewhere))
	if s.call != nil {
		for _, other := range elsewhere {
			others = append(others, infoOf(other))
		}
	} else {
		for _, other := range s.peers {
			if other != p {
				others = append(others, infoOf(other.info))
			}
		}
	}
	if ice == nil {
		ice = []ICEServer{}
	}
	return welcomeFrame{
		Type: typeWelcome, Session: s.id, Generation: s.held.Generation, Peer: infoOf(p.info), Peers: others,
		ICEServers: ice, PingSeconds: h.config.PingInterval.Seconds(),
	}
}

// detach takes p off its session, unless the session is gone or a newer connection took p's place. A session
// without peers ends: at once when the last one left, otherwise after its idle timeout.
func (h *Hub) detach(s *session, p *peer, left bool) (detached bool) {
	h.mu.Lock()
	if h.sessions[s.held.Key] != s || s.peers[p.info.ID] != p {
		h.mu.Unlock()
		return false
	}
	delete(s.peers, p.info.ID)
	h.metrics.connections.Dec()
	reason := "lost"
	if left {
		reason = "left"
	}
	s.tellOthers(p, peerFrame{Type: typePeerDisconnected, PeerID: p.info.ID, Role: p.info.Role, Reason: reason})
	empty := len(s.peers) == 0
	if empty && s.call != nil { // whoever comes back opens it again
		h.remove(s, Fate{})
		h.mu.Unlock()
		s.finish()
		return true
	}
	if empty {
		s.emptySince = time.Now()
		s.idle.Reset(s.idleTimeout)
	}
	h.mu.Unlock()
	if empty && left {
		h.end(s, berth.EndedLeft, func() bool { return len(s.peers) == 0 })
	}
	return true
}

// tellOthers queues a frame to every peer but p; those of a call hear it by their topic. It is called with Hub.mu held.
func (s *session) tellOthers(p *peer, frame peerFrame) {
	if s.call != nil {
		return
	}
	data := encode(frame)
	for _, other := range s.peers {
		if other != p {
			other.sender.send(data)
		}
	}
}

// arm starts the timers of a session that was just added. It is called with mu held.
func (h *Hub) arm(s *session) {
	s.idle = time.AfterFunc(s.idleTimeout, func() { h.checkIdle(s) })
	s.expiry = time.AfterFunc(time.Until(s.expireAt), func() {
		h.end(s, berth.EndedExpired, func() bool { return true })
	})
}

// checkIdle ends s when nobody was connected for its idle timeout, counted from the last waking.
func (h *Hub) checkIdle(s *session) {
	h.end(s, berth.EndedIdle, func() bool {
		if len(s.peers) > 0 {
			return false
		}
		if wait := remaining(s.emptySince, s.idleTimeout, h.config.Awake()); wait > 0 {
			s.idle.Reset(wait)
			return false
		}
		return true
	})
}
