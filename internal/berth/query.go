package berth

import (
	"encoding/json"
	"time"
)

// SessionFilter selects sessions for a list, newest first.
type SessionFilter struct {
	TenantID string // empty: every tenant (operators only)
	State    SessionState
	WorkerID string
	Before   SessionKey // only keys below this one; zero: from the newest
	Limit    int
}

// Position is a place in the history of sessions. Positions grow in the order in which transactions became visible to
// readers that stay below the oldest transaction still running, so none is ever skipped.
type Position struct {
	XID uint64 // of the transaction that wrote the event
	ID  int64
}

// Event is one line of the history of a session.
type Event struct {
	Position  Position
	TenantID  string
	SessionID string
	Key       SessionKey
	Type      string          // created, replaced, active, peer_connected, peer_disconnected, displaced, ended
	Data      json.RawMessage // an object; its members depend on Type
	At        time.Time
}

// EventFilter selects events of one session, one tenant or everybody, oldest first.
type EventFilter struct {
	TenantID string     // empty: every tenant (operators only)
	Key      SessionKey // zero: every session
	After    Position
	Limit    int
}

// RegionCapacity sums up the workers of one region, and who waits for them.
type RegionCapacity struct {
	Region          string // empty: of no region, for starts that wait for a slot anywhere
	WorkersReady    int    // that get sessions: ready, and not cordoned
	WorkersDraining int
	Slots           int      // of workers that serve
	Used            int      // slots taken
	Free            int      // slots that a claim could take now
	Waiting         int      // starts that wait for room
	Spill           []string // where starts go when it is full, in this order
}
