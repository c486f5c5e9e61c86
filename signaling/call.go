package signaling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

const (
	// publishTimeout bounds the word that a peer came or went.
	publishTimeout = 2 * time.Second
	// maxCandidate is the longest candidate that is relayed, in bytes.
	maxCandidate = 4 << 10
	// maxKept bounds the candidates that are kept with an offer until it is answered.
	maxKept = 64
)

// call is the MediaSession of a call: what one peer sends goes by the call's topic to the other, on whatever worker that
// is. Peers on this worker hear each other the same way, so that there is one order.
type call struct {
	hub   *Hub
	held  berth.Held
	topic *backplane.Subscription

	// What the call does beside its peers, until end.
	lost  func()                                                     // has it recover
	later func(p *callPeer, announce bool, offer *berth.CallMessage) // has p say again what a peer that came did not hear
	end   context.CancelFunc

	mu         sync.Mutex // guards the rest, and what is kept of each peer; senders may be called under it
	peers      map[string]*callPeer
	remote     map[string]string // the connection of each peer of the call that was heard of last
	gone       map[string]string // the connection of each peer that was said to be gone last
	behind     bool              // messages were lost since recover last looked
	recovering bool
}

// openCall subscribes to a call's topic.
func (h *Hub) openCall(ctx context.Context, held berth.Held) (*call, error) {
	if err := h.inbox.hold(ctx); err != nil {
		return nil, err
	}
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	c := &call{hub: h, held: held, end: end, peers: map[string]*callPeer{}, remote: map[string]string{}, gone: map[string]string{}}
	c.lost = func() { c.fallBehind(living) }
	topic, err := h.deps.Topics.Subscribe(ctx, berth.CallTopic(held.Key), nil, func(m backplane.Message) {
		switch {
		case m.Opening:
		case m.Notice():
			c.lost()
		default:
			c.deliver(m.Data)
		}
	})
	if err != nil {
		end()
		h.inbox.release()
		return nil, fmt.Errorf("subscribe to the call: %w", err)
	}
	c.topic = topic
	c.later = func(p *callPeer, announce bool, offer *berth.CallMessage) {
		h.beside(func() {
			if p.sayAgain(living, announce, offer) != nil {
				c.lost()
			}
		})
	}
	return c, nil
}

// AddPeer implements MediaSession. The call speaks through the peer's sender and has no events of its own.
func (c *call) AddPeer(context.Context, berth.Peer, PeerEvents) (MediaPeer, error) {
	return nil, ErrMediaClosed // enlist came first, unless the connection was replaced
}

// enlist makes p hear the call, and tells the other peer that it came.
func (c *call) enlist(ctx context.Context, p *peer, connected berth.Connected) error {
	again, at := connected.Again, connected.At.UnixMicro()
	member := &callPeer{call: c, peer: p, again: again, returned: again, at: at, told: map[string]string{}}
	c.mu.Lock()
	c.peers[p.info.ID] = member
	for _, other := range connected.Peers {
		member.told[other.ID] = other.ConnectionID // by its welcome
		if c.remote[other.ID] == "" {
			c.remote[other.ID] = other.ConnectionID // what was heard since is newer
		}
	}
	c.mu.Unlock()
	p.media = member
	return member.announce(ctx)
}

// announce tells the other peer that this one is connected.
func (p *callPeer) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	info := p.peer.info
	p.call.mu.Lock()
	saw := slices.Collect(maps.Values(p.told))
	p.call.mu.Unlock()
	return p.call.publish(ctx, berth.CallMessage{
		Type: berth.CallConnected, PeerID: info.ID, Role: info.Role, Connection: info.ConnectionID, Again: p.returned, At: p.at,
		Saw: saw,
	})
}

// Close implements MediaSession.
func (c *call) Close() {
	c.end()
	c.topic.Unsubscribe()
	c.hub.beside(c.hub.inbox.release)
}

func (c *call) publish(ctx context.Context, m berth.CallMessage) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode call message: %w", err)
	}
	return c.hub.say(ctx, berth.CallTopic(c.held.Key), data)
}

func (h *Hub) say(ctx context.Context, topic string, data []byte) error {
	_, err := h.deps.Topics.Publish(ctx, backplane.Outgoing{Topic: topic, Data: data})
	return err
}

