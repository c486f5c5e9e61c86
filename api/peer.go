package api

import (
	"net/http"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/berth"
)

// AddPeer serves POST /v1/sessions/{id}/peers.
func (s *service) AddPeer(w http.ResponseWriter, r *http.Request, id wire.SessionID) {
	placement, err := s.addPeer(w, r, id)
	s.answerPlacement(w, r, placement, err)
}

func (s *service) addPeer(w http.ResponseWriter, r *http.Request, id string) (berth.Placement, error) {
	if !berth.ValidID(id) {
		return berth.Placement{}, berth.Invalid("id", reasonID)
	}
	request, _, err := decodeOptional[wire.PeerRequest](s, w, r)
	if err != nil {
		return berth.Placement{}, err
	}
	var c checks
	peer := c.peer("", request)
	if err := c.err(); err != nil {
		return berth.Placement{}, err
	}
	return s.deps.Sessions.AddPeer(r.Context(), callerOf(r.Context()).TenantID, id, peer)
}
