package api

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// store is an in-memory berth with one worker per region entry: it places, ends and moves sessions by the rules of the
// domain, and counts every call that reached it.
type store struct {
	calls  atomic.Int64 // to sessions and workers; keys are not counted
	wakes  atomic.Int64
	hold   atomic.Bool  // the owner of every session is in question
	frozen atomic.Bool  // the database does not answer
	quota  int          // live sessions of a tenant; 0: no limit
	polls  atomic.Int64 // of the end of the history
	reads  atomic.Int64 // of the history
	keyAge atomic.Int64 // by how many nanoseconds remembered keys are older than they are

	mu         sync.Mutex
	shed       berth.ShedOrder // the last
	now        time.Time
	nextKey    berth.SessionKey
	generation berth.Generation
	sessions   []*stored
	workers    []berth.Worker
	keys       map[string]auth.KeyRecord
	refused    []berth.Code
	refusal    *berth.Refusal // of every Place
	limits     berth.Limits   // with every answer of Place
	starts     []berth.Start  // that reached Place
	remembered map[string]remembered
	history    []berth.Event
	regions    []berth.RegionCapacity
	fail       error         // what every call returns
	block      chan struct{} // what every Place waits for
	entered    chan struct{} // gets one element as a Place begins to wait
	afterRead  chan func()   // what the next reads of the history do before they return

	log       *slog.Logger // of the server; nil: the test's
	backplane *fakeBackplane
	users     map[string][]berth.UserConnections // by "tenant user"

	secrets    []secretOf
	renewals   []berth.Renewal // that reached Renew
	renewed    berth.RenewalAnswer
	reconciled [][]berth.Held
	dropped    []berth.Dropped
}

// remembered is what an Idempotency-Key made.
type remembered struct {
	hash    [32]byte
	session *stored
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
		entered: make(chan struct{}, 100), remembered: map[string]remembered{},
		afterRead: make(chan func(), 1),
		backplane: &fakeBackplane{Memory: backplane.NewMemory()}, users: map[string][]berth.UserConnections{},
	}
	s.renewed = berth.RenewalAnswer{Verdict: berth.RenewalOver, At: s.now}
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
	return s.look(ctx)
}

// look is enter for what no request asks for: the watch over the history goes on beside them.
func (s *store) look(ctx context.Context) error {
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
	s.starts = append(s.starts, start)
	if s.refusal != nil {
		return berth.Placement{Limits: s.limits}, s.refusal
	}
	placement, err := s.place(start)
	placement.Limits = s.limits
	return placement, err
}

func (s *store) place(start berth.Start) (berth.Placement, error) {
	if start.Region == "nowhere" {
		return berth.Placement{}, berth.Invalid("region", "is not configured")
	}
	if made, ok := s.remembered[start.TenantID+" "+start.IdempotencyKey]; ok && start.IdempotencyKey != "" {
		if made.hash != start.BodyHash {
			return berth.Placement{}, berth.Refuse(berth.CodeIdempotency, "The key was used for another body.")
		}
		return berth.Placement{Session: made.session.Session, Peer: made.session.peers[0], Replayed: true, At: s.now}, nil
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
			Slots: start.Slots, Strategy: cmp.Or(start.Strategy, berth.StrategySpread), Selector: start.Selector,
		},
	}
	peer, _ := x.peer(start.Peer)
	if err := s.assign(x); err != nil {
		return berth.Placement{}, err
	}
	s.sessions = append(s.sessions, x)
	s.remembered[start.TenantID+" "+start.IdempotencyKey] = remembered{start.BodyHash, x}
	s.happened(x, "created")
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
	if before.State.Live() {
		s.happened(x, "ended")
	}
	x.State, x.EndedAt, x.EndedReason, x.WorkerID = berth.SessionEnded, s.now, berth.EndedDeleted, ""
	return before, nil
}

// happened adds to the history. Two events make up a transaction.
func (s *store) happened(x *stored, what string) {
	n := len(s.history)
	s.history = append(s.history, berth.Event{
		Position: berth.Position{XID: uint64(1000 + n/2), ID: int64(1 + n)}, TenantID: x.TenantID, SessionID: x.ID, Key: x.Key, Type: what,
		Data: json.RawMessage(`{"worker_id": "w-1"}`), At: s.now,
	})
}

// happen adds an event of the newest session of that id.
func (s *store) happen(tenantID, id, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, err := s.newest(tenantID, id); err == nil {
		s.happened(x, what)
	}
}

func (s *store) Events(ctx context.Context, filter berth.EventFilter) ([]berth.Event, error) {
	s.reads.Add(1)
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer func() {
		select {
		case then := <-s.afterRead:
			then()
		default:
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	var page []berth.Event
	for _, e := range s.history {
		if comparePositions(e.Position, filter.After) > 0 && (filter.TenantID == "" || filter.TenantID == e.TenantID) &&
			(filter.Key == 0 || filter.Key == e.Key) && len(page) < filter.Limit {
			page = append(page, e)
		}
	}
	return page, nil
}

func (s *store) EventsEnd(ctx context.Context) (berth.Position, error) {
	s.polls.Add(1)
	if err := s.look(ctx); err != nil {
		return berth.Position{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.history) == 0 {
		return berth.Position{}, nil
	}
	return s.history[len(s.history)-1].Position, nil
}

func (s *store) Capacity(ctx context.Context) ([]berth.RegionCapacity, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.regions), nil
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

func (s *store) OrderShed(ctx context.Context, id string, _ berth.Instance, order berth.ShedOrder) error {
	_, err := s.change(ctx, id, func(*berth.Worker) { s.shed = order })
	return err
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

func (s *store) Clock(ctx context.Context) (time.Time, error) {
	if err := s.Ping(ctx); err != nil {
		return time.Time{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, nil
}

func (s *store) UserWorkers(ctx context.Context, tenantID, userID string) ([]berth.UserConnections, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users[tenantID+" "+userID], nil
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
