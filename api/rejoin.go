package api

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

// askAgain is how long a held rejoin waits before it asks the store again, give or take a quarter.
const askAgain = 100 * time.Millisecond

// RejoinSession serves POST /v1/sessions/{id}/rejoin.
func (s *service) RejoinSession(w http.ResponseWriter, r *http.Request, id wire.SessionID) {
	placement, err := s.rejoin(w, r, id)
	placement.Created = false // 201 is for sessions that did not exist
	s.answerPlacement(w, r, placement, err)
}

func (s *service) rejoin(w http.ResponseWriter, r *http.Request, id string) (berth.Placement, error) {
	rejoin, session, err := s.rejoiner(r, id)
	if err != nil {
		return berth.Placement{}, err
	}
	request, err := decode[wire.RejoinRequest](s, w, r)
	if err != nil {
		return berth.Placement{}, err
	}
	var c checks
	c.require(request.Generation > 0, "generation", "must be the generation of the placement that was lost, 1 or more")
	if err := c.err(); err != nil {
		return berth.Placement{}, err
	}
	rejoin.Generation = berth.Generation(request.Generation)
	rejoin.Lost = value(request.Lost, false)
	placement, err := s.hold(r.Context(), rejoin)
	s.countRefusal(session.TenantID, session.RequestedRegion, berth.RefusalCode(err))
	return placement, err
}

// rejoiner says which session and peer the request may rejoin: the credential is a tenant's key, or the rejoin token
// of one peer.
func (s *service) rejoiner(r *http.Request, id string) (berth.Rejoin, berth.Session, error) {
	credential, err := bearer(r)
	if err != nil {
		return berth.Rejoin{}, berth.Session{}, err
	}
	if !berth.ValidID(id) {
		return berth.Rejoin{}, berth.Session{}, berth.Invalid("id", reasonID)
	}
	if auth.IsRejoinToken(credential) {
		return s.rejoinerByToken(r.Context(), credential, id)
	}
	return s.rejoinerByKey(r.Context(), credential, id)
}

// rejoinerByKey acts for the session's first peer; others have their rejoin tokens.
func (s *service) rejoinerByKey(ctx context.Context, key, id string) (berth.Rejoin, berth.Session, error) {
	caller, err := s.authenticate(ctx, key, []auth.Role{auth.RoleTenant})
	if err != nil {
		return berth.Rejoin{}, berth.Session{}, err
	}
	session, peers, err := s.deps.Sessions.Session(ctx, caller.TenantID, id)
	if err != nil {
		return berth.Rejoin{}, berth.Session{}, err
	}
	rejoin := berth.Rejoin{Key: session.Key}
	if len(peers) > 0 {
		rejoin.PeerID = peers[0].ID
	}
	return rejoin, session, nil
}

func (s *service) rejoinerByToken(ctx context.Context, credential, id string) (berth.Rejoin, berth.Session, error) {
	token, err := s.deps.RejoinTokens.Verify(credential)
	if err != nil {
		return berth.Rejoin{}, berth.Session{}, err
	}
	session, err := s.deps.Sessions.SessionByKey(ctx, token.SessionKey)
	if errors.Is(err, &berth.Refusal{Code: berth.CodeNotFound}) {
		// The token proves that there was such a session; its row is gone a day after it ended.
		return berth.Rejoin{}, berth.Session{}, berth.Refuse(berth.CodeSessionEnded, "The session has ended.")
	}
	if err != nil {
		return berth.Rejoin{}, berth.Session{}, err
	}
	if session.ID != id {
		return berth.Rejoin{}, berth.Session{}, berth.Refuse(berth.CodeForbidden, "The rejoin token is for another session.")
	}
	return berth.Rejoin{Key: token.SessionKey, PeerID: token.PeerID}, session, nil
}

// hold asks for the placement until it is known, for RejoinHold at most. While the owner is in question each round
// wakes the reaper, whose verdict settles it.
func (s *service) hold(ctx context.Context, rejoin berth.Rejoin) (berth.Placement, error) {
	giveUp := time.NewTimer(s.cfg.RejoinHold)
	defer giveUp.Stop()
	for {
		answer, err := s.deps.Sessions.Rejoin(ctx, rejoin)
		if err != nil || answer.Outcome != berth.RejoinHold {
			return answer.Placement, err
		}
		s.deps.Waker.Wake()
		again := time.NewTimer(askAgain*3/4 + rand.N(askAgain/2))
		select {
		case <-again.C:
		case <-giveUp.C:
			again.Stop()
			return berth.Placement{}, unavailable("The session's owner is still in question; ask again.")
		case <-ctx.Done():
			again.Stop()
			return berth.Placement{}, ctx.Err()
		}
	}
}
