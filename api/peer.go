package api

import (
	"net/http"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/berth"
)

// AddPeer serves POST /v1/sessions/{id}/peers.
func (s *service) AddPeer(w http.ResponseWriter, r *http.Request, id wire.SessionID) {
	placement, said, err := s.addPeer(w, r, id)
	s.answerPlacement(w, r, placement, said, err)
}

func (s *service) addPeer(w http.ResponseWriter, r *http.Request, id string) (placement berth.Placement, said grant, err error) {
	if !berth.ValidID(id) {
		return placement, said, berth.Invalid("id", reasonID)
	}
	request, _, err := decodeOptional[wire.PeerRequest](s, w, r)
	if err != nil {
		return placement, said, err
	}
	var c checks
	peer := c.peer("", request)
	said = c.grant("", request.User, request.Topics)
	if err := c.err(); err != nil {
		return placement, said, err
	}
	placement, err = s.deps.Sessions.AddPeer(r.Context(), callerOf(r.Context()).TenantID, id, peer)
	return placement, said, err
}
