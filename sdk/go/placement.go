package berth

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// Placement says who owns a session, and holds what one peer needs to connect to that owner. It is JSON as the API
// sends it: a backend passes it on to the device that will connect. Treat it as a secret: it holds tokens.
type Placement struct {
	ID              string      `json:"id"`
	Kind            string      `json:"kind"`
	State           string      `json:"state"`
	Generation      int64       `json:"generation"` // grows with every placement
	Region          string      `json:"region"`
	RequestedRegion string      `json:"requested_region,omitempty"`
	Spilled         bool        `json:"spilled"` // placed outside the requested region
	Owner           Owner       `json:"owner"`
	Peer            Peer        `json:"peer"`
	Token           string      `json:"token"` // for the owner's signaling; needed to connect, not to stay
	TokenExpiresAt  time.Time   `json:"token_expires_at"`
	RejoinToken     string      `json:"rejoin_token"` // good until the session ends
	RejoinURL       string      `json:"rejoin_url"`
	ICEServers      []ICEServer `json:"ice_servers,omitempty"`
	CreatedAt       time.Time   `json:"created_at"`
	ConnectBy       time.Time   `json:"connect_by,omitzero"` // the slot is given back if nobody connects until then
	ExpiresAt       time.Time   `json:"expires_at"`

	// Replayed says that an earlier request with the same IdempotencyKey made the session: an attempt of this call whose
	// answer was lost, or a call before it. It is not part of the JSON.
	Replayed bool `json:"-"`
}

// LogValue names the placement without its tokens.
func (p Placement) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("session_id", p.ID),
		slog.Int64("generation", p.Generation),
		slog.String("worker_id", p.Owner.WorkerID),
		slog.String("peer_id", p.Peer.ID),
	)
}

// String names the placement without its tokens.
func (p Placement) String() string {
	return fmt.Sprintf("session %s, generation %d on %s", p.ID, p.Generation, p.Owner.WorkerID)
}

// Owner is the worker that serves a session.
type Owner struct {
	WorkerID     string `json:"worker_id"`
	SignalingURL string `json:"signaling_url"`
	WHIPURL      string `json:"whip_url,omitempty"`
}

// Peer is one end of a session.
type Peer struct {
	ID   string `json:"id,omitempty"`
	Role string `json:"role,omitempty"`

	// User is who the peer is to you: what is published to this user reaches it while it is connected. It is in the tokens of
	// the placement, and not kept with the session. Empty: nobody.
	User string `json:"user,omitempty"`

	// Topics is which topics the peer may use, in requests only. Nil: listen to every topic of the tenant, publish to none.
	Topics *TopicGrant `json:"topics,omitempty"`
}

// TopicGrant is which topics of its tenant a peer may use. A pattern is a topic, the beginning of one followed by "*", or "*"
// for every topic; a list has at most 16, and all together have at most 2048 characters.
type TopicGrant struct {
	Subscribe []string `json:"subscribe,omitzero"` // nil: every topic; empty: none
	Publish   []string `json:"publish,omitzero"`   // nil: none
}

// ICEServer is a STUN or TURN server, in the form of RTCIceServer.
type ICEServer struct {
	URLs       []string `json:"urls"`
	Username   string   `json:"username,omitempty"`
	Credential string   `json:"credential,omitempty"`
}

// LogValue names the server without its credential.
func (s ICEServer) LogValue() slog.Value { return slog.AnyValue(s.URLs) }

// Session is a session as the API reads it: a copy of its row, without tokens. A time that does not apply is zero.
type Session struct {
	ID                 string            `json:"id"`
	TenantID           string            `json:"tenant_id,omitzero"` // told to operators only
	Kind               string            `json:"kind"`
	State              string            `json:"state"` // assigned, active, awaiting_rejoin or ended
	Generation         int64             `json:"generation"`
	Region             string            `json:"region,omitzero"`           // where it was placed last
	RequestedRegion    string            `json:"requested_region,omitzero"` // empty: anywhere
	Spill              bool              `json:"spill"`
	Spilled            bool              `json:"spilled"`
	Slots              int               `json:"slots"`             // how many it takes while it has an owner
	Strategy           string            `json:"strategy,omitzero"` // spread or pack
	Selector           map[string]string `json:"selector,omitzero"` // nil: any worker would do
	Owner              *Owner            `json:"owner,omitzero"`    // nil: nobody owns it now
	Handler            string            `json:"handler"`
	OnWorkerLoss       string            `json:"on_worker_loss"`
	TTLSeconds         int               `json:"ttl_seconds"`
	IdleTimeoutSeconds int               `json:"idle_timeout_seconds"`
	Metadata           json.RawMessage   `json:"metadata,omitzero"` // as it was given: a JSON object
	CreatedAt          time.Time         `json:"created_at"`
	ConnectBy          time.Time         `json:"connect_by,omitzero"` // only while assigned
	RejoinBy           time.Time         `json:"rejoin_by,omitzero"`  // only while awaiting_rejoin
	ExpiresAt          time.Time         `json:"expires_at"`
	EndedAt            time.Time         `json:"ended_at,omitzero"`     // only once ended
	EndedReason        string            `json:"ended_reason,omitzero"` // only once ended
	Peers              []SessionPeer     `json:"peers,omitzero"`        // nil in lists
}

// SessionPeer is a peer of a session and whether it is connected.
type SessionPeer struct {
	Peer
	Connected   bool      `json:"connected"`
	ConnectedAt time.Time `json:"connected_at,omitzero"` // only while connected
}

// Worker is a worker as an operator sees it. A time that does not apply is zero.
type Worker struct {
	ID             string            `json:"id"`
	Instance       int64             `json:"instance"` // new at every start
	Region         string            `json:"region,omitzero"`
	State          string            `json:"state"` // starting, ready, draining, gone or lost
	CordonedReason string            `json:"cordoned_reason,omitzero"`
	SuspectReason  string            `json:"suspect_reason,omitzero"` // why it gets sessions only when nothing else is free
	Labels         map[string]string `json:"labels"`                  // what a selector asks for
	Capacity       int               `json:"capacity"`                // slots
	Used           int               `json:"used"`                    // slots taken
	Free           int               `json:"free"`                    // slots that could be taken now; 0 unless ready and not cordoned
	SignalingURL   string            `json:"signaling_url"`
	ControlURL     string            `json:"control_url"`
	Version        string            `json:"version"`
	RegisteredAt   time.Time         `json:"registered_at"`
	RenewedAt      time.Time         `json:"renewed_at,omitzero"`
	LeaseExpiresAt time.Time         `json:"lease_expires_at,omitzero"`
	DrainDeadline  time.Time         `json:"drain_deadline,omitzero"` // only while draining
}
