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
		members, behind := c.catchUp()
		if !behind || !c.recoverAll(ctx, members) && !c.pause(ctx) {
			return
		}
	}
}

// catchUp returns who is to recover if the call is behind. If it is not, its recovery is over.
func (c *call) catchUp() (members []*callPeer, behind bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recovering = c.behind
	if !c.behind {
		return nil, false
	}
	c.behind = false
	return slices.Collect(maps.Values(c.peers)), true
}

// recoverAll reports whether every member recovered.
func (c *call) recoverAll(ctx context.Context, members []*callPeer) bool {
	all := true
	for _, member := range members {
		if err := member.recover(ctx); err != nil {
			c.hub.unrecovered.note(ctx, c.hub.deps.Logger, c.held.Key, err)
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
	p.call.mu.Lock()
	changes := p.call.changes
	p.call.mu.Unlock()
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
	if p.call.changes == changes {
		p.call.compare(p, others)
	} else {
		p.call.behind = true // what was heard meanwhile may be newer than this answer
	}
	open := p.offer
	p.call.mu.Unlock()
	return p.sayAgain(ctx, repeat{announce: true, offer: open})
}

// compare tells p who came and who went, as the database has it, except that nobody comes back from the dead: word of a loss may
// be ahead of the rows. That it answered says that p's own connection is the one that it has. It is called with mu held.
func (c *call) compare(p *callPeer, others []berth.Peer) {
	own := p.peer.info
	here := map[string]bool{own.ID: true}
	if s := c.of(own.ID); s.connection != own.ConnectionID && !slices.Contains(s.over, own.ConnectionID) {
		c.replace(s, own.ConnectionID, p.at)
	}
	for _, other := range others {
		s := c.of(other.ID)
		if slices.Contains(s.over, other.ConnectionID) {
			continue
		}
		here[other.ID] = true
		if s.connection != other.ConnectionID {
			c.replace(s, other.ConnectionID, microseconds(other.ConnectedAt))
		}
		p.meet(other.ID, other.Role, other.ConnectionID)
	}
	for id, s := range c.known {
		if s.doubted != s.connection {
			c.finish(s, s.doubted)
		}
		s.doubted = ""
		if !here[id] {
			c.finish(s, s.connection)
			p.part(id, otherRole(own.Role), "", "lost")
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
