package storm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/bench/lab"
	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/devpg"
	"github.com/berthdev/berth/internal/postgres"
	sdk "github.com/berthdev/berth/sdk/go"
)

const (
	region = "local"
	// template is what the databases of cases are copied from.
	template = "berth_template"
	tenant   = "bench"
	// maxConnections of Postgres: the pools of all processes, and each worker's presence.
	maxConnections = 400
)

// rig is the server of a run, and what its cases share.
type rig struct {
	cfg      Config
	postgres *lab.Server
	key      string // of the tenant
	operator string // another key
}

// openRig starts Postgres and prepares what cases copy.
func openRig(ctx context.Context, cfg Config) (*rig, error) {
	r := &rig{cfg: cfg}
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.close(ctx))
	}
	return r, nil
}

func (r *rig) open(ctx context.Context) (err error) {
	if r.postgres, err = lab.Open(ctx, devpg.Config{Durable: true, MaxConnections: maxConnections}); err != nil {
		return err
	}
	keys, err := r.postgres.Prepare(ctx, template, lab.Plan{Region: region, Tenants: []string{tenant}, Fill: r.addOperator})
	if err != nil {
		return fmt.Errorf("prepare database: %w", err)
	}
	r.key = keys[tenant]
	return nil
}

func (r *rig) addOperator(ctx context.Context, store *postgres.Store) (err error) {
	key, record, err := auth.GenerateKey(auth.RoleOperator)
	if err != nil {
		return err
	}
	r.operator = key
	return store.CreateKey(ctx, record)
}

func (r *rig) close(ctx context.Context) error { return r.postgres.Close(ctx) }

// scene is a fleet with a crowd. Its close ends both and forgets the state.
type scene struct {
	rig      *rig
	fleet    *lab.Fleet
	database *pgx.Conn
	backend  *backend
	crowd    *crowd
	operator *sdk.Client
}

// raise starts a fleet of some workers.
func (r *rig) raise(ctx context.Context, name string, workers int, m manner) (*scene, error) {
	s := &scene{rig: r}
	if err := s.raise(ctx, name, workers, m); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (s *scene) raise(ctx context.Context, name string, workers int, m manner) (err error) {
	cfg := s.rig.cfg
	// All must have come back before they are given up, on a slow machine too.
	window := "BERTH_REJOIN_WINDOW=10m"
	s.fleet, err = s.rig.postgres.Raise(ctx, template, lab.FleetConfig{
		Binary: cfg.Binary, Region: region, APIs: cfg.APIs, Workers: workers, API: []string{window, fmt.Sprintf("BERTH_REJOIN_RATE=%d/s", cfg.RejoinRate)},
		Worker: []string{window, fmt.Sprintf("BERTH_UPGRADE_RATE=%d/s", cfg.UpgradeRate)},
	})
	if err != nil {
		return err
	}
	if s.database, err = pgx.Connect(ctx, s.rig.postgres.URL(s.fleet.Database())); err != nil {
		return err
	}
	var urls []string
	for _, api := range s.fleet.APIs {
		urls = append(urls, "http://"+api.Address)
	}
	if s.operator, err = sdk.New(sdk.Config{URL: urls[0], APIKey: s.rig.operator}); err != nil {
		return err
	}
	s.backend = newBackend(urls, "/v1/sessions", region, http.Header{"Authorization": {"Bearer " + s.rig.key}})
	s.crowd = newCrowd(s.backend, cfg, name, m)
	return nil
}

// cordon lets some workers get nothing new, and all others everything.
func (s *scene) cordon(ctx context.Context, some func(worker string) bool) error {
	for _, w := range s.fleet.Workers {
		var reason *string
		if some(w.ID) {
			reason = new("bench")
		}
		_, err := s.database.Exec(ctx, "update berth.workers set cordoned_reason = $2 where id = $1", w.ID, reason)
		if err == nil {
			_, err = s.database.Exec(ctx, "select berth.set_open($1)", w.ID)
		}
		if err != nil {
			return fmt.Errorf("cordon %s: %w", w.ID, err)
		}
	}
	return nil
}

// cpu is what everybody but one worker used so far.
func (s *scene) cpu(but *lab.Process) (c CPU) {
	c.Clients = lab.ProcessCPU(os.Getpid()).Seconds()
	c.Postgres = lab.FamilyCPU(s.rig.postgres.PID()).Seconds()
	for _, api := range s.fleet.APIs {
		c.APIs += lab.ProcessCPU(api.PID()).Seconds()
	}
	for _, w := range s.fleet.Workers {
		if w != but {
			c.Workers += lab.ProcessCPU(w.PID()).Seconds()
		}
	}
	return c
}

// deaths counts workers that ended or were declared lost, but for the one that was killed.
func (s *scene) deaths(ctx context.Context, killed string) (n int, err error) {
	rows, err := s.database.Query(ctx, "select id from berth.workers where state in ('lost', 'gone') and id <> $1", killed)
	if err != nil {
		return 0, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	dead := map[string]bool{}
	for _, id := range ids {
		dead[id] = true
	}
	for _, w := range s.fleet.Workers {
		if w.ID != killed && w.Gone() {
			dead[w.ID] = true
		}
	}
	return len(dead), err
}

// close kills the fleet before clients go: nothing is to be learned from their goodbyes.
func (s *scene) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var errs []error
	if s.database != nil {
		errs = append(errs, s.database.Close(ctx))
	}
	if s.fleet != nil {
		errs = append(errs, s.fleet.Close(ctx))
	}
	if s.crowd != nil {
		errs = append(errs, s.crowd.close())
	}
	if s.backend != nil {
		s.backend.close()
	}
	if s.operator != nil {
		s.operator.CloseIdleConnections()
	}
	return errors.Join(errs...)
}
