package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// maxWaiters bounds the starts that wait for capacity, over all processes. Beyond it they are refused.
const maxWaiters = 10_000

// claimRequest asks for one placement. One that means a row only finds or places that live row, and never makes another
// in its stead.
type claimRequest struct {
	start berth.Start
	only  *int64
}

// claimed is what a claim answers: a placement, a place in the queue, or a refusal.
type claimed struct {
	placement   berth.Placement
	refusal     error // *berth.Refusal, or a bug
	waiter      int64 // number in the queue; zero: it does not wait
	peerCreated bool  // the placement's peer is new to its session
}

type claimRow struct {
	Ord             int
	Outcome         string
	Waiter          *int64
	SessionKey      *int64
	Replayed        bool
	Generation      *int64
	Region          *string
	RequestedRegion *string
	WorkerID        *string
	Instance        *int32
	SignalingURL    *string
	PeerID          *string
	PeerRole        *string
	PeerCreated     bool
	Quota           *int
	Live            *int
	StartRate       *float64
	StartBurst      *int
	Tokens          *float64
	WaitSeconds     *float64
	GhostDue        *time.Time
	At              time.Time
}

// Place places one session. Concurrent starts share a statement; see batcher. A caller that leaves is not placed, or
// its slots are released at once.
func (s *Store) Place(ctx context.Context, start berth.Start) (berth.Placement, error) {
	if start.IdempotencyKey != "" {
		done, err := s.inFlight.begin(start.TenantID, start.IdempotencyKey)
		if err != nil {
			return berth.Placement{}, err
		}
		defer done()
	}
	answer, err := s.place(ctx, claimRequest{start: start})
	return answer.placement, err
}

// placeAgain finds or makes the placement of one live session, and refuses once it ended.
func (s *Store) placeAgain(ctx context.Context, session berth.Session, peer berth.Peer) (claimed, error) {
	key := int64(session.Key)
	return s.place(ctx, claimRequest{start: restart(session, peer), only: &key})
}

func (s *Store) place(ctx context.Context, request claimRequest) (claimed, error) {
	answer, err := s.claims.do(ctx, request)
	if err != nil {
		return claimed{}, err
	}
	if answer.waiter != 0 {
		answer, err = s.queue.wait(ctx, request, answer)
		if err != nil {
			return claimed{}, err
		}
	}
	if refusal, ok := errors.AsType[*berth.Refusal](answer.refusal); ok && refusal.Code == berth.CodeAtCapacity {
		answer.refusal = s.turnover.refusal(ctx, request.start)
	}
	return answer, answer.refusal
}

// claimBatch is the claims' batch: one autocommit statement, so that a process that stops in the middle holds no locks.
func (s *Store) claimBatch(ctx context.Context, requests []claimRequest) ([]verdict[claimed], error) {
	if len(requests) == 0 {
		return nil, nil
	}
	rows, err := write[claimRow](ctx, s, "session_claim", s.claimArguments(requests)...)
	if err != nil {
		return nil, err
	}
	stored, err := s.storedSessions(ctx, rows)
	verdicts := make([]verdict[claimed], len(requests))
	for _, row := range rows {
		i := row.Ord - 1
		if err != nil && row.stored() {
			verdicts[i].err = err // the others have their answers
			continue
		}
		verdicts[i] = row.verdict(requests[i].start, stored, s.config.ConnectWindow)
	}
	return verdicts, nil
}

// stored says whether the answer is about a row that was there before.
func (r claimRow) stored() bool { return r.Outcome == "existing" || r.Outcome == "replaced" }

// storedSessions reads the rows that were there before the claim. What it made itself it need not read.
func (s *Store) storedSessions(ctx context.Context, rows []claimRow) (map[berth.SessionKey]berth.Session, error) {
	var keys []int64
	for _, row := range rows {
		if row.stored() {
			keys = append(keys, deref(row.SessionKey))
		}
	}
	return s.sessionsByKey(ctx, keys)
}

