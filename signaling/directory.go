package signaling

import (
	"context"
	"errors"

	"github.com/coder/websocket"

	"github.com/berthdev/berth/internal/berth"
)

// Directory writes what happens to the worker's sessions into the database, in the name of the worker's current
// instance.
type Directory interface {
	// ConnectPeer admits a peer. It returns berth.ErrStale when the placement is history, a *berth.Refusal with
	// berth.CodeSessionEnded when the session ended, and berth.ErrUnavailable when the outcome is unknown.
	ConnectPeer(ctx context.Context, held berth.Held, peer berth.Peer) (berth.Connected, error)

	// OtherPeers reads who else is connected to a call. berth.ErrStale says that the peer's connection is not the one that the
	// database has, or that the placement is history; a Refusal with berth.CodeSessionEnded that the call is over.
	OtherPeers(ctx context.Context, held berth.Held, peer berth.Peer) ([]berth.Peer, error)

	// DisconnectPeer tells that a connection is gone. It affects nothing once a newer one took its place.
	DisconnectPeer(ctx context.Context, gone berth.Disconnect) error

	// EndSessions ends sessions that are still at the generation named; others it leaves alone.
	EndSessions(ctx context.Context, ends []berth.End) error
}

// Grant is what a session token allows: one peer of one placement of a session, on this worker.
type Grant struct {
	berth.Held
	SessionID string
	TenantID  string
	Peer      berth.Peer       // ID, Role and User
	Topics    berth.TopicGrant // which topics the peer may use
}

// Tokens verifies session tokens.
type Tokens interface {
	// VerifyToken returns what the token allows. Every error refuses it; one that wraps berth.ErrUnavailable says
	// that the signing key could not be read, so that the same token may pass later.
	VerifyToken(ctx context.Context, token string) (Grant, error)
}

// ICEServer is one entry of the welcome's ice_servers (W3C RTCIceServer).
type ICEServer struct {
	URLs       []string `json:"urls"`
	Username   string   `json:"username,omitempty"`
	Credential string   `json:"credential,omitempty"`
}

// refusal is a close frame that ends a join.
type refusal struct {
	code   websocket.StatusCode
	reason string
	err    error // for the log; nil if the client is to blame
}

// mediaRefusal maps an error of Media.Open to a close frame.
func mediaRefusal(err error) *refusal {
	if errors.Is(err, ErrNoHandler) {
		return &refusal{code: CloseBad, reason: reasonNoHandler, err: err}
	}
	return &refusal{code: CloseTryLater, reason: reasonMedia, err: err}
}

// tokenRefusal maps an error of Tokens to a close frame.
func tokenRefusal(err error) *refusal {
	if errors.Is(err, berth.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return &refusal{code: CloseTryLater, reason: reasonUnavailable, err: err}
	}
	return &refusal{code: CloseToken, reason: reasonToken}
}

// connectRefusal maps an error of Directory.ConnectPeer to a close frame, and none to none. It is the only such
// mapping. An error that it does not know leaves the outcome open.
func connectRefusal(err error) *refusal {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, berth.ErrStale):
		return &refusal{code: CloseMoved, reason: reasonStale}
	case berth.RefusalCode(err) == berth.CodeSessionEnded, berth.RefusalCode(err) == berth.CodeNotFound:
		return &refusal{code: CloseEnded, reason: reasonEnded}
	default:
		return &refusal{code: CloseTryLater, reason: reasonUnavailable, err: err}
	}
}
