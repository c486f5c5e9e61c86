package signaling

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/berthdev/berth/internal/berth"
)

// callPeer is the MediaPeer of one connection to a call.
type callPeer struct {
	call     *call
	peer     *peer
	again    bool              // its next offer is that of a peer that came back
	returned bool              // it was connected to the call before
	at       int64             // when it connected, by the database's clock
	told     map[string]string // the connections of others that the client knows of; guarded by call.mu
	turn     chan struct{}     // holds an element while an offer, or what repeats one, is published: the newest comes last
	owed     repeat            // guarded by call.mu
	offered  string            // the connection whose offer was heard last; guarded by call.mu

	// The last offer, with its candidates, until the other peer answered it: that one may not be there yet. call.mu
	// guards them.
	offer *berth.CallMessage
	kept  []berth.CallMessage
}

// repeat is what a peer is to say again, for one that came and did not hear it.
type repeat struct {
	due      bool               // somebody is about to
	announce bool               // that the peer is here
	offer    *berth.CallMessage // with its candidates, unless a newer one or an answer came meanwhile
}

const (
	// maxRelayed is the longest description that is relayed, in bytes.
	maxRelayed = 60 << 10
	// maxCandidate is the longest candidate that is relayed, in bytes.
	maxCandidate = 4 << 10
	// maxKept and maxKeptBytes bound the candidates that are kept with an offer until it is answered.
	maxKept      = 256
	maxKeptBytes = 64 << 10
)

// errKeptFull refuses a candidate that would be lost if the other peer came later.
var errKeptFull = &MediaError{
	Code: MediaFailed, Message: "no more candidates are kept until the other peer answers the offer: send it again then, or offer anew",
}

// errTooLong refuses a description that is longer than maxRelayed.
var errTooLong = &MediaError{Code: MediaBadSDP, Message: "the description is longer than 61440 bytes, which no call relays"}

// announce tells the other peer that this one is connected.
func (p *callPeer) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	m := p.message(berth.CallConnected)
	m.Again = p.returned
	p.call.mu.Lock()
	m.Saw = slices.Collect(maps.Values(p.told))
	p.call.mu.Unlock()
	return p.call.publish(ctx, m)
}

// message is one of this connection.
func (p *callPeer) message(kind string) berth.CallMessage {
	info := p.peer.info
	return berth.CallMessage{Type: kind, PeerID: info.ID, Role: info.Role, Connection: info.ConnectionID, At: p.at}
}

// Offer implements MediaPeer. The answer is the other peer's.
func (p *callPeer) Offer(ctx context.Context, sdp string, _ func(string)) error {
	if len(sdp) > maxRelayed {
		return errTooLong
	}
	m := p.message(berth.CallOffer)
	m.Again, m.SDP = p.again, sdp
	if err := p.takeTurn(ctx); err != nil {
		return p.unsaid(ctx, err)
	}
	defer p.endTurn()
	p.call.mu.Lock()
	p.offer, p.kept = &m, nil
	p.call.mu.Unlock()
	if err := p.say(ctx, m); err != nil {
		return err // the client offers once more, and still as one that came back
	}
	p.again = false
	return nil
}

func (p *callPeer) takeTurn(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("publish in turn: %w", ctx.Err())
	}
}

func (p *callPeer) endTurn() { <-p.turn }

// Answer implements MediaPeer.
func (p *callPeer) Answer(ctx context.Context, sdp string) error {
	if len(sdp) > maxRelayed {
		return errTooLong
	}
	m := p.message(berth.CallAnswer)
	m.SDP = sdp
	p.call.mu.Lock()
	m.To = p.offered
	p.call.mu.Unlock()
	return p.say(ctx, m)
}

// Candidate implements MediaPeer.
func (p *callPeer) Candidate(ctx context.Context, candidate *Candidate) error {
	m := p.message(berth.CallCandidate)
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
	if !p.keep(m) {
		return errKeptFull
	}
	return p.say(ctx, m)
}

