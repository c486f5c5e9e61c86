package failover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

const (
	// locksEach is how many presence locks one connection holds.
	locksEach = 1000
	// registrars is how many workers register at a time.
	registrars = 4
)

// rows stand for workers and calls: locks that connections of this process hold, and rows that nobody serves.
type rows struct {
	scene    *scene
	presence []*pgx.Conn
	sessions int
}

// startRows makes workers whose presence is held and whose leases run for an hour.
func (s *scene) startRows(ctx context.Context, workers int) (*rows, error) {
	r := &rows{scene: s}
	if err := r.start(ctx, workers); err != nil {
		return nil, errors.Join(err, r.close(ctx))
	}
	return r, nil
}

func (r *rows) start(ctx context.Context, workers int) error {
	url := r.scene.rig.postgres.URL(r.scene.database)
	store, err := postgres.Open(ctx, postgres.Config{URL: url, Name: "berth bench rows", PoolSize: registrars})
	if err != nil {
		return err
	}
	defer store.Close()
	instances := make([]berth.Instance, workers)
	for i := range instances {
		if instances[i], err = store.NextInstance(ctx); err != nil {
			return err
		}
		if err := r.hold(ctx, url, i, instances[i]); err != nil {
			return err
		}
	}
	group, registering := errgroup.WithContext(ctx)
	group.SetLimit(registrars)
	for i, instance := range instances {
		group.Go(func() error { return register(registering, store, fmt.Sprintf("w-%04d", i+1), instance) })
	}
	return group.Wait()
}

// hold takes the lock of an instance, before it registers: 1650815592 is the class of presence locks.
func (r *rows) hold(ctx context.Context, url string, i int, instance berth.Instance) error {
	if i%locksEach == 0 {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		r.presence = append(r.presence, conn)
	}
	_, err := r.presence[len(r.presence)-1].Exec(ctx, "select pg_advisory_lock(1650815592, $1)", int32(instance))
	return err
}

func register(ctx context.Context, store *postgres.Store, id string, instance berth.Instance) error {
	held, err := store.Register(ctx, berth.Registration{
		WorkerID: id, Instance: instance, Region: region, Capacity: 1, Version: "bench", Lease: time.Hour,
		SignalingURL: "wss://" + id + ".example.com/rtc", ControlURL: "http://127.0.0.1:1",
	})
	if err != nil {
		return err
	}
	if held {
		return fmt.Errorf("worker %s is held by another instance", id)
	}
	return store.Open(ctx, id, instance)
}

// fill makes active calls until there are n, with their peers spread over the workers.
func (r *rows) fill(ctx context.Context, n int) error {
	for _, statement := range []string{
		`insert into berth.sessions (key, tenant_id, id, kind, state, region, generation, handler, on_worker_loss, slots,
		        ttl_seconds, idle_timeout_seconds, created_at, placed_at, expires_at)
		 select nextval('berth.session_key_seq'), '` + tenantCalls + `', 'row-' || i, 'call', 'active', '` + region + `',
		        nextval('berth.generation_seq'), 'echo', 'rejoin', 0, 86400, 3600, clock_timestamp(), clock_timestamp(),
		        clock_timestamp() + interval '1 day'
		   from generate_series($1::int + 1, $2::int) i`,
		`with w as (select id, instance, row_number() over (order by id) - 1 as n, count(*) over () as of from berth.workers)
		 insert into berth.peers (session, peer_id, role, connection_id, connected_at, joined_at, worker_id, instance)
		 select s.key, p.id, p.role, 'row-' || p.id || s.key, clock_timestamp(), clock_timestamp(), w.id, w.instance
		   from berth.sessions s
		  cross join (values ('a', 'offer', 0), ('b', 'answer', 1)) p (id, role, shift)
		   join w on w.n = (s.key + p.shift) % w.of
		  where substr(s.id, 5)::int between $1::int + 1 and $2::int`,
		`insert into berth.tenant_lanes as l (tenant_id, lane, live_sessions) values ('` + tenantCalls + `', 0, $2::int - $1::int)
		 on conflict (tenant_id, lane) do update set live_sessions = l.live_sessions + excluded.live_sessions`,
	} {
		if _, err := r.scene.pool.Exec(ctx, statement, r.sessions, n); err != nil {
			return err
		}
	}
	r.sessions = n
	_, err := r.scene.pool.Exec(ctx, "vacuum analyze")
	return err
}

// close gives the locks up.
func (r *rows) close(ctx context.Context) error {
	var errs []error
	for _, conn := range r.presence {
		errs = append(errs, conn.Close(context.WithoutCancel(ctx)))
	}
	return errors.Join(errs...)
}
