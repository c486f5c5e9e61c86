package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// rehearsalPause lets others have the database between two rehearsals, which take some 100 ms of it each.
	rehearsalPause = 250 * time.Millisecond
	// rehearsalTime is the most that one may take.
	rehearsalTime = 5 * time.Second
)

// errNotNow says that a rehearsal would be in somebody's way.
var errNotNow = errors.New("not now")

// rehearsal runs what is urgent once on each new connection of a pool, one connection at a time, before anybody needs it.
// Nobody waits for it, and what it cannot do is left out: such a connection is only slower once.
type rehearsal struct {
	store *Store
	stop  context.CancelFunc
	done  chan struct{}

	mu  sync.Mutex
	new map[*pgx.Conn]bool // connections that have not rehearsed
}

// prepare has the pool keep half of its connections, and tell of each new one.
func (r *rehearsal) prepare(settings *pgxpool.Config) {
	r.new = map[*pgx.Conn]bool{}
	settings.MinConns = (settings.MaxConns + 1) / 2
	settings.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.new[conn] = true
		return nil
	}
	settings.BeforeClose = r.did
}

func (r *rehearsal) start(ctx context.Context, after time.Duration) {
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		r.run(ctx, after)
	}()
}

func (r *rehearsal) close() {
	r.stop()
	<-r.done
}

// did takes a connection off the list.
func (r *rehearsal) did(conn *pgx.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.new, conn)
}

func (r *rehearsal) run(ctx context.Context, after time.Duration) {
	next := time.NewTimer(after)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		if conn := r.idle(ctx); conn != nil {
			if err := r.store.rehearse(ctx, conn.Conn()); !errors.Is(err, errNotNow) {
				r.did(conn.Conn())
			}
			conn.Release()
		}
		next.Reset(rehearsalPause)
	}
}

// idle is a new connection that nobody uses now, or nil.
func (r *rehearsal) idle(ctx context.Context) (chosen *pgxpool.Conn) {
	if !r.any() {
		return nil
	}
	for _, conn := range r.store.pool.AcquireAllIdle(ctx) {
		if chosen == nil && r.isNew(conn.Conn()) {
			chosen = conn
			continue
		}
		conn.Release()
	}
	return chosen
}

func (r *rehearsal) any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.new) > 0
}

func (r *rehearsal) isNew(conn *pgx.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.new[conn]
}

// rehearse starts a session and a call for a tenant that nobody sees, takes a worker away, has a peer rejoin, and ends both.
func (s *Store) rehearse(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, rehearsalTime)
	defer cancel()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	scene := stage{store: s, tx: tx, name: berth.NewID("rehearsal")}
	for _, act := range []func(context.Context) error{scene.open, scene.start, scene.read, scene.rejoin, scene.end} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stage is the transaction of one rehearsal.
type stage struct {
	store *Store
	tx    pgx.Tx
	name  string  // of its tenant
	keys  []int64 // of its session and its call
}

func (s *stage) open(ctx context.Context) error {
	var open bool
	if err := s.tx.QueryRow(ctx, s.store.queries["rehearsal_stage"], s.name).Scan(&open); err != nil {
		return named("rehearsal_stage", err)
	}
	if !open {
		return errNotNow
	}
	return nil
}

// start starts both, and asks for them again, as retries and second peers do.
func (s *stage) start(ctx context.Context) error {
	for _, peer := range []string{"a", "b"} {
		if err := s.claim(ctx, s.request(berth.KindMedia, peer), s.request(berth.KindCall, peer)); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) request(kind berth.SessionKind, peer string) claimRequest {
	return claimRequest{start: berth.Start{
		TenantID: s.name, ID: string(kind), IDChosen: true, Kind: kind, Peer: berth.Peer{ID: peer}, Region: s.name,
		TTL: time.Minute, IdleTimeout: time.Minute, OnWorkerLoss: berth.LossRejoin,
	}}
}

func (s *stage) claim(ctx context.Context, requests ...claimRequest) error {
	rows, err := s.tx.Query(ctx, s.store.queries["session_claim"], s.store.claimArguments(requests)...)
	if err != nil {
		return named("session_claim", err)
	}
	claims, err := pgx.CollectRows(rows, pgx.RowToStructByName[claimRow])
	if err != nil {
		return named("session_claim", err)
	}
	s.keys = s.keys[:0]
	for _, claim := range claims {
		if claim.WorkerID == nil && claim.Outcome != "existing" {
			return fmt.Errorf("session_claim: %s in a rehearsal", claim.Outcome)
		}
		s.keys = append(s.keys, deref(claim.SessionKey))
	}
	return nil
}

func (s *stage) read(ctx context.Context) error {
	return errors.Join(
		s.run(ctx, "api_key_by_id", s.name),
		s.run(ctx, "session_by_id", s.name, string(berth.KindCall)),
		s.run(ctx, "session_by_key", s.keys[0]),
		s.run(ctx, "session_by_keys", s.keys),
		s.run(ctx, "peer_list", s.keys),
	)
}

// rejoin takes the worker of the call's first peer, who comes back.
func (s *stage) rejoin(ctx context.Context) error {
	call := s.keys[1]
	return errors.Join(
		s.run(ctx, "rehearsal_strike", s.name),
		s.run(ctx, "session_rejoin_verdict", call, "a", int64(1), true),
		s.claim(ctx, s.request(berth.KindCall, "a")),
		s.run(ctx, "peer_list", []int64{call}),
	)
}

func (s *stage) end(ctx context.Context) error {
	n := len(s.keys)
	reasons := make([]string, n)
	for i := range reasons {
		reasons[i] = string(berth.EndedLeft)
	}
	return s.run(ctx, "session_release", s.keys, make([]*int64, n), reasons, make([]bool, n))
}

func (s *stage) run(ctx context.Context, name string, args ...any) error {
	_, err := s.tx.Exec(ctx, s.store.queries[name], args...)
	return named(name, err)
}