// claimArguments turns requests into one array per column.
func (s *Store) claimArguments(requests []claimRequest) []any {
	n := len(requests)
	tenants, ids, named, only := make([]string, n), make([]string, n), make([]bool, n), make([]*int64, n)
	kinds, peers, peersNamed, roles := make([]string, n), make([]string, n), make([]bool, n), make([]string, n)
	regions, spills, handlers := make([]*string, n), make([]bool, n), make([]string, n)
	losses, ttls, idles, metadata := make([]string, n), make([]int32, n), make([]int32, n), make([]*string, n)
	slots, strategies, selectors := make([]int32, n), make([]*string, n), make([]*string, n)
	keys, hashes, waits := make([]*string, n), make([][]byte, n), make([]float64, n)
	leads, first := make([]int32, n), make(map[[2]string]int32, n)
	for i, request := range requests {
		start := request.start
		tenants[i], ids[i], named[i], only[i] = start.TenantID, start.ID, start.IDChosen || request.only != nil, request.only
		kinds[i], peers[i], peersNamed[i], roles[i] = string(start.Kind), start.Peer.ID, start.Peer.ID != "", start.Peer.Role
		if !peersNamed[i] {
			peers[i] = berth.NewID("p")
		}
		regions[i], spills[i], handlers[i] = nonzero(start.Region), start.Spill, start.Handler
		losses[i], metadata[i] = string(start.OnWorkerLoss), nonzero(string(start.Metadata))
		ttls[i], idles[i] = int32(start.TTL/time.Second), int32(start.IdleTimeout/time.Second)
		slots[i], strategies[i], selectors[i] = weight(start), nonzero(string(start.Strategy)), labels(start.Selector)
		if start.IdempotencyKey != "" {
			keys[i], hashes[i] = &start.IdempotencyKey, start.BodyHash[:]
		}
		if start.Kind != berth.KindCall { // which waits for no slot
			waits[i] = start.Wait.Seconds()
		}
		name := [2]string{start.TenantID, start.ID}
		if first[name] == 0 {
			first[name] = int32(i + 1)
		}
		leads[i] = first[name]
	}
	return []any{
		tenants, ids, named, leads, only, kinds, peers, peersNamed, roles, regions, spills, handlers, losses, ttls, idles, metadata,
		slots, strategies, selectors, keys, hashes, waits, s.config.DefaultRegion, s.config.ConnectWindow.Seconds(),
		s.config.RejoinWindow.Seconds(), berth.MaxPeers, s.queue.owner(), maxWaiters,
	}
}

// weight is how many slots a start takes; a call takes none.
func weight(start berth.Start) int32 {
	if start.Kind == berth.KindCall {
		return 0
	}
	return int32(max(1, start.Slots))
}

// nonzero is a pointer to v, or nil for the zero value.
func nonzero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// labels are the JSON of a selector, or nil for none.
func labels(selector map[string]string) *string {
	if len(selector) == 0 {
		return nil
	}
	text, err := json.Marshal(selector)
	if err != nil {
		return nil // strings always have JSON
	}
	return new(string(text))
}

func (r claimRow) verdict(
	start berth.Start, stored map[berth.SessionKey]berth.Session, connectWindow time.Duration,
) verdict[claimed] {
	switch r.Outcome {
	case "created":
		placement := r.placement(r.created(start, connectWindow))
		placement.Created = true
		return verdict[claimed]{result: claimed{placement: placement, peerCreated: true}}
	case "replaced", "existing":
		session, found := stored[berth.SessionKey(deref(r.SessionKey))]
		if !found || session.Kind == berth.KindMedia && !session.State.HoldsSlot() {
			return verdict[claimed]{again: true} // displaced, or ended, before it could be read
		}
		if session.Kind == berth.KindCall {
			session = r.seated(session)
		}
		return verdict[claimed]{result: claimed{placement: r.placement(session), peerCreated: r.PeerCreated}}
	case "contended":
		return verdict[claimed]{again: true}
	case "waiting":
		return verdict[claimed]{result: claimed{waiter: deref(r.Waiter), placement: r.placement(berth.Session{})}}
	default:
		return verdict[claimed]{result: claimed{refusal: r.refusal(), placement: r.placement(berth.Session{})}}
	}
}
