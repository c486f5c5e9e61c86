package api

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

// store is an in-memory berth with one worker per region entry: it places, ends and moves sessions by the rules of the
// domain, and counts every call that reached it.
type store struct {
	calls  atomic.Int64 // to sessions and workers; keys are not counted
	wakes  atomic.Int64
	hold   atomic.Bool // the owner of every session is in question
	frozen atomic.Bool // the database does not answer
	quota  int         // live sessions of a tenant; 0: no limit

	mu         sync.Mutex
	now        time.Time
	nextKey    berth.SessionKey
	generation berth.Generation
	sessions   []*stored
	workers    []berth.Worker
	keys       map[string]auth.KeyRecord
	refused    []berth.Code
	fail       error         // what every call returns
	block      chan struct{} // what every Place waits for
	entered    chan struct{} // gets one element as a Place begins to wait
}

type stored struct {
	berth.Session
	peers []berth.Peer
}

// peer finds the session's peer of that id, or adds it; without an id it adds a fresh one.
func (x *stored) peer(peer berth.Peer) (_ berth.Peer, created bool) {
	if i := slices.IndexFunc(x.peers, func(p berth.Peer) bool { return p.ID == peer.ID }); i >= 0 {
		return x.peers[i], false
	}
	peer.ID = cmp.Or(peer.ID, berth.NewID("p"))
	x.peers = append(x.peers, peer)
	return peer, true
}

func newStore() *store {
	s := &store{
		now: time.Date(2026, 1, 5, 10, 0, 0, 123456000, time.UTC), generation: 100, keys: map[string]auth.KeyRecord{},
		entered: make(chan struct{}, 100),
	}
	for _, id := range []string{"w-1", "w-2"} {
		s.workers = append(s.workers, berth.Worker{
			ID: id, Instance: 7, Region: "local", State: berth.WorkerReady, Capacity: 200, SignalingURL: "ws://127.0.0.1:7880/rtc?x=1",
			ControlURL: "http://127.0.0.1:1", Version: "test", RegisteredAt: s.now, RenewedAt: s.now, LeaseExpiresAt: s.now.Add(6 * time.Second),
		})
	}
	return s
}

// enter is the beginning of every call: it counts, and fails as the test wants.
func (s *store) enter(ctx context.Context) error {
	s.calls.Add(1)
	if s.frozen.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fail
}

func (s *store) setFail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *store) live(tenantID, id string) *stored {
	i := slices.IndexFunc(s.sessions, func(x *stored) bool { return x.TenantID == tenantID && x.ID == id && x.State.Live() })
	if i < 0 {
		return nil
	}
	return s.sessions[i]
}

func (s *store) newest(tenantID, id string) (*stored, error) {
	for _, x := range slices.Backward(s.sessions) {
		if x.TenantID == tenantID && x.ID == id {
			return x, nil
		}
	}
	return nil, berth.Refuse(berth.CodeNotFound, "There is no such session.")
}

