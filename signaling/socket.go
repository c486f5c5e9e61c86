package signaling

import "github.com/berthdev/berth/internal/berth"

// Socket describes one connection of a peer, for the platform.
type Socket struct {
	ID         string           `json:"id"`
	Session    string           `json:"session"`
	Generation berth.Generation `json:"generation"`
	Peer       string           `json:"peer"`
	Role       string           `json:"role"`
}

// Sockets lists the connections of peers, in no order.
func (h *Hub) Sockets() []Socket {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]Socket, 0, len(h.open))
	for _, s := range h.sessions {
		for _, p := range s.peers {
			list = append(list, Socket{
				ID: p.info.ConnectionID, Session: s.id, Generation: s.held.Generation, Peer: p.info.ID, Role: p.info.Role,
			})
		}
	}
	return list
}
