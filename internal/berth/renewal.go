package berth

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"time"
)

// Registration introduces one start of a worker.
type Registration struct {
	WorkerID     string
	Instance     Instance // whose presence lock the caller holds already
	Region       string
	Capacity     int
	SignalingURL string
	ControlURL   string
	Version      string
	Labels       map[string]string // what selectors ask for; nil: none
	Lease        time.Duration
	RenewalHash  []byte // SHA-256 of the secret that API replicas ask for; nil: none may renew for it
}

// RenewalSecret is what an instance proves itself with when an API replica renews for it.
type RenewalSecret struct {
	Instance Instance
	Hash     []byte // SHA-256
}

// Held names one session that a worker serves, at the generation it serves it for.
type Held struct {
	Key        SessionKey
	Generation Generation
}

// Renewal is a worker's periodic word that it lives, with a count and a digest of the sessions it serves, so that
// the common answer costs no list.
type Renewal struct {
	WorkerID string
	Instance Instance
	Count    int
	Digest   uint64 // see Digest
	Lease    time.Duration
	Relayed  bool  // an API replica asks in the worker's name
	ShedSeen int64 // number of the order to shed that came last, which acknowledges it; zero: none
}

// RenewalVerdict is the database's answer to a worker that renews.
type RenewalVerdict string

// The verdicts on a renewal.
const (
	RenewalYours    RenewalVerdict = "yours"    // the lease runs on
	RenewalReplaced RenewalVerdict = "replaced" // a newer instance holds the id
	RenewalOver     RenewalVerdict = "over"     // the worker was declared lost, or left
)

// RenewalAnswer says whether the lease runs on, and what the worker should know.
type RenewalAnswer struct {
	Verdict       RenewalVerdict
	State         WorkerState
	DrainDeadline time.Time // zero unless draining
	Matched       bool      // count and digest agree; if not, call Reconcile
	At            time.Time // the database's clock
	ExpiresAt     time.Time // of the lease, by that clock
	Shed          ShedOrder
}

// Dropped is one session that a worker serves and should not.
type Dropped struct {
	Held
	Ended  bool // false: it moved, or waits for a rejoin
	Reason EndedReason
}

// Digest is the order-free digest of the sessions that a worker serves: the exclusive or of the first eight bytes
// of SHA-256 over "key:generation". The SQL function berth.held_digest computes the same.
func Digest(held []Held) uint64 {
	var digest uint64
	for _, h := range held {
		text := strconv.FormatInt(int64(h.Key), 10) + ":" + strconv.FormatInt(int64(h.Generation), 10)
		sum := sha256.Sum256([]byte(text))
		digest ^= binary.BigEndian.Uint64(sum[:8])
	}
	return digest
}

// Connect is a peer's first authenticated socket on its session's owner.
type Connect struct {
	Held
	WorkerID string
	Instance Instance
	Peer     Peer // its ID, Role and ConnectionID
}

// Connected is what a worker needs to serve a session that a peer just connected to.
type Connected struct {
	Session Session
	Peers   []Peer // the others that are connected now
	Again   bool   // a peer of a call that was connected to it before
	At      time.Time
}

// Disconnect tells that a peer's socket is gone. It affects nothing once a newer connection took its place.
type Disconnect struct {
	Held
	PeerID       string
	ConnectionID string
	Left         bool // it said bye, which ends a call
	Shed         bool // of a call: it was closed to be moved, and has to be placed anew
}

// CallNotice is a peer of a call that was lost, which the other peer was not told of yet.
type CallNotice struct {
	Key    SessionKey
	PeerID string
	Role   string

	ConnectionID string // the one that was lost
	Survivor     string // the worker to which the other peer is connected; empty: it is not, or nobody asked

	Cause string // worker_lost, worker_late, newer_instance, drain_deadline, worker_left, moved or lost
}

// Message is what the other peer's worker is told.
func (n CallNotice) Message() CallMessage {
	return CallMessage{
		Type: CallDisconnected, PeerID: n.PeerID, Role: n.Role, Reason: n.Cause, Connection: n.ConnectionID,
	}
}

// End asks to end one session, for a reason, if it is still at this generation.
type End struct {
	Held
	Reason EndedReason
}
