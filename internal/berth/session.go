package berth

import (
	"encoding/json"
	"time"
)

// SessionKind says what is placed.
type SessionKind string

// The kinds of sessions.
const (
	KindMedia SessionKind = "media" // pinned to one slot of one worker
	KindCall  SessionKind = "call"  // two peers, each with a worker for its signaling; no slot
)

// SessionState is where a session stands in its life; see the package comment.
type SessionState string

// The states of a session.
const (
	SessionAssigned       SessionState = "assigned"
	SessionActive         SessionState = "active"
	SessionAwaitingRejoin SessionState = "awaiting_rejoin"
	SessionEnded          SessionState = "ended"
)

// HoldsSlot reports whether a media session in this state occupies a slot. A call never does.
func (s SessionState) HoldsSlot() bool { return s == SessionAssigned || s == SessionActive }

// Live reports whether a session in this state counts against its tenant's quota.
func (s SessionState) Live() bool { return s != SessionEnded }

// EndedReason says why a session ended.
type EndedReason string

// The reasons for which a session ends.
const (
	EndedLeft          EndedReason = "left"           // its last peer said bye
	EndedIdle          EndedReason = "idle"           // no peer was connected for its idle timeout
	EndedNoShow        EndedReason = "no_show"        // nobody connected before connect_by
	EndedExpired       EndedReason = "expired"        // its ttl passed
	EndedDeleted       EndedReason = "deleted"        // DELETE was called
	EndedDrained       EndedReason = "drained"        // its worker drained and it asked not to be moved
	EndedRejoinTimeout EndedReason = "rejoin_timeout" // nobody came back before rejoin_by
	EndedWorkerLost    EndedReason = "worker_lost"    // its worker died and it asked not to be moved
	EndedWorkerForgot  EndedReason = "worker_forgot"  // its live worker no longer knows it
)

// OnWorkerLoss is what happens to a session whose worker is lost.
type OnWorkerLoss string

// The policies on the loss of a worker.
const (
	LossRejoin  OnWorkerLoss = "rejoin"  // wait for a peer to rejoin, then place it (the default)
	LossReplace OnWorkerLoss = "replace" // place it elsewhere at once
	LossEnd     OnWorkerLoss = "end"     // end it
)

// Limits and defaults of a session.
const (
	MinTTL     = 10 * time.Second
	MaxTTL     = 24 * time.Hour
	DefaultTTL = time.Hour

	MinIdleTimeout     = 5 * time.Second
	MaxIdleTimeout     = time.Hour
	DefaultIdleTimeout = time.Minute

	// ConnectWindow is how long a placement waits for its first socket.
	ConnectWindow = 30 * time.Second

	MaxMetadataBytes = 8 << 10
	MaxMetadataDepth = 32

	// DefaultHandler serves a session that names none.
	DefaultHandler = "echo"
)

// Session is one row of berth.sessions. Times are the database's.
type Session struct {
	Key             SessionKey
	TenantID        string
	ID              string
	Kind            SessionKind
	State           SessionState
	Region          string // where it was placed last; empty before its first placement
	RequestedRegion string // empty: any
	Spill           bool   // may leave RequestedRegion when that is full
	WorkerID        string // owner; empty unless State.HoldsSlot
	Instance        Instance
	SignalingURL    string // the owner's; empty without an owner
	LastWorkerID    string // the owner before this one; empty if there was none
	Generation      Generation
	Handler         string
	OnWorkerLoss    OnWorkerLoss
	TTL             time.Duration
	IdleTimeout     time.Duration
	Metadata        json.RawMessage // a JSON object, or nil
	Slots           int             // weight
	Strategy        Strategy
	Selector        map[string]string // nil: any worker
	CreatedAt       time.Time
	ConnectBy       time.Time // zero unless State is assigned
	RejoinBy        time.Time // zero unless State is awaiting_rejoin
	ExpiresAt       time.Time
	EndedAt         time.Time // zero unless State is ended
	EndedReason     EndedReason
}

// Spilled reports whether the session was placed outside the region that was asked for.
func (s Session) Spilled() bool {
	return s.RequestedRegion != "" && s.Region != "" && s.Region != s.RequestedRegion
}

// Peer is one end of a session.
type Peer struct {
	ID           string
	Role         string
	User         string    // who connects, as the tenant knows them; empty: nobody to be sent direct messages
	WorkerID     string    // for its signaling; empty unless its session is a call
	ConnectionID string    // its current signaling connection; empty if none
	ConnectedAt  time.Time // zero unless connected
}

// Roles of a peer. In a media session, where the worker is the other end, any word will do; in a call one offers and the
// other answers.
const (
	RoleOffer  = "offer"
	RoleAnswer = "answer"

	// CallPeers is how many peers a call has.
	CallPeers = 2

	// MaxPeers is how many peers one media session may have.
	MaxPeers = 64
)
