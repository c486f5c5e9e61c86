package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

// Keys tells whose an API key is; *auth.Authenticator does.
type Keys interface {
	// Authenticate returns auth.ErrUnauthenticated for a key that is nobody's, and an error that wraps
	// auth.ErrUnavailable when that could not be found out.
	Authenticate(ctx context.Context, key string) (auth.Principal, error)
}

// Signer signs what workers verify; *auth.Signer does. Times are the database's.
type Signer interface {
	Mint(ctx context.Context, token auth.SessionToken, now time.Time) (signed string, expiresAt time.Time, err error)
	SignNudge(ctx context.Context, workerID string, instance berth.Instance, now time.Time) (string, error)
}

// RejoinTokens makes and checks the tokens that let a peer rejoin without a key; *auth.RejoinSigner does.
type RejoinTokens interface {
	Mint(token auth.RejoinToken) (string, error)
	// Verify returns auth.ErrTokenInvalid for a token that is not ours.
	Verify(token string) (auth.RejoinToken, error)
}

// SigningKeys lists the keys whose public halves /.well-known/jwks.json shows; *auth.Keys does.
type SigningKeys interface {
	Published(ctx context.Context, now time.Time) ([]auth.SigningKey, error)
}

type callerKey struct{}

// callerOf returns whose key the request carries; the zero Principal, who may do nothing, where none was asked for.
func callerOf(ctx context.Context) auth.Principal {
	caller, _ := ctx.Value(callerKey{}).(auth.Principal)
	return caller
}

func isOperator(caller auth.Principal) bool { return caller.Role == auth.RoleOperator }

// only lets through callers whose key has one of the roles, before anything else of the request is looked at.
func (s *service) only(roles ...auth.Role) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key, err := bearer(r)
			if err != nil {
				s.fail(w, r, err)
				return
			}
			caller, err := s.authenticate(r.Context(), key, roles)
			if err != nil {
				s.fail(w, r, err)
				return
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
		})
	}
}

// bearer returns the credential of the request.
func bearer(r *http.Request) (string, error) {
	// Of two headers a proxy may read the other one.
	credential, ok := auth.ParseBearer(r.Header.Get("Authorization"))
	if !ok || len(r.Header.Values("Authorization")) > 1 {
		return "", berth.Refuse(berth.CodeUnauthenticated, "Send an API key as Authorization: Bearer <key>.")
	}
	return credential, nil
}

func (s *service) authenticate(ctx context.Context, key string, roles []auth.Role) (auth.Principal, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout) // streams have no other limit
	defer cancel()
	caller, err := s.deps.Keys.Authenticate(ctx, key)
	if err != nil {
		return auth.Principal{}, err
	}
	if !slices.Contains(roles, caller.Role) {
		return auth.Principal{}, berth.Refuse(berth.CodeForbidden, "This call needs a key with the role "+string(roles[0])+".")
	}
	return caller, nil
}
