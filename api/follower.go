package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

// SessionTokens checks session tokens, whichever worker they are for; *auth.SessionTokens does.
type SessionTokens interface {
	// Verify checks a token at now, the database's time. The error is auth.ErrTokenInvalid, auth.ErrTokenExpired, or one that
	// wraps auth.ErrUnavailable.
	Verify(ctx context.Context, token string, now time.Time) (auth.SessionToken, error)
}

// follower is who follows a topic.
type follower struct {
	tenantID string
	key      string           // the API key; empty for a peer
	session  berth.SessionKey // of a peer; its session token is needed to connect and not to stay, its session is
}

// follower says who the request is from, if they may listen to the topic. A token may stand in the query, because an
// EventSource cannot set headers; what is good for longer may not, since addresses get into logs.
func (s *service) follower(r *http.Request, topic string, token *string) (follower, error) {
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.RequestTimeout)
	defer cancel()
	if token != nil && len(r.Header.Values("Authorization")) == 0 {
		return s.peerFollower(ctx, *token, topic)
	}
	credential, err := bearer(r)
	if err != nil {
		return follower{}, err
	}
	if strings.Count(credential, ".") == 2 { // no API key has a dot, and every token has two
		return s.peerFollower(ctx, credential, topic)
	}
	caller, err := s.authenticate(ctx, credential, []auth.Role{auth.RoleTenant})
	return follower{tenantID: caller.TenantID, key: credential}, err
}

// peerFollower checks a session token, and that its session lives.
func (s *service) peerFollower(ctx context.Context, token, topic string) (follower, error) {
	now, err := s.clock.now(ctx)
	if err != nil {
		return follower{}, err
	}
	peer, err := s.deps.SessionTokens.Verify(ctx, token, now)
	if errors.Is(err, auth.ErrTokenExpired) {
		return follower{}, berth.Refuse(berth.CodeUnauthenticated, "The session token has expired; a rejoin gives a fresh one.")
	}
	if err != nil {
		return follower{}, err
	}
	if !peer.Topics.MaySubscribe(topic) {
		return follower{}, berth.Refuse(berth.CodeForbidden, "The session token does not allow this topic.")
	}
	session, err := s.deps.Sessions.SessionByKey(ctx, peer.SessionKey)
	if errors.Is(err, &berth.Refusal{Code: berth.CodeNotFound}) || err == nil && !session.State.Live() {
		return follower{}, berth.Refuse(berth.CodeSessionEnded, "The session has ended.")
	}
	return follower{tenantID: peer.TenantID, session: peer.SessionKey}, err
}
