package postgres

import (
	"fmt"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// created is the session that a claim made: what was asked for, and what the claim decided.
func (r claimRow) created(start berth.Start, connectWindow time.Duration) berth.Session {
	return berth.Session{
		Key:             berth.SessionKey(deref(r.SessionKey)),
		TenantID:        start.TenantID,
		ID:              start.ID,
		Kind:            start.Kind,
		State:           berth.SessionAssigned,
		Region:          deref(r.Region),
		RequestedRegion: deref(r.RequestedRegion),
		Spill:           start.Spill,
		WorkerID:        deref(r.WorkerID),
		Instance:        berth.Instance(deref(r.Instance)),
		SignalingURL:    deref(r.SignalingURL),
		Generation:      berth.Generation(deref(r.Generation)),
		Handler:         start.Handler,
		OnWorkerLoss:    start.OnWorkerLoss,
		TTL:             start.TTL,
		IdleTimeout:     start.IdleTimeout,
		Metadata:        start.Metadata,
		Slots:           int(weight(start)),
		Strategy:        start.Strategy,
		Selector:        start.Selector,
		CreatedAt:       r.At,
		ConnectBy:       r.At.Add(connectWindow),
		ExpiresAt:       r.At.Add(start.TTL),
	}
}

// seated is a call as one of its peers sees it: its owner is the worker of that peer.
func (r claimRow) seated(session berth.Session) berth.Session {
	session.WorkerID, session.Instance = deref(r.WorkerID), berth.Instance(deref(r.Instance))
	session.SignalingURL = deref(r.SignalingURL)
	return session
}

func (r claimRow) placement(session berth.Session) berth.Placement {
	return berth.Placement{
		Session:  session,
		Peer:     berth.Peer{ID: deref(r.PeerID), Role: deref(r.PeerRole)},
		At:       r.At,
		Replayed: r.Replayed,
		Limits: berth.Limits{
			MaxConcurrent: r.Quota,
			Live:          deref(r.Live),
			StartRate:     deref(r.StartRate),
			StartBurst:    deref(r.StartBurst),
			Tokens:        deref(r.Tokens),
		},
	}
}

// refusal is why there is no placement.
func (r claimRow) refusal() error {
	switch r.Outcome {
	case "at_capacity", "no_seat":
		return errAtCapacity()
	case "concurrent_sessions":
		return r.quotaRefusal()
	case "rate_limited":
		return &berth.Refusal{
			Code:       berth.CodeStartRateLimited,
			Detail:     fmt.Sprintf("The tenant may start %g sessions per second.", deref(r.StartRate)),
			RetryAfter: max(time.Second, seconds(deref(r.WaitSeconds))),
			Retryable:  true,
		}
	case "in_flight":
		return errInFlight()
	case "mismatch":
		return berth.Refuse(berth.CodeIdempotency,
			"This Idempotency-Key came with another body before. Send a new key with a new request.")
	case "ended":
		return errSessionEnded()
	case "conflict":
		return berth.Refuse(berth.CodeConflict, "A live session of another kind has this id.")
	case "too_many_peers":
		return berth.Refuse(berth.CodeConflict,
			fmt.Sprintf("The session has all the peers that it may have: %d, or %d if it is a call.", berth.MaxPeers, berth.CallPeers))
	case "unknown_region":
		return berth.Invalid("region", "is not a configured region; leave it out for any")
	case "unknown_tenant":
		return berth.Refuse(berth.CodeNotFound, "The tenant of this key does not exist.")
	default:
		return fmt.Errorf("claim_sessions answered %q", r.Outcome)
	}
}

func errAtCapacity() *berth.Refusal {
	return &berth.Refusal{
		Code:      berth.CodeAtCapacity,
		Detail:    "No worker that this session may use has the free slots.",
		Retryable: true,
	}
}

// quotaRefusal tells when ghosts alone would clear the quota, since waiting for live sessions does not help.
func (r claimRow) quotaRefusal() error {
	refusal := &berth.Refusal{
		Code:   berth.CodeConcurrentSessions,
		Detail: fmt.Sprintf("The tenant has its %d concurrent sessions. End one to start another.", deref(r.Quota)),
	}
	if r.GhostDue != nil {
		refusal.Retryable = true
		refusal.RetryAfter = max(time.Second, r.GhostDue.Sub(r.At))
	}
	return refusal
}
