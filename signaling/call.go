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
	lost  func()                                                     // has it recover
	later func(p *callPeer, announce bool, offer *berth.CallMessage) // has p say again what a peer that came did not hear
	end   context.CancelFunc

	mu         sync.Mutex // guards the rest, and what is kept of each peer; senders may be called under it
	peers      map[string]*callPeer
	remote     map[string]presence // the newest connection of each peer of the call that was heard of
	gone       map[string]string   // the connection of each peer that was said to be gone last
	behind     bool                // messages were lost since recover last looked
	recovering bool
}

// presence is a connection of a peer, and when the database admitted it, by its clock in microseconds; zero: not known.
type presence struct {
	connection string
	at         int64
}

// openCall subscribes to a call's topic.
func (h *Hub) openCall(ctx context.Context, held berth.Held) (*call, error) {
	if err := h.inbox.hold(ctx); err != nil {
		return nil, err
	}
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	c := &call{hub: h, held: held, end: end, peers: map[string]*callPeer{}, remote: map[string]presence{}, gone: map[string]string{}}
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
		c.meet(other.ID, presence{other.ConnectionID, microseconds(other.ConnectedAt)})
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
	if !c.news(m) {
		if m.Type == berth.CallConnected {
			c.hub.beside(c.lost) // it looks old, but the database's clock may have been set back: the rows know
		}
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

// news follows who is connected, and reports whether a message is to be told. What comes from a connection after another took
// its place is not: a worker that was paused goes on with what its sockets hold before it hears of that. Nor is that a
// connection is gone when it was said before: losses are told by whoever noticed and, to be certain, once more by the reaper.
// It is called with mu held.
func (c *call) news(m berth.CallMessage) bool {
	if m.Type != berth.CallDisconnected {
		return m.Connection == "" || c.meet(m.PeerID, presence{m.Connection, m.At})
	}
	if m.Connection == "" {
		return true
	}
	known := c.remote[m.PeerID].connection
	if c.gone[m.PeerID] == m.Connection || known != "" && known != m.Connection {
		return false
	}
	c.gone[m.PeerID] = m.Connection
	return true
}

// meet notes a peer's connection, and reports whether it is the newest that is known. It is called with mu held.
func (c *call) meet(peer string, p presence) bool {
	known := c.remote[peer]
	if known.connection == p.connection {
		return true
	}
	if known.at > p.at {
		return false
	}
	c.remote[peer] = p
	return true
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
