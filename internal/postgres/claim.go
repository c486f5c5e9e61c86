package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// contendedPause is how long a claim waits when the free slots it saw were locked by claims in flight.
	contendedPause = 2 * time.Millisecond
	// capacityHint is the wait suggested to a start that found no slot.
	capacityHint = 2 * time.Second
)

// ClaimResult is the answer to one element of a batch: a placement, or the reason why there is none.
type ClaimResult struct {
	Placement berth.Placement
	Err       error // nil, *berth.Refusal, or a bug
	Contended bool  // no placement, and a refusal would not be true: ask again shortly

	peerCreated bool // the placement's peer is new to its session
}

type claimRow struct {
	Ord         int
	Outcome     string
	SessionKey  *int64
	PeerID      *string
	PeerRole    *string
	PeerCreated bool
	Quota       *int
	GhostDue    *time.Time
	At          time.Time
}

// ClaimSessions places a batch in one statement. The results are in the order of starts. Its error is that of the
// statement: the outcome of the whole batch is unknown then, and each start may be repeated, since ids make it
// idempotent.
func (s *Store) ClaimSessions(ctx context.Context, starts []berth.Start) ([]ClaimResult, error) {
	return s.claim(ctx, starts, make([]*int64, len(starts)))
}

// claim is ClaimSessions for starts of which some may mean one row only: a start with a key finds or places that live
// row, and never makes another in its stead.
func (s *Store) claim(ctx context.Context, starts []berth.Start, only []*int64) ([]ClaimResult, error) {
	rows, err := collect[claimRow](ctx, s, "session_claim", s.claimArguments(starts, only)...)
	if err != nil {
		return nil, err
	}
	var keys []int64
	for _, row := range rows {
		if row.SessionKey != nil {
			keys = append(keys, *row.SessionKey)
		}
	}
	sessions, err := s.sessionsByKey(ctx, keys)
	if err != nil {
		return nil, err
	}
	results := make([]ClaimResult, len(starts))
	for _, row := range rows {
		results[row.Ord-1] = row.result(sessions)
	}
	return results, nil
}

// claimArguments turns starts into one array per column of the request.
func (s *Store) claimArguments(starts []berth.Start, only []*int64) []any {
	n := len(starts)
	tenants, ids, kinds := make([]string, n), make([]string, n), make([]string, n)
	peers, named, roles := make([]string, n), make([]bool, n), make([]string, n)
	regions, spills, handlers := make([]*string, n), make([]bool, n), make([]string, n)
	losses, ttls, idles, metadata := make([]string, n), make([]int32, n), make([]int32, n), make([]*string, n)
	for i, start := range starts {
		tenants[i], ids[i], kinds[i] = start.TenantID, start.ID, string(start.Kind)
		peers[i], named[i], roles[i] = start.Peer.ID, start.Peer.ID != "", start.Peer.Role
		if !named[i] {
			peers[i] = berth.NewID("p")
		}
		if start.Region != "" {
			regions[i] = &start.Region
		}
		spills[i], handlers[i], losses[i] = start.Spill, start.Handler, string(start.OnWorkerLoss)
		ttls[i], idles[i] = int32(start.TTL/time.Second), int32(start.IdleTimeout/time.Second)
		if len(start.Metadata) > 0 {
			text := string(start.Metadata)
			metadata[i] = &text
		}
	}
	return []any{
		tenants, ids, only, kinds, peers, named, roles, regions, spills, handlers, losses, ttls, idles, metadata,
		s.config.DefaultRegion, s.config.ConnectWindow.Seconds(), berth.MaxPeers,
	}
}

func (r claimRow) result(sessions map[berth.SessionKey]berth.Session) ClaimResult {
	switch r.Outcome {
	case "created", "replaced", "existing":
		return r.placed(sessions)
	case "contended":
		return ClaimResult{Contended: true}
	case "at_capacity":
		return ClaimResult{Err: &berth.Refusal{
			Code:       berth.CodeAtCapacity,
			Detail:     "No worker that this session may use has a free slot.",
			RetryAfter: capacityHint,
			Retryable:  true,
		}}
	case "concurrent_sessions":
		return ClaimResult{Err: r.quotaRefusal()}
	case "ended":
		return ClaimResult{Err: errSessionEnded()}
	case "conflict":
		return ClaimResult{Err: berth.Refuse(berth.CodeConflict, "A live session of another kind has this id.")}
	case "too_many_peers":
		return ClaimResult{Err: berth.Refuse(berth.CodeConflict,
			fmt.Sprintf("The session has %d peers already, which is the most that one may have.", berth.MaxPeers))}
	case "unknown_region":
		return ClaimResult{Err: berth.Invalid("region", "is not a configured region; leave it out for any")}
	case "unknown_tenant":
		return ClaimResult{Err: berth.Refuse(berth.CodeNotFound, "The tenant of this key does not exist.")}
	default:
		return ClaimResult{Err: fmt.Errorf("claim_sessions answered %q", r.Outcome)}
	}
}

func (r claimRow) placed(sessions map[berth.SessionKey]berth.Session) ClaimResult {
	session, found := sessions[berth.SessionKey(deref(r.SessionKey))]
	if !found {
		return ClaimResult{Err: fmt.Errorf("session of claim vanished: %w", berth.ErrUnavailable)}
	}
	if !session.State.HoldsSlot() {
		// It was displaced, or ended, before it could be read.
		return ClaimResult{Contended: true}
	}
	return ClaimResult{
		Placement: berth.Placement{
			Session: session,
			Peer:    berth.Peer{ID: deref(r.PeerID), Role: deref(r.PeerRole)},
			Created: r.Outcome == "created",
			At:      r.At,
		},
		peerCreated: r.PeerCreated,
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

// Place places one session and waits out contention. It implements berth.Placer without gathering starts.
func (s *Store) Place(ctx context.Context, start berth.Start) (berth.Placement, error) {
	result, err := s.place(ctx, start, nil)
	return result.Placement, err
}

// placeAgain finds or makes the placement of one live session, and refuses once it ended.
func (s *Store) placeAgain(ctx context.Context, session berth.Session, peer berth.Peer) (ClaimResult, error) {
	key := int64(session.Key)
	return s.place(ctx, restart(session, peer), &key)
}

func (s *Store) place(ctx context.Context, start berth.Start, only *int64) (ClaimResult, error) {
	for {
		results, err := s.claim(ctx, []berth.Start{start}, []*int64{only})
		if err != nil {
			return ClaimResult{}, err
		}
		if !results[0].Contended {
			return results[0], results[0].Err
		}
		select {
		case <-ctx.Done():
			return ClaimResult{}, fmt.Errorf("%w: %w", berth.ErrUnavailable, ctx.Err())
		case <-time.After(contendedPause):
		}
	}
}