// Place implements berth.Placer.
func (s *store) Place(ctx context.Context, start berth.Start) (berth.Placement, error) {
	if err := s.enter(ctx); err != nil {
		return berth.Placement{}, err
	}
	if s.block != nil {
		s.entered <- struct{}{}
		select {
		case <-s.block:
		case <-ctx.Done():
			return berth.Placement{}, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if start.Region == "nowhere" {
		return berth.Placement{}, berth.Invalid("region", "is not configured")
	}
	if x := s.live(start.TenantID, start.ID); x != nil {
		peer := x.peers[0]
		if start.Peer.ID != "" {
			peer, _ = x.peer(start.Peer)
		}
		return berth.Placement{Session: x.Session, Peer: peer, At: s.now}, nil
	}
	if s.quota > 0 && s.count(start.TenantID) >= s.quota {
		return berth.Placement{}, berth.Refuse(berth.CodeConcurrentSessions, "The tenant has as many live sessions as it may.")
	}
	s.nextKey++
	x := &stored{
		Session: berth.Session{
			Key: s.nextKey, TenantID: start.TenantID, ID: start.ID, Kind: start.Kind, RequestedRegion: start.Region, Spill: start.Spill,
			Handler: start.Handler, OnWorkerLoss: start.OnWorkerLoss, TTL: start.TTL, IdleTimeout: start.IdleTimeout,
			Metadata: start.Metadata, CreatedAt: s.now, ExpiresAt: s.now.Add(start.TTL),
		},
	}
	peer, _ := x.peer(start.Peer)
	if err := s.assign(x); err != nil {
		return berth.Placement{}, err
	}
	s.sessions = append(s.sessions, x)
	return berth.Placement{Session: x.Session, Peer: peer, Created: true, At: s.now}, nil
}

func (s *store) count(tenantID string) int {
	n := 0
	for _, x := range s.sessions {
		if x.TenantID == tenantID && x.State.Live() {
			n++
		}
	}
	return n
}

// assign takes a slot of a worker with the most free ones.
func (s *store) assign(x *stored) error {
	best := -1
	for i, w := range s.workers {
		if w.Free() > 0 && (best < 0 || w.Free() > s.workers[best].Free()) {
			best = i
		}
	}
	if best < 0 {
		return berth.Refuse(berth.CodeAtCapacity, "No worker has a free slot.")
	}
	w := &s.workers[best]
	w.Used++
	s.generation++
	x.State, x.WorkerID, x.Instance, x.SignalingURL, x.Region = berth.SessionAssigned, w.ID, w.Instance, w.SignalingURL, w.Region
	x.Generation, x.ConnectBy = s.generation, s.now.Add(berth.ConnectWindow)
	return nil
}

func (s *store) Session(ctx context.Context, tenantID, id string) (berth.Session, []berth.Peer, error) {
	if err := s.enter(ctx); err != nil {
		return berth.Session{}, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x, err := s.newest(tenantID, id)
	if err != nil {
		return berth.Session{}, nil, err
	}
	return x.Session, slices.Clone(x.peers), nil
}

func (s *store) SessionByKey(ctx context.Context, key berth.SessionKey) (berth.Session, error) {
	if err := s.enter(ctx); err != nil {
		return berth.Session{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if key < 1 || int(key) > len(s.sessions) {
		return berth.Session{}, berth.Refuse(berth.CodeNotFound, "There is no such session.")
	}
	return s.sessions[key-1].Session, nil
}

func (s *store) ListSessions(ctx context.Context, filter berth.SessionFilter) ([]berth.Session, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []berth.Session
	for _, x := range slices.Backward(s.sessions) {
		if filter.TenantID != "" && x.TenantID != filter.TenantID || filter.State != "" && x.State != filter.State ||
			filter.WorkerID != "" && x.WorkerID != filter.WorkerID || filter.Before > 0 && x.Key >= filter.Before || len(list) == filter.Limit {
			continue
		}
		list = append(list, x.Session)
	}
	return list, nil
}

func (s *store) EndSession(ctx context.Context, tenantID, id string) (berth.Session, error) {
	if err := s.enter(ctx); err != nil {
		return berth.Session{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x, err := s.newest(tenantID, id)
	if err != nil {
		return berth.Session{}, err
	}
	before := x.Session
	x.State, x.EndedAt, x.EndedReason, x.WorkerID = berth.SessionEnded, s.now, berth.EndedDeleted, ""
	return before, nil
}

func (s *store) AddPeer(ctx context.Context, tenantID, id string, peer berth.Peer) (berth.Placement, error) {
	if err := s.enter(ctx); err != nil {
		return berth.Placement{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x, err := s.newest(tenantID, id)
	if err != nil {
		return berth.Placement{}, err
	}
	if !x.State.Live() {
		return berth.Placement{}, berth.Refuse(berth.CodeSessionEnded, "The session has ended.")
	}
	peer, created := x.peer(peer)
	return berth.Placement{Session: x.Session, Peer: peer, Created: created, At: s.now}, nil
}

func (s *store) Rejoin(ctx context.Context, rejoin berth.Rejoin) (berth.RejoinAnswer, error) {
	if err := s.enter(ctx); err != nil {
		return berth.RejoinAnswer{}, err
	}
	if s.hold.Load() {
		return berth.RejoinAnswer{Outcome: berth.RejoinHold}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.sessions[rejoin.Key-1]
	if !x.State.Live() {
		return berth.RejoinAnswer{}, berth.Refuse(berth.CodeSessionEnded, "The session has ended.")
	}
	outcome := berth.RejoinCurrent
	if rejoin.Lost && rejoin.Generation == x.Generation {
		outcome = berth.RejoinPlaced
		if err := s.assign(x); err != nil {
			return berth.RejoinAnswer{}, err
		}
	}
	peer := berth.Peer{ID: rejoin.PeerID, Role: berth.RoleOffer}
	return berth.RejoinAnswer{Outcome: outcome, Placement: berth.Placement{Session: x.Session, Peer: peer, At: s.now}}, nil
}

func (s *store) Workers(ctx context.Context) ([]berth.Worker, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.workers), nil
}

func (s *store) Worker(ctx context.Context, id string) (berth.Worker, error) {
	return s.change(ctx, id, func(*berth.Worker) {})
}

func (s *store) DrainWorker(ctx context.Context, id string, deadline time.Duration, override bool) (berth.Worker, error) {
	return s.change(ctx, id, func(w *berth.Worker) {
		if w.DrainDeadline.IsZero() || override {
			w.State, w.DrainDeadline = berth.WorkerDraining, s.now.Add(deadline)
		}
	})
}

func (s *store) UndrainWorker(ctx context.Context, id string) (berth.Worker, error) {
	return s.change(ctx, id, func(w *berth.Worker) { w.State, w.DrainDeadline = berth.WorkerReady, time.Time{} })
}

func (s *store) change(ctx context.Context, id string, change func(*berth.Worker)) (berth.Worker, error) {
	if err := s.enter(ctx); err != nil {
		return berth.Worker{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.workers {
		if s.workers[i].ID == id {
			change(&s.workers[i])
			return s.workers[i], nil
		}
	}
	return berth.Worker{}, berth.Refuse(berth.CodeNotFound, "There is no such worker.")
}

func (s *store) Ping(ctx context.Context) error {
	if s.frozen.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fail
}

func (s *store) Wake() { s.wakes.Add(1) }

func (s *store) Record(_, _ string, code berth.Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = append(s.refused, code)
}

// KeyByID implements auth.KeyStore.
func (s *store) KeyByID(_ context.Context, id string) (auth.KeyRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return auth.KeyRecord{}, s.fail
	}
	record, ok := s.keys[id]
	if !ok {
		return auth.KeyRecord{}, auth.ErrKeyNotFound
	}
	return record, nil
}

// SigningKeys implements auth.SigningKeyStore. The key is older than the store's clock and newer than a month ago.
func (s *store) SigningKeys(context.Context) ([]auth.SigningKey, error) {
	key, err := auth.NewSigningKey(s.now.Add(-time.Hour))
	old, err2 := auth.NewSigningKey(time.Now().Add(-time.Hour))
	if err != nil {
		return nil, err
	}
	return []auth.SigningKey{key, old}, err2
}
