package signaling

import (
	"context"
	"errors"

	"github.com/berthdev/berth/internal/berth"
)

// recover makes up for messages of the call that cannot be had: the database knows who is connected, and whoever hears of a
// connection offers again what is open. Frames may be repeated by it.
func (c *call) recover(ctx context.Context) {
	c.mu.Lock()
	members := make([]*callPeer, 0, len(c.peers))
	for _, member := range c.peers {
		members = append(members, member)
	}
	c.mu.Unlock()
	for _, member := range members {
		if err := member.recover(ctx); err != nil {
			c.hub.deps.Logger.WarnContext(ctx, "call not recovered", "session_key", int64(c.held.Key), "err", err)
			member.peer.sender.close(CloseTryLater, reasonUnavailable) // a new connection learns everything
		}
	}
}

// recover asks the database who else is connected.
func (p *callPeer) recover(ctx context.Context) error {
	hub := p.call.hub
	asking, cancel := context.WithTimeout(ctx, hub.config.ConnectTimeout)
	defer cancel()
	others, err := hub.deps.Directory.OtherPeers(asking, p.call.held, p.peer.info)
	if errors.Is(err, berth.ErrStale) || berth.RefusalCode(err) == berth.CodeSessionEnded {
		refused := connectRefusal(err)
		p.peer.sender.close(refused.code, refused.reason)
		return nil
	}
	if err != nil {
		return err
	}
	p.call.mu.Lock()
	p.call.compare(p, others)
	p.greet([]string{p.peer.info.ConnectionID}) // the announcement follows
	p.call.mu.Unlock()
	return p.announce(ctx)
}

// compare tells p who came and who went, as the database has it. It is called with mu held.
func (c *call) compare(p *callPeer, others []berth.Peer) {
	here := map[string]bool{p.peer.info.ID: true}
	for _, other := range others {
		here[other.ID] = true
		c.remote[other.ID] = other.ConnectionID
		p.meet(other.ID, other.Role, other.ConnectionID)
	}
	for id, connection := range c.remote {
		if !here[id] && c.gone[id] != connection {
			c.gone[id] = connection
			delete(p.told, id)
			p.send(peerFrame{Type: typePeerDisconnected, PeerID: id, Role: otherRole(p.peer.info.Role), Reason: "lost"})
		}
	}
}

// otherRole is the role of a call's other peer.
func otherRole(role string) string {
	if role == berth.RoleOffer {
		return berth.RoleAnswer
	}
	return berth.RoleOffer
}
