package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/bench/front"
	"github.com/berthdev/berth/bench/lab"
	"github.com/berthdev/berth/internal/devpg"
	"github.com/berthdev/berth/internal/postgres"
)

const (
	// The databases that those of measurements are copied from.
	berthTemplate = "berth_template"
	naiveTemplate = "naive_template"
	// keyLength is about that of an API key.
	keyLength = 60
)

// tenants of the template. Only lanes need more than one.
func tenants() []string { return []string{"bench-1", "bench-2", "bench-3"} }

// rig is the stores of a run.
type rig struct {
	cfg      Config
	postgres *lab.Server
	redis    *redisServer      // nil unless a subject needs it
	keys     map[string]string // API keys of tenants
}

// openRig starts the stores and prepares what measurements copy.
func openRig(ctx context.Context, cfg Config) (*rig, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &rig{cfg: cfg}
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.close(ctx))
	}
	return r, nil
}

func (r *rig) open(ctx context.Context) (err error) {
	r.postgres, err = lab.Open(ctx, devpg.Config{Durable: true, Settings: r.cfg.databaseSettings})
	if err != nil {
		return err
	}
	if r.needs("redis_") {
		if r.redis, err = startRedis(ctx); err != nil {
			return err
		}
	}
	if r.needs(front.PGNaive) {
		if err := r.prepareNaive(ctx); err != nil {
			return fmt.Errorf("prepare %s: %w", front.PGNaive, err)
		}
	}
	if r.needs(Berth) {
		if err := r.prepareBerth(ctx); err != nil {
			return fmt.Errorf("prepare %s: %w", Berth, err)
		}
	}
	return nil
}

// key is that of a tenant, by its place in tenants. Without Berth there is none; then some text of its length keeps
// requests alike.
func (r *rig) key(tenant int) string {
	if key, known := r.keys[tenants()[tenant]]; known {
		return key
	}
	return strings.Repeat("k", keyLength)
}

// needs says whether a subject's name begins with prefix.
func (r *rig) needs(prefix string) bool {
	return slices.ContainsFunc(r.cfg.Subjects, func(name string) bool { return strings.HasPrefix(name, prefix) })
}

func (r *rig) close(ctx context.Context) error {
	var err error
	if r.redis != nil {
		err = r.redis.Stop()
	}
	return errors.Join(err, r.postgres.Close(ctx))
}

func (r *rig) prepareNaive(ctx context.Context) error {
	if err := r.postgres.CreateDatabase(ctx, naiveTemplate); err != nil {
		return err
	}
	return r.within(ctx, naiveTemplate, func(conn *pgx.Conn) error {
		for _, statement := range front.Schema() {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return err
			}
		}
		if _, err := conn.Exec(ctx, front.Fill, r.cfg.Workers, r.cfg.Slots, region); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "vacuum analyze")
		return err
	})
}

// prepareBerth makes tenants and workers.
func (r *rig) prepareBerth(ctx context.Context) (err error) {
	r.keys, err = r.postgres.Prepare(ctx, berthTemplate, lab.Plan{
		Region: region, Tenants: tenants(), Fill: func(ctx context.Context, store *postgres.Store) error {
			if err := register(ctx, store, r.cfg.Workers, r.cfg.Slots); err != nil {
				return err
			}
			_, err := store.Pool().Exec(ctx, "vacuum analyze")
			return err
		},
	})
	return err
}

// within runs use on a connection to a database.
func (r *rig) within(ctx context.Context, database string, use func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, r.postgres.URL(database))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return errors.Join(use(conn), conn.Close(context.WithoutCancel(ctx)))
}

// checkpoint writes out what earlier work left to write, so that a measurement does not pay for it.
func (r *rig) checkpoint(ctx context.Context) error {
	_, err := r.postgres.Admin.Exec(ctx, "checkpoint")
	return err
}
