package signaling

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// recoverSpread is between two calls that recover because of one loss.
const recoverSpread = time.Millisecond

// recoverCalls has every call recover, one after another.
func (h *Hub) recoverCalls() {
	h.mu.Lock()
	keys := slices.Collect(maps.Keys(h.sessions))
	h.mu.Unlock()
	ticker := time.NewTicker(recoverSpread)
	defer ticker.Stop()
	for _, key := range keys { // those that were dropped meanwhile are found no more
		if c := h.callOf(key); c != nil {
			c.lost()
			<-ticker.C
		}
	}
}

// callOf is the call that is served for a session; nil: none is.
func (h *Hub) callOf(key berth.SessionKey) *call {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sessions[key]; s != nil {
		return s.call
	}
	return nil
}

// fallBehind has the call recover: messages for its peers here, or from them, may never arrive. One recovery runs at a time,
// and begins again for what is lost meanwhile. It is called without mu.
func (c *call) fallBehind(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behind = true
	if !c.recovering {
		c.recovering = true
		c.hub.beside(func() { c.recover(ctx) })
	}
}

// recover makes up for messages of the call that cannot be had: the database knows who is connected, and whoever hears of a
// connection offers again what is open. Frames may be repeated by it. Until the database answers it asks again: nobody has to
// come back because of a restart.
func (c *call) recover(ctx context.Context) {
	for {
		c.mu.Lock()
		if !c.behind {
			c.recovering = false
			c.mu.Unlock()
			return
		}
		c.behind = false
		members := slices.Collect(maps.Values(c.peers))
		c.mu.Unlock()
		if !c.recoverAll(ctx, members) && !c.pause(ctx) {
			return
		}
	}
}

// recoverAll reports whether every member recovered.
func (c *call) recoverAll(ctx context.Context, members []*callPeer) bool {
	all := true
	for _, member := range members {
		if err := member.recover(ctx); err != nil {
			c.hub.deps.Logger.WarnContext(ctx, "call not recovered", "session_key", int64(c.held.Key), "err", err)
			all = false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behind = c.behind || !all
	return all
}

// pause spreads the calls that try again, and reports whether this one still is.
func (c *call) pause(ctx context.Context) bool {
	wait := c.hub.config.SettleInterval
	timer := time.NewTimer(wait/2 + rand.N(wait))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
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
	open := p.offer
	p.call.mu.Unlock()
	return p.sayAgain(ctx, true, open)
}

// compare tells p who came and who went, as the database has it. It is called with mu held.
func (c *call) compare(p *callPeer, others []berth.Peer) {
	here := map[string]bool{p.peer.info.ID: true}
	for _, other := range others {
		here[other.ID] = true
		c.remote[other.ID] = presence{other.ConnectionID, microseconds(other.ConnectedAt)}
		p.meet(other.ID, other.Role, other.ConnectionID)
	}
	for id, known := range c.remote {
		if !here[id] && c.gone[id] != known.connection {
			c.gone[id] = known.connection
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
