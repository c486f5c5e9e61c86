package berth

import (
	"context"
	"encoding/json"
	"time"
)

// Start asks for a session. Fields are valid and defaulted: the API checks, the claim path trusts.
type Start struct {
	TenantID     string
	ID           string // the caller's, or a fresh one
	Kind         SessionKind
	Peer         Peer   // without an ID: the session's first, or a fresh one
	Region       string // empty: the tenant's default, else DefaultRegion, else any
	Spill        bool
	Handler      string
	TTL          time.Duration
	IdleTimeout  time.Duration
	OnWorkerLoss OnWorkerLoss
	Metadata     json.RawMessage
}

// Placement is the answer to a Start: who owns the session, since when.
type Placement struct {
	Session Session
	Peer    Peer
	Created bool      // false: the session lived already, and this is its stored placement
	At      time.Time // the database's clock when it answered; token times count from here
}

// Placer places sessions. The claim statement behind it is set-based, so an implementation may gather concurrent
// starts into one; each caller still gets its own answer.
//
// Place returns *Refusal when the session cannot be placed for a reason that the caller should see, ErrUnavailable
// (wrapped) when the outcome is unknown, and the context's error when the caller gave up.
type Placer interface {
	Place(ctx context.Context, start Start) (Placement, error)
}

// Rejoin asks for the current placement of a session, or for a new one.
type Rejoin struct {
	Key        SessionKey
	PeerID     string
	Generation Generation // the placement that the caller lost
	Lost       bool       // the caller's own connection to the owner failed
}
