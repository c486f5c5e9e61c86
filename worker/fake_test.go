package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/signaling"
)

// fakeRegistry works like the database for one worker id: instances, presence, leases, draining, sessions.
type fakeRegistry struct {
	now      func() time.Time
	mu       sync.Mutex
	away     bool          // every call fails
	hang     bool          // every call waits for its context
	lag      time.Duration // a renewal is answered that long after it took effect
	noMoves  bool          // Displace waits for its context
	serial   berth.Instance
	present  map[berth.Instance]*fakePresence
	instance berth.Instance // registered
	lease    time.Time
	state    berth.WorkerState
	deadline time.Time
	shed     berth.ShedOrder                 // of each answer until it is acknowledged
	sessions map[berth.SessionKey]berth.Held // placed here and active
	lacked   map[berth.SessionKey]time.Time  // by the worker, since its last reconciliation
	ended    map[berth.SessionKey]berth.EndedReason
	renewals []time.Time
	displace [][]berth.SessionKey
	moved    []time.Time // of each displaced session
	drains   int
	hash     []byte // of the secret of the registered instance
	relays   int    // renewals that replicas asked for
}

func newFakeRegistry() *fakeRegistry {
	return &fakeRegistry{
		now:      time.Now,
		present:  map[berth.Instance]*fakePresence{},
		sessions: map[berth.SessionKey]berth.Held{},
		lacked:   map[berth.SessionKey]time.Time{},
		ended:    map[berth.SessionKey]berth.EndedReason{},
	}
}

type fakePresence struct {
	registry *fakeRegistry
	instance berth.Instance
	done     chan struct{}
}

func (p *fakePresence) Done() <-chan struct{} { return p.done }

func (p *fakePresence) Close(context.Context) error {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	p.drop()
	return nil
}

// drop ends the connection. It is called with the registry locked.
func (p *fakePresence) drop() {
	if p.registry.present[p.instance] == p {
		delete(p.registry.present, p.instance)
		close(p.done)
	}
}

func (r *fakeRegistry) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// counts is what tests ask a registry.
type counts struct {
	renewals, present, moved, drains int
	serial                           berth.Instance
	state                            berth.WorkerState
	moves                            [][]berth.SessionKey
}

func (r *fakeRegistry) counts() counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return counts{
		renewals: len(r.renewals), present: len(r.present), moved: len(r.moved), drains: r.drains,
		serial: r.serial, state: r.state, moves: r.displace,
	}
}

func (r *fakeRegistry) endedAs(key berth.SessionKey) berth.EndedReason {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended[key]
}

func (r *fakeRegistry) leaseEnd() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lease
}

// enter locks the registry for one call, or fails as the database would.
func (r *fakeRegistry) enter(ctx context.Context) error {
	r.mu.Lock()
	if r.hang {
		r.mu.Unlock()
		<-ctx.Done()
		return fmt.Errorf("%w: %w", berth.ErrUnavailable, ctx.Err())
	}
	if r.away {
		r.mu.Unlock()
		return berth.ErrUnavailable
	}
	return nil
}

func (r *fakeRegistry) NextInstance(ctx context.Context) (berth.Instance, error) {
	if err := r.enter(ctx); err != nil {
		return 0, err
	}
	defer r.mu.Unlock()
	r.serial++
	return r.serial, nil
}