// deliver hands one message of the topic to the peers here that it is for.
func (c *call) deliver(data []byte) {
	defer c.hub.survive("call message")
	var m berth.CallMessage
	if err := json.Unmarshal(data, &m); err != nil {
		c.hub.deps.Logger.Warn("call message not understood", "session_key", int64(c.held.Key), "err", err)
		return
	}
	c.take(m)
}

// take tells the peers here of one message.
func (c *call) take(m berth.CallMessage) {
	if m.Type == berth.CallDisconnected && m.Reason == berth.CallLeft {
		defer c.hub.Drop(c.held, Fate{Ended: true, Reason: berth.EndedLeft})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.news(m) {
		return
	}
	for id, member := range c.peers {
		if id != m.PeerID {
			member.hear(m)
		} else if m.Type == berth.CallConnected && m.Connection != member.peer.info.ConnectionID && m.At > member.at {
			member.peer.sender.close(CloseReplaced, reasonReplaced) // it came back elsewhere
		}
	}
}

// news follows who is connected. That a connection is gone is no news when it was said before, or when another took its
// place: losses are told by whoever noticed and, to be certain, once more by the reaper. It is called with mu held.
func (c *call) news(m berth.CallMessage) bool {
	switch {
	case m.Type == berth.CallConnected:
		c.remote[m.PeerID] = m.Connection
	case m.Type == berth.CallDisconnected && m.Connection != "":
		if c.gone[m.PeerID] == m.Connection || c.remote[m.PeerID] != "" && c.remote[m.PeerID] != m.Connection {
			return false
		}
		c.gone[m.PeerID] = m.Connection
	}
	return true
}

// callPeer is the MediaPeer of one connection to a call.
type callPeer struct {
	call     *call
	peer     *peer
	again    bool              // its next offer is that of a peer that came back
	returned bool              // it was connected to the call before
	at       int64             // when it connected, by the database's clock
	told     map[string]string // the connections of others that the client knows of; guarded by call.mu

	// The last offer, with its candidates, until the other peer answered it: that one may not be there yet. call.mu
	// guards them.
	offer *berth.CallMessage
	kept  []berth.CallMessage
}

// maxRelayed is the longest description that is relayed.
const maxRelayed = 60 << 10

// errTooLong refuses one that is longer.
var errTooLong = &MediaError{Code: MediaBadSDP, Message: "the description is longer than 61440 bytes, which no call relays"}

// Offer implements MediaPeer. The answer is the other peer's.
func (p *callPeer) Offer(ctx context.Context, sdp string, _ func(string)) error {
	if len(sdp) > maxRelayed {
		return errTooLong
	}
	m := berth.CallMessage{Type: berth.CallOffer, PeerID: p.peer.info.ID, Role: p.peer.info.Role, Again: p.again, SDP: sdp}
	p.again = false
	p.call.mu.Lock()
	p.offer, p.kept = &m, nil
	p.call.mu.Unlock()
	return p.say(ctx, m)
}

// Answer implements MediaPeer.
func (p *callPeer) Answer(ctx context.Context, sdp string) error {
	if len(sdp) > maxRelayed {
		return errTooLong
	}
	return p.say(ctx, berth.CallMessage{Type: berth.CallAnswer, PeerID: p.peer.info.ID, Role: p.peer.info.Role, SDP: sdp})
}

// Candidate implements MediaPeer.
func (p *callPeer) Candidate(ctx context.Context, candidate *Candidate) error {
	m := berth.CallMessage{Type: berth.CallCandidate, PeerID: p.peer.info.ID, Role: p.peer.info.Role}
	if candidate != nil && len(candidate.Candidate) > maxCandidate {
		return &MediaError{Code: MediaBadCandidate, Message: "the candidate is longer than 4096 bytes, which no call relays"}
	}
	if candidate != nil {
		data, err := json.Marshal(candidate)
		if err != nil {
			return &MediaError{Code: MediaBadCandidate, Message: "the candidate cannot be passed on"}
		}
		m.Candidate = data
	}
	p.call.mu.Lock()
	if p.offer != nil && len(p.kept) < maxKept {
		p.kept = append(p.kept, m)
	}
	p.call.mu.Unlock()
	return p.say(ctx, m)
}

// say publishes what the client sent. What is not certain to arrive is an error frame, so that the client repeats it.
func (p *callPeer) say(ctx context.Context, m berth.CallMessage) error {
	if err := p.call.publish(ctx, m); err != nil {
		p.call.hub.deps.Logger.WarnContext(ctx, "call message not published", "session_key", int64(p.call.held.Key), "err", err)
		return &MediaError{Code: MediaFailed, Message: "the message could not be passed on: send it again"}
	}
	return nil
}

// Close implements MediaPeer.
func (p *callPeer) Close() {
	p.call.mu.Lock()
	defer p.call.mu.Unlock()
	if p.call.peers[p.peer.info.ID] == p {
		delete(p.call.peers, p.peer.info.ID)
	}
}

// hear queues the frame for a message of the other peer. It is called with call.mu held.
func (p *callPeer) hear(m berth.CallMessage) {
	switch m.Type {
	case berth.CallOffer:
		frame := offerFrame{Type: typeOffer, SDP: m.SDP}
		if m.Again {
			frame = offerFrame{Type: typeRejoinOffer, PeerID: m.PeerID, Role: m.Role, SDP: m.SDP}
		}
		p.send(frame)
	case berth.CallAnswer:
		p.offer, p.kept = nil, nil
		p.send(sdpFrame{Type: typeAnswer, SDP: m.SDP})
	case berth.CallCandidate:
		p.hearCandidate(m)
	case berth.CallConnected:
		p.meet(m.PeerID, m.Role, m.Connection)
		p.greet(m.Saw)
	case berth.CallDisconnected:
		delete(p.told, m.PeerID)
		p.send(peerFrame{Type: typePeerDisconnected, PeerID: m.PeerID, Role: m.Role, Reason: m.Reason})
	}
}

func (p *callPeer) hearCandidate(m berth.CallMessage) {
	frame := candidateFrame{Type: typeCandidate}
	if m.Candidate != nil {
		var candidate Candidate
		if json.Unmarshal(m.Candidate, &candidate) != nil {
			return // no worker publishes that
		}
		frame.Candidate = &candidate
	}
	p.send(frame)
}

// meet tells the client that another is there, unless it knows. It is called with call.mu held.
func (p *callPeer) meet(id, role, connection string) {
	if p.told[id] != connection {
		p.told[id] = connection
		p.send(peerFrame{Type: typePeerConnected, PeerID: id, Role: role})
	}
}

// greet answers a peer that came: that this one is here, if the other did not see it, and the offer that is open. It is the
// hub's task, since deliveries do not block. It is called with call.mu held.
func (p *callPeer) greet(saw []string) {
	if seen := slices.Contains(saw, p.peer.info.ConnectionID); !seen || p.offer != nil {
		p.call.later(p, !seen, p.offer)
	}
}

// sayAgain publishes that p is here, or what it offers, or both. An offer that is open no longer, since a newer one or an
// answer came meanwhile, is left out.
func (p *callPeer) sayAgain(ctx context.Context, announce bool, offer *berth.CallMessage) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if announce {
		if err := p.announce(ctx); err != nil {
			return err
		}
	}
	p.call.mu.Lock()
	var open []berth.CallMessage
	if offer != nil && p.offer == offer {
		open = append([]berth.CallMessage{*offer}, p.kept...)
	}
	p.call.mu.Unlock()
	for _, m := range open {
		if err := p.call.publish(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (p *callPeer) send(frame any) { p.peer.sender.send(encode(frame)) }

// parted tells the other peer of a call that one is gone, after the database was told.
func (h *Hub) parted(ctx context.Context, d berth.Disconnect, role string) error {
	reason := "lost"
	switch {
	case d.Left:
		reason = berth.CallLeft
	case d.Shed:
		reason = berth.CallMoved
	}
	data, err := json.Marshal(berth.CallMessage{
		Type: berth.CallDisconnected, PeerID: d.PeerID, Role: role, Reason: reason, Connection: d.ConnectionID,
	})
	if err != nil {
		return fmt.Errorf("encode call message: %w", err)
	}
	return h.say(ctx, berth.CallTopic(d.Key), data)
}
