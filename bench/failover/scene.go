package failover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/berthdev/berth/bench/lab"
)

// scenePool is how many connections ask the database of a scene.
const scenePool = 4

// tuning is how the processes of a scene are configured beside the defaults.
type tuning struct {
	detector string
	api      []string // further variables
	worker   []string
	workers  int           // zero: as many as asked for; less than zero: none
	patience time.Duration // how long a fault may take to be noticed; zero: half a minute
	tick     time.Duration // period of the reaper; zero: the default
}

// scene is a fleet on a database of its own. Its close ends it and forgets the state.
type scene struct {
	rig      *rig
	tuning   tuning
	database string
	pool     *pgxpool.Pool
	apis     []*member
	workers  []*member
	journal  *journal
	client   *client
	calls    []*call
	started  int // calls so far, for their ids
	turn     int // workers that were killed so far
	tally    *tally
}

// raise starts a fleet and waits until it is ready.
func (r *rig) raise(ctx context.Context, t tuning) (*scene, error) {
	s := &scene{rig: r, tuning: t, journal: &journal{}, tally: r.tally}
	if err := s.raise(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start fleet: %w", err), s.close(ctx))
	}
	return s, nil
}

func (s *scene) raise(ctx context.Context) (err error) {
	if s.database, err = s.rig.postgres.Copy(ctx, template, lab.CopyLog); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(s.rig.postgres.URL(s.database))
	if err != nil {
		return err
	}
	config.MaxConns = scenePool
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	if err := s.enlist(ctx); err != nil {
		return err
	}
	s.client = newClient(s.rig.keys, s.apis)
	for _, m := range s.apis { // one after the other: see leader
		if err := s.begin(ctx, m); err != nil {
			return err
		}
	}
	return s.beginAll(ctx, s.workers)
}

// enlist chooses ids, addresses and environments.
func (s *scene) enlist(ctx context.Context) error {
	n := s.rig.cfg.APIs
	workers := s.rig.cfg.Workers
	switch {
	case s.tuning.workers > 0:
		workers = s.tuning.workers
	case s.tuning.workers < 0:
		workers = 0
	}
	addresses, err := lab.FreeAddresses(ctx, n+3*workers)
	if err != nil {
		return err
	}
	for i := range n {
		m, err := s.api(i, addresses[i])
		if err != nil {
			return err
		}
		s.apis = append(s.apis, m)
	}
	for i := range workers {
		s.workers = append(s.workers, s.worker(i, addresses[n+3*i:]))
	}
	return nil
}

func (s *scene) api(i int, address string) (*member, error) {
	database, err := s.rig.urlAs(apiRole(i), s.database)
	if err != nil {
		return nil, err
	}
	return &member{
		id: fmt.Sprintf("api-%d", i+1), command: "api", binary: s.rig.cfg.Binary, address: address, hear: s.journal.hear,
		environment: append([]string{
			"BERTH_DATABASE_URL=" + database,
			"BERTH_LISTEN=" + address,
			"BERTH_DETECTOR=" + s.tuning.detector,
			"BERTH_REBALANCE=false", // a crowd on one worker is meant
		}, s.tuning.api...),
	}, nil
}

func (s *scene) worker(i int, addresses []string) *member {
	id := fmt.Sprintf("w%d", i+1)
	signaling, control, media := addresses[0], addresses[1], addresses[2]
	return &member{
		id: id, command: "worker", binary: s.rig.cfg.Binary, address: control, hear: func(time.Time, []byte) {},
		environment: append([]string{
			"BERTH_DATABASE_URL=" + s.rig.postgres.URL(s.database),
			"BERTH_WORKER_ID=" + id,
			"BERTH_WORKER_SLOTS=200",
			"BERTH_REGION=" + region,
			"BERTH_SIGNALING_LISTEN=" + signaling,
			"BERTH_CONTROL_LISTEN=" + control,
			"BERTH_MEDIA_LISTEN=" + media,
			"BERTH_MEDIA_ANNOUNCE=127.0.0.1",
			"BERTH_UPGRADE_RATE_PER_ADDRESS=0/s", // all clients have one
		}, s.tuning.worker...),
	}
}

// begin starts a member's next life and waits until it is ready.
func (s *scene) begin(ctx context.Context, m *member) error {
	if err := m.start(); err != nil {
		return err
	}
	if m.command == "api" {
		return m.await(ctx, m.answers)
	}
	before := m.instance
	return m.await(ctx, func(ctx context.Context) bool {
		instance, err := s.serving(ctx, m.id)
		if err != nil || instance <= before {
			return false
		}
		m.instance = instance
		return true
	})
}

func (s *scene) beginAll(ctx context.Context, members []*member) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, m := range members {
		group.Go(func() error { return s.begin(ctx, m) })
	}
	return group.Wait()
}

// serving is the instance of a worker that is ready; zero: it is not.
func (s *scene) serving(ctx context.Context, id string) (instance int64, err error) {
	err = s.pool.QueryRow(ctx, "select instance from berth.workers where id = $1 and state = 'ready'", id).Scan(&instance)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return instance, err
}

// patience is how long a fault may take to be noticed by everybody.
func (s *scene) patience() time.Duration {
	if s.tuning.patience > 0 {
		return s.tuning.patience
	}
	return 30 * time.Second
}

// close ends the fleet and forgets the state.
func (s *scene) close(ctx context.Context) error {
	for _, m := range append(append([]*member{}, s.workers...), s.apis...) {
		if m.process != nil {
			m.process.kill()
		}
	}
	for _, c := range s.calls {
		c.hangUp()
	}
	if s.client != nil {
		s.client.close()
	}
	if s.pool != nil {
		s.pool.Close()
	}
	if s.database == "" {
		return nil
	}
	return s.rig.postgres.Drop(ctx, s.database)
}

// eventually asks until ok says so, or the time is over.
func eventually(ctx context.Context, limit time.Duration, ok func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return false
		case <-deadline.C:
			return ok()
		case <-ticker.C:
		}
	}
	return true
}

// rest waits.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
