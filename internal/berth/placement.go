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
	IDChosen     bool              // the caller chose ID; a fresh one cannot be in use
	Slots        int               // weight: slots of one worker, 1 to MaxSlots; zero: 1
	Strategy     Strategy          // empty: the tenant's
	Selector     map[string]string // labels that the worker must have; nil: any worker
	Wait         time.Duration     // how long to queue for capacity; zero: not at all. At most MaxWait

	IdempotencyKey string   // empty: none
	BodyHash       [32]byte // SHA-256 of the canonical body that came with IdempotencyKey
}

// Strategy says which of the workers that fit gets a session.
type Strategy string

// The strategies of placement.
const (
	StrategySpread Strategy = "spread" // the least loaded (the default)
	StrategyPack   Strategy = "pack"   // the fullest with room, so that idle workers appear for scale-in
)

// Limits of a start.
const (
	MaxSlots          = 64 // of one session
	MaxSelectorLabels = 16
	MaxWait           = 30 * time.Second
	// MaxBatch is how many starts one claim statement takes; the exactness of quotas counts on it (claim_sessions).
	MaxBatch = 256
	// IdempotencyWindow is how long an Idempotency-Key is remembered.
	IdempotencyWindow = 24 * time.Hour
	// MaxIdempotencyKey is its length in bytes.
	MaxIdempotencyKey = 255
)

// Limits says how a tenant stands with its quotas after a start, for the RateLimit fields of the answer.
type Limits struct {
	MaxConcurrent *int    // nil: no quota
	Live          int     // sessions that count against it; zero when there is no quota
	StartRate     float64 // starts per second; zero: no limit
	StartBurst    int
	Tokens        float64 // starts left at once
}

// Placement is the answer to a Start: who owns the session, since when.
type Placement struct {
	Session Session
	Peer    Peer
	Created bool      // false: the session lived already, and this is its stored placement
	At      time.Time // the database's clock when it answered; token times count from here

	Replayed bool   // an Idempotency-Key made this session before; its first answer was Created
	Limits   Limits // of the tenant; also with a refusal, where it is known
}

// Placer places sessions. The claim statement behind it is set-based, so an implementation may gather concurrent
// starts into one; each caller still gets its own answer.
//
// A caller whose context ends is not placed, or its slot is released at once.
//
// Place returns *Refusal when the session cannot be placed for a reason that the caller should see, ErrUnavailable
// (wrapped) when the outcome is unknown, and the context's error when the caller gave up.
type Placer interface {
	Place(ctx context.Context, start Start) (Placement, error) // Limits is set with a refusal too
}

// Rejoin asks for the current placement of a session, or for a new one.
type Rejoin struct {
	Key        SessionKey
	PeerID     string
	Generation Generation // the placement that the caller lost
	Lost       bool       // the caller's own connection to the owner failed
}
