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
	placement, said, err := s.rejoin(w, r, id)
	placement.Created = false // 201 is for sessions that did not exist
	s.answerPlacement(w, r, placement, said, err)
}

func (s *service) rejoin(w http.ResponseWriter, r *http.Request, id string) (placement berth.Placement, said grant, err error) {
	who, session, err := s.rejoiner(r, id)
	if err != nil {
		return placement, said, err
	}
	request, err := decode[wire.RejoinRequest](s, w, r)
	if err != nil {
		return placement, said, err
	}
	var c checks
	c.require(request.Generation > 0, "generation", "must be the generation of the placement that was lost, 1 or more")
	c.require(request.Peer == nil || who.byKey, "peer", "must be absent with a rejoin token, which says it")
	said = c.regrant(request.Peer, who.said)
	if err := c.err(); err != nil {
		return placement, said, err
	}
	who.Generation = berth.Generation(request.Generation)
	who.Lost = value(request.Lost, false)
	placement, err = s.hold(r.Context(), who.Rejoin)
	s.countRefusal(session.TenantID, session.RequestedRegion, berth.RefusalCode(err))
	return placement, said, err
}

// rejoiner is a peer that may rejoin, and what is known of it: what its rejoin token says, or else which user it is.
type rejoiner struct {
	berth.Rejoin

	said  grant
	byKey bool // of the tenant, which may say something else
}

// rejoiner says which session and peer the request may rejoin: the credential is a tenant's key, or the rejoin token
// of one peer. Only who has one waits for a turn, and nobody is looked up before it.
func (s *service) rejoiner(r *http.Request, id string) (rejoiner, berth.Session, error) {
	credential, err := bearer(r)
	if err != nil {
		return rejoiner{}, berth.Session{}, err
	}
	if !berth.ValidID(id) {
		return rejoiner{}, berth.Session{}, berth.Invalid("id", reasonID)
	}
	if auth.IsRejoinToken(credential) {
		return s.rejoinerByToken(r.Context(), credential, id)
	}
	return s.rejoinerByKey(r.Context(), credential, id)
}

// rejoinerByKey acts for the session's first peer; others have their rejoin tokens.
func (s *service) rejoinerByKey(ctx context.Context, key, id string) (rejoiner, berth.Session, error) {
	caller, err := s.authenticate(ctx, key, []auth.Role{auth.RoleTenant})
	if err != nil {
		return rejoiner{}, berth.Session{}, err
	}
	if err := s.rejoins.await(ctx); err != nil {
		return rejoiner{}, berth.Session{}, err
	}
	session, peers, err := s.deps.Sessions.Session(ctx, caller.TenantID, id)
	if err != nil {
		return rejoiner{}, berth.Session{}, err
	}
	who := rejoiner{Rejoin: berth.Rejoin{Key: session.Key}, byKey: true}
	who.said.topics = berth.TopicGrant{Subscribe: []string{}, Publish: []string{}} // nobody knows what it had
	if len(peers) > 0 {
		who.PeerID, who.said.user = peers[0].ID, peers[0].User
	}
	return who, session, nil
}

func (s *service) rejoinerByToken(ctx context.Context, credential, id string) (rejoiner, berth.Session, error) {
	token, err := s.deps.RejoinTokens.Verify(credential)
	if err != nil {
		return rejoiner{}, berth.Session{}, err
	}
	if err := s.rejoins.await(ctx); err != nil {
		return rejoiner{}, berth.Session{}, err
	}
	session, err := s.deps.Sessions.SessionByKey(ctx, token.SessionKey)
	if errors.Is(err, &berth.Refusal{Code: berth.CodeNotFound}) {
		// The token proves that there was such a session; its row is gone a day after it ended.
		return rejoiner{}, berth.Session{}, berth.Refuse(berth.CodeSessionEnded, "The session has ended.")
	}
	if err != nil {
		return rejoiner{}, berth.Session{}, err
	}
	if session.ID != id {
		return rejoiner{}, berth.Session{}, berth.Refuse(berth.CodeForbidden, "The rejoin token is for another session.")
	}
	who := rejoiner{Rejoin: berth.Rejoin{Key: token.SessionKey, PeerID: token.PeerID}}
	who.said = grant{user: token.User, topics: token.Topics}
	return who, session, nil
}

// hold asks for the placement until it is known, for RejoinHold at most. While the owner is in question each round
// wakes the reaper, whose verdict settles it.
func (s *service) hold(ctx context.Context, rejoin berth.Rejoin) (berth.Placement, error) {
	giveUp := time.NewTimer(s.cfg.RejoinHold)
	defer giveUp.Stop()
	for {
		answer, err := s.deps.Sessions.Rejoin(ctx, rejoin)
		if answer.Left != "" {
			s.nudges.send(answer.Left)
		}
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
