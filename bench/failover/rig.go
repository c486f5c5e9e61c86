package failover

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/bench/lab"
	"github.com/berthdev/berth/internal/devpg"
)

const (
	region = "local"
	// template is what the databases of scenes are copied from.
	template = "berth_template"
	// maxConnections of Postgres: the pools of five processes, and each worker's presence.
	maxConnections = 400

	// The tenants: the one whose calls are measured, and another one.
	tenantCalls = "bench"
	tenantOther = "other"
)

// rig is the server of a run, and what its scenes share.
type rig struct {
	cfg      Config
	postgres *lab.Server
	password string            // of the roles of API processes
	keys     map[string]string // of tenants
	done     int               // steps
	tally    *tally
}

// openRig starts Postgres and prepares what scenes copy.
func openRig(ctx context.Context, cfg Config) (*rig, error) {
	r := &rig{cfg: cfg, password: rand.Text(), tally: &tally{}}
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.close(ctx))
	}
	return r, nil
}

func (r *rig) open(ctx context.Context) (err error) {
	if r.postgres, err = lab.Open(ctx, devpg.Config{Durable: true, MaxConnections: maxConnections}); err != nil {
		return err
	}
	for i := range r.cfg.APIs {
		if _, err := r.postgres.Admin.Exec(ctx, fmt.Sprintf("create role %s superuser login password '%s'",
			pgx.Identifier{apiRole(i)}.Sanitize(), r.password)); err != nil {
			return fmt.Errorf("create role: %w", err)
		}
	}
	r.keys, err = r.postgres.Prepare(ctx, template, lab.Plan{Region: region, Tenants: []string{tenantCalls, tenantOther}})
	if err != nil {
		return fmt.Errorf("prepare database: %w", err)
	}
	return nil
}

// apiRole is the database user of one API process, by which its locks are told from those of others.
func apiRole(i int) string { return fmt.Sprintf("bench_api_%d", i+1) }

// urlAs is the address of a database for the role of an API process.
func (r *rig) urlAs(role, database string) (string, error) {
	u, err := url.Parse(r.postgres.URL(database))
	if err != nil {
		return "", err
	}
	u.User = url.UserPassword(role, r.password)
	return u.String(), nil
}

// step tells that one step is done.
func (r *rig) step(what string) {
	r.done++
	r.cfg.Progress(r.done, r.cfg.steps(), what)
}

func (r *rig) close(ctx context.Context) error { return r.postgres.Close(ctx) }