// keep keeps a candidate for as long as the offer before it is open. It reports false when there are too many.
func (p *callPeer) keep(m berth.CallMessage) bool {
	p.call.mu.Lock()
	defer p.call.mu.Unlock()
	if p.offer == nil {
		return true
	}
	size := len(m.Candidate)
	for _, kept := range p.kept {
		size += len(kept.Candidate)
	}
	if len(p.kept) == maxKept || size > maxKeptBytes {
		return false
	}
	p.kept = append(p.kept, m)
	return true
}

// say publishes what the client sent. What is not certain to arrive is an error frame, so that the client repeats it.
func (p *callPeer) say(ctx context.Context, m berth.CallMessage) error {
	if err := p.call.publish(ctx, m); err != nil {
		return p.unsaid(ctx, err)
	}
	return nil
}

func (p *callPeer) unsaid(ctx context.Context, err error) error {
	p.call.hub.deps.Logger.WarnContext(ctx, "call message not published", "session_key", int64(p.call.held.Key), "err", err)
	return &MediaError{Code: MediaFailed, Message: "the message could not be passed on: send it again"}
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
	if m.Connection != "" {
		p.meet(m.PeerID, m.Role, m.Connection) // whoever speaks is there
	}
	switch m.Type {
	case berth.CallOffer:
		p.offered = m.Connection
		frame := offerFrame{Type: typeOffer, SDP: m.SDP}
		if m.Again {
			frame = offerFrame{Type: typeRejoinOffer, PeerID: m.PeerID, Role: m.Role, SDP: m.SDP}
		}
		p.send(frame)
	case berth.CallAnswer:
		if m.To != "" && m.To != p.peer.info.ConnectionID {
			return // to an offer of the connection before this one
		}
		p.offer, p.kept = nil, nil
		p.send(sdpFrame{Type: typeAnswer, SDP: m.SDP})
	case berth.CallCandidate:
		p.hearCandidate(m)
	case berth.CallConnected:
		p.greet(m.Saw)
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

// part tells the client that a connection of another is over, if that is the one that it knows of; empty: any. It is called
// with call.mu held.
func (p *callPeer) part(id, role, connection, reason string) {
	known, knows := p.told[id]
	if !knows || connection != "" && connection != known {
		return
	}
	delete(p.told, id)
	p.send(peerFrame{Type: typePeerDisconnected, PeerID: id, Role: role, Reason: reason})
}

// greet answers a peer that came: that this one is here, if the other did not see it, and the offer that is open. One that is
// about to be closed is silent: it may have been replaced. It is the hub's task, since deliveries do not block. It is called
// with call.mu held.
func (p *callPeer) greet(saw []string) {
	if _, closed := p.peer.sender.closed(); closed {
		return
	}
	seen := slices.Contains(saw, p.peer.info.ConnectionID)
	if seen && p.offer == nil {
		return
	}
	due := p.owed.due
	p.owed = repeat{due: true, announce: p.owed.announce || !seen, offer: p.offer}
	if !due {
		p.call.later(p)
	}
}

// repay says what p owes, until it owes nothing.
func (p *callPeer) repay(ctx context.Context) error {
	for {
		p.call.mu.Lock()
		owed := p.owed
		owed.due = owed.announce || owed.offer != nil
		p.owed = repeat{due: owed.due}
		p.call.mu.Unlock()
		if !owed.due {
			return nil
		}
		if err := p.sayAgain(ctx, owed); err != nil {
			p.call.mu.Lock()
			p.owed.due = false // its recovery says all of it
			p.call.mu.Unlock()
			return err
		}
	}
}

// sayAgain publishes what is to be said again, and is the peer's turn.
func (p *callPeer) sayAgain(ctx context.Context, again repeat) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := p.takeTurn(ctx); err != nil {
		return err
	}
	defer p.endTurn()
	if again.announce {
		if err := p.announce(ctx); err != nil {
			return err
		}
	}
	p.call.mu.Lock()
	var open []berth.CallMessage
	if again.offer != nil && p.offer == again.offer {
		open = append([]berth.CallMessage{*again.offer}, p.kept...)
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
