package auth

import (
	"context"
	"errors"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// SessionTokenLife is how long a session token is good. It is needed to connect, not to stay.
	SessionTokenLife = 10 * time.Minute

	sessionTokenType = "berth-session+jwt"
)

// SessionToken is a peer's right to connect to one placement of a session.
type SessionToken struct {
	WorkerID   string            // audience: the only worker that accepts it
	SessionID  string            // as the tenant knows it
	SessionKey berth.SessionKey  // the row
	TenantID   string            // owner of the session
	Generation berth.Generation  // fencing number of the placement
	PeerID     string            // who connects
	Role       string            // the peer's role: offer or answer
	Kind       berth.SessionKind // media or call
	Handler    string            // media handler; empty for calls
	User       string            // who the peer is to the tenant; empty: nobody to be sent direct messages
	Topics     berth.TopicGrant  // which topics of the tenant the peer may use
	ExpiresAt  time.Time         // set by Verify; Mint returns it
}

// sessionPayload is the JWT body of a session token.
type sessionPayload struct {
	registered

	SessionID  string            `json:"sub"`
	SessionKey berth.SessionKey  `json:"skey"`
	TenantID   string            `json:"tenant"`
	Generation berth.Generation  `json:"gen"`
	PeerID     string            `json:"peer"`
	Role       string            `json:"role"`
	Kind       berth.SessionKind `json:"kind"`
	Handler    string            `json:"handler,omitempty"`
	User       string            `json:"user,omitempty"`
	Topics     berth.TopicGrant  `json:"topics,omitzero"`
}

// check refuses a token that would place a peer nowhere.
func (t SessionToken) check() error {
	switch {
	case !berth.ValidID(t.WorkerID), !berth.ValidID(t.SessionID), !berth.ValidID(t.TenantID), !berth.ValidID(t.PeerID):
		return errors.New("session token: worker, session, tenant and peer must be ids")
	case t.SessionKey <= 0 || t.Generation <= 0:
		return errors.New("session token: session key and generation must be positive")
	case t.User != "" && !berth.ValidID(t.User) || !t.Topics.Valid():
		return errors.New("session token: user must be an id, and topics patterns within their limits")
	default:
		return nil
	}
}

// Signer mints session tokens and nudges.
type Signer struct {
	keys *Keys
}

// NewSigner returns a signer that uses the current key.
func NewSigner(keys *Keys) *Signer { return &Signer{keys: keys} }

// Mint signs a session token that is good for SessionTokenLife from now, the database's time. The error
// is ErrUnavailable or ErrNoSigningKey, or says what the token lacks.
func (s *Signer) Mint(ctx context.Context, t SessionToken, now time.Time) (token string, expiresAt time.Time, err error) {
	if err := t.check(); err != nil {
		return "", time.Time{}, err
	}
	payload := sessionPayload{
		registered: register(t.WorkerID, now, SessionTokenLife),
		SessionID:  t.SessionID, SessionKey: t.SessionKey, TenantID: t.TenantID, Generation: t.Generation,
		PeerID: t.PeerID, Role: t.Role, Kind: t.Kind, Handler: t.Handler, User: t.User, Topics: t.Topics,
	}
	token, err = sign(ctx, s.keys, sessionTokenType, payload, now)
	if err != nil {
		return "", time.Time{}, err
	}
	return token, payload.ExpiresAt.UTC(), nil
}

// Verifier checks session tokens and nudges for one worker.
type Verifier struct {
	keys     *Keys
	workerID string
}

// NewVerifier returns a verifier that accepts what is meant for the worker.
func NewVerifier(keys *Keys, workerID string) *Verifier {
	return &Verifier{keys: keys, workerID: workerID}
}

// Verify checks a session token at now, the database's time as well as this process knows it. The error is
// ErrTokenInvalid, ErrTokenExpired, ErrTokenAudience or ErrUnavailable.
func (v *Verifier) Verify(ctx context.Context, token string, now time.Time) (SessionToken, error) {
	return verifySession(ctx, v.keys, v.workerID, token, now)
}

// SessionTokens checks session tokens whichever worker they are for, for what a peer may do elsewhere.
type SessionTokens struct {
	keys *Keys
}

// NewSessionTokens returns a verifier for API processes.
func NewSessionTokens(keys *Keys) *SessionTokens { return &SessionTokens{keys: keys} }

// Verify is that of a Verifier, without ErrTokenAudience.
func (s *SessionTokens) Verify(ctx context.Context, token string, now time.Time) (SessionToken, error) {
	return verifySession(ctx, s.keys, anyAudience, token, now)
}

func verifySession(ctx context.Context, keys *Keys, audience, token string, now time.Time) (SessionToken, error) {
	var payload sessionPayload
	if err := verify(ctx, keys, sessionTokenType, audience, token, &payload, now); err != nil {
		return SessionToken{}, err
	}
	t := SessionToken{
		WorkerID: payload.Audience, SessionID: payload.SessionID, SessionKey: payload.SessionKey, TenantID: payload.TenantID,
		Generation: payload.Generation, PeerID: payload.PeerID, Role: payload.Role, Kind: payload.Kind, Handler: payload.Handler,
		User: payload.User, Topics: payload.Topics, ExpiresAt: payload.ExpiresAt.UTC(),
	}
	if t.check() != nil {
		return SessionToken{}, ErrTokenInvalid
	}
	return t, nil
}
