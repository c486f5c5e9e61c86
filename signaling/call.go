package signaling

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// publishTimeout bounds the word that a peer came or went.
const publishTimeout = 2 * time.Second

// call is the MediaSession of a call: what one peer sends goes by the call's topic to the other, on whatever worker that
// is. Peers on this worker hear each other the same way, so that there is one order.
type call struct {
	hub   *Hub
	held  berth.Held
	topic *backplane.Subscription

	// What the call does beside its peers, until end.
	lost  func()            // has it recover
	later func(p *callPeer) // has p say again what it owes
	end   context.CancelFunc

	mu         sync.Mutex // guards the rest, and what is kept of each peer; senders may be called under it
	peers      map[string]*callPeer
	known      map[string]*standing // of each peer of the call that was heard of
	changes    int                  // of known
	behind     bool                 // messages were lost since recover last looked
	recovering bool
}

// openCall subscribes to a call's topic.
func (h *Hub) openCall(ctx context.Context, held berth.Held) (*call, error) {
	if err := h.inbox.hold(ctx); err != nil {
		return nil, err
	}
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	c := &call{hub: h, held: held, end: end, peers: map[string]*callPeer{}, known: map[string]*standing{}}
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
	c.later = func(p *callPeer) {
		h.beside(func() {
			if p.repay(living) != nil {
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
	member := &callPeer{
		call: c, peer: p, again: again, returned: again, at: at, told: map[string]string{}, turn: make(chan struct{}, 1),
	}
	c.mu.Lock()
	c.peers[p.info.ID] = member
	for _, other := range connected.Peers {
		member.told[other.ID] = other.ConnectionID // by its welcome
		if c.meet(other.ID, other.ConnectionID, microseconds(other.ConnectedAt)) == over {
			member.part(other.ID, other.Role, other.ConnectionID, "lost") // since the database answered
		}
	}
	c.mu.Unlock()
	p.media = member
	return member.announce(ctx)
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
	if m.Type == berth.CallDisconnected {
		c.part(m)
		return
	}
	if m.Connection != "" && !c.admit(m) {
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

// part notes that a connection is over. Losses are told by whoever noticed and, to be certain, once more by the reaper. It is
// called with mu held.
func (c *call) part(m berth.CallMessage) {
	c.finish(c.of(m.PeerID), m.Connection)
	for id, member := range c.peers {
		if id != m.PeerID {
			member.part(m.PeerID, m.Role, m.Connection, m.Reason)
		}
	}
}

// admit reports whether what a connection says is to be heard. A worker that was paused goes on with what its sockets hold
// before it hears that another connection took the place of one. It is called with mu held.
func (c *call) admit(m berth.CallMessage) bool {
	switch c.meet(m.PeerID, m.Connection, m.At) {
	case newest:
		return true
	case older:
		if m.Type == berth.CallConnected { // it may only look so, since the database's clock was set back: the rows know
			c.of(m.PeerID).doubted = m.Connection
			c.changes++ // what the database answered before is not about it
			c.hub.beside(c.lost)
		}
	case over:
		if m.Type == berth.CallConnected && c.believed(m.PeerID) { // in one that it replaced, and of whose end nobody was told
			c.hub.beside(c.lost)
		}
	}
	return false
}

// believed reports whether a client here was told that a peer is there, and not that it went. It is called with mu held.
func (c *call) believed(peer string) bool {
	for _, member := range c.peers {
		if _, told := member.told[peer]; told {
			return true
		}
	}
	return false
}

// microseconds is a time of the database, zero if it is not known.
func microseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

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