func (r *fakeRegistry) Presence(ctx context.Context, instance berth.Instance) (berth.Presence, error) {
	if err := r.enter(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	if r.present[instance] != nil {
		return nil, errors.New("lock is held")
	}
	p := &fakePresence{registry: r, instance: instance, done: make(chan struct{})}
	r.present[instance] = p
	return p, nil
}

func (r *fakeRegistry) Register(ctx context.Context, reg berth.Registration) (bool, error) {
	if err := r.enter(ctx); err != nil {
		return false, err
	}
	defer r.mu.Unlock()
	if r.present[reg.Instance] == nil {
		return false, errors.New("registered without presence")
	}
	if reg.Instance < r.instance {
		return false, berth.ErrStale
	}
	if r.present[r.instance] != nil && r.now().Before(r.lease) && r.instance != reg.Instance {
		return true, nil
	}
	r.instance, r.state, r.lease = reg.Instance, berth.WorkerStarting, r.now().Add(reg.Lease)
	r.hash = reg.RenewalHash
	clear(r.sessions)
	clear(r.lacked)
	return false, nil
}

func (r *fakeRegistry) Open(ctx context.Context, _ string, instance berth.Instance) error {
	if err := r.enter(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	if instance != r.instance {
		return berth.ErrStale
	}
	r.state = berth.WorkerReady
	return nil
}

func (r *fakeRegistry) Renew(ctx context.Context, renewal berth.Renewal) (berth.RenewalAnswer, error) {
	if err := r.enter(ctx); err != nil {
		return berth.RenewalAnswer{}, err
	}
	r.renewals = append(r.renewals, r.now())
	answer, lag := r.answer(renewal), r.lag
	r.mu.Unlock()
	select {
	case <-time.After(lag):
		return answer, nil
	case <-ctx.Done(): // it took effect, and nobody learns of it
		return berth.RenewalAnswer{}, fmt.Errorf("%w: %w", berth.ErrUnavailable, ctx.Err())
	}
}

// answer is what becomes of a renewal, whichever way it came. It is called with the registry locked.
func (r *fakeRegistry) answer(renewal berth.Renewal) berth.RenewalAnswer {
	now := r.now()
	switch {
	case renewal.Instance < r.instance:
		return berth.RenewalAnswer{Verdict: berth.RenewalReplaced, At: now}
	case !r.state.Serving():
		return berth.RenewalAnswer{Verdict: berth.RenewalOver, At: now}
	}
	r.lease = now.Add(renewal.Lease)
	held := r.placed()
	if renewal.ShedSeen == r.shed.Number {
		r.shed = berth.ShedOrder{}
	}
	return berth.RenewalAnswer{
		Shed:    r.shed,
		Verdict: berth.RenewalYours, State: r.state, DrainDeadline: r.deadline, At: now, ExpiresAt: r.lease,
		Matched: len(held) == renewal.Count && berth.Digest(held) == renewal.Digest,
	}
}

func (r *fakeRegistry) placed() []berth.Held {
	var held []berth.Held
	for _, h := range r.sessions {
		held = append(held, h)
	}
	return held
}

func (r *fakeRegistry) Reconcile(
	ctx context.Context, _ string, _ berth.Instance, held []berth.Held,
) ([]berth.Dropped, error) {
	if err := r.enter(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	return r.compare(held), nil
}

// compare is called with the registry locked.
func (r *fakeRegistry) compare(held []berth.Held) []berth.Dropped {
	r.forget(held)
	var dropped []berth.Dropped
	for _, h := range held {
		if r.sessions[h.Key] != h {
			reason, ended := r.ended[h.Key]
			dropped = append(dropped, berth.Dropped{Held: h, Ended: ended, Reason: reason})
		}
	}
	return dropped
}

// forget ends what the worker lacks at two reconciliations that are a second apart.
func (r *fakeRegistry) forget(held []berth.Held) {
	for key, h := range r.sessions {
		since, lacked := r.lacked[key]
		switch {
		case slices.Contains(held, h):
			delete(r.lacked, key)
		case !lacked:
			r.lacked[key] = r.now()
		case r.now().Sub(since) > time.Second:
			delete(r.sessions, key)
			r.ended[key] = berth.EndedWorkerForgot
		}
	}
}

func (r *fakeRegistry) Drain(ctx context.Context, _ string, instance berth.Instance, deadline time.Duration) error {
	if err := r.enter(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	if instance != r.instance {
		return berth.ErrStale
	}
	r.drains++
	if r.state == berth.WorkerReady {
		r.state, r.deadline = berth.WorkerDraining, r.now().Add(deadline)
	}
	return nil
}

func (r *fakeRegistry) Leave(ctx context.Context, _ string, instance berth.Instance) error {
	if err := r.enter(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	if instance != r.instance {
		return berth.ErrStale
	}
	r.state = berth.WorkerGone
	clear(r.sessions)
	return nil
}

func (r *fakeRegistry) ConnectPeer(ctx context.Context, c berth.Connect) (berth.Connected, error) {
	if err := r.enter(ctx); err != nil {
		return berth.Connected{}, err
	}
	defer r.mu.Unlock()
	if c.Instance != r.instance {
		return berth.Connected{}, berth.ErrStale
	}
	if _, ended := r.ended[c.Key]; ended {
		return berth.Connected{}, berth.Refuse(berth.CodeSessionEnded, "ended")
	}
	r.sessions[c.Key] = c.Held
	now := time.Now()
	return berth.Connected{
		Session: berth.Session{
			Key: c.Key, ID: fmt.Sprintf("s-%d", c.Key), Generation: c.Generation,
			IdleTimeout: time.Minute, ExpiresAt: now.Add(time.Hour),
		},
		At: now,
	}, nil
}

func (r *fakeRegistry) OtherPeers(ctx context.Context, _ berth.SessionKey, _ berth.Peer) ([]berth.Peer, error) {
	if err := r.enter(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	return nil, nil
}

func (r *fakeRegistry) DisconnectPeer(ctx context.Context, _ berth.Disconnect) error {
	if err := r.enter(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	return nil
}

func (r *fakeRegistry) EndSessions(ctx context.Context, ends []berth.End) error {
	if err := r.enter(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	for _, e := range ends {
		delete(r.sessions, e.Key)
		r.ended[e.Key] = e.Reason
	}
	return nil
}

func (r *fakeRegistry) Displace(ctx context.Context, _ string, _ berth.Instance, keys []berth.SessionKey) error {
	if err := r.enter(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	if r.noMoves {
		r.mu.Unlock()
		<-ctx.Done()
		r.mu.Lock()
		return fmt.Errorf("%w: %w", berth.ErrUnavailable, ctx.Err())
	}
	if keys == nil {
		keys = slices.Collect(maps.Keys(r.sessions))
	}
	r.displace = append(r.displace, keys)
	for _, k := range keys {
		delete(r.sessions, k)
		r.moved = append(r.moved, time.Now())
	}
	return nil
}

// fakeHub keeps sessions as the real one does, without sockets.
type fakeHub struct {
	mu        sync.Mutex
	admission signaling.Admission
	sessions  map[berth.SessionKey]signaling.Served
	fates     map[berth.SessionKey]signaling.Fate
	absent    []berth.Held               // their clients were told to come back
	watch     func(key berth.SessionKey) // is told of drops; may be nil
	shed      int                        // connections that were to be shed
}

func newFakeHub() *fakeHub {
	return &fakeHub{
		sessions: map[berth.SessionKey]signaling.Served{}, fates: map[berth.SessionKey]signaling.Fate{},
	}
}

func (h *fakeHub) Shed(order berth.ShedOrder) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shed += order.Count
	return order.Count
}

func (h *fakeHub) Admit(a signaling.Admission) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.admission = a
}

func (h *fakeHub) admits() signaling.Admission {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.admission
}

func (h *fakeHub) Held() []berth.Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := slices.Clone(h.absent)
	for _, s := range h.sessions {
		held = append(held, s.Held)
	}
	return held
}

func (h *fakeHub) Serving() []signaling.Served {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []signaling.Served
	for _, s := range h.sessions {
		list = append(list, s)
	}
	return list
}

func (h *fakeHub) Drop(held berth.Held, fate signaling.Fate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fate.AsOf = time.Time{} // it changes nothing here: nobody joins while the database is asked
	h.absent = slices.DeleteFunc(h.absent, func(other berth.Held) bool { return other == held })
	if h.sessions[held.Key].Held == held {
		if h.watch != nil {
			h.watch(held.Key)
		}
		delete(h.sessions, held.Key)
		h.fates[held.Key] = fate
		if fate.Return {
			h.absent = append(h.absent, held)
		}
	}
}

func (h *fakeHub) DropAll(fate signaling.Fate) {
	for _, s := range h.Serving() {
		h.Drop(s.Held, fate)
	}
	if !fate.Return {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.absent = nil
	}
}

func (h *fakeHub) fate(key berth.SessionKey) (signaling.Fate, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, ok := h.fates[key]
	return f, ok
}

// fakeVerifier accepts "key.generation.session.peer", and the nudge "nudge".
type fakeVerifier struct{}

func (fakeVerifier) Verify(_ context.Context, token string, _ time.Time) (auth.SessionToken, error) {
	part := strings.Split(token, ".")
	var t auth.SessionToken
	if len(part) != 4 {
		return t, auth.ErrTokenInvalid
	}
	if part[0] == "away" {
		return t, auth.ErrUnavailable
	}
	if _, err := fmt.Sscan(part[0]+" "+part[1], &t.SessionKey, &t.Generation); err != nil {
		return t, auth.ErrTokenInvalid
	}
	t.SessionID, t.PeerID, t.Role = part[2], part[3], berth.RoleOffer
	return t, nil
}

func (fakeVerifier) VerifyNudge(_ context.Context, nudge string, instance berth.Instance, _ time.Time) error {
	if nudge != "nudge" || instance == 0 {
		return auth.ErrTokenInvalid
	}
	return nil
}
