package claim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/bench/front"
	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/devpg"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/migrations"
)

const (
	// The databases that those of measurements are copied from.
	berthTemplate = "berth_template"
	naiveTemplate = "naive_template"
	// setupPool is how many connections prepare a template.
	setupPool = 4
	// keyLength is about that of an API key.
	keyLength = 60
	// serverStop bounds the stop of Postgres.
	serverStop = 20 * time.Second
)

// tenants of the template. Only lanes need more than one.
func tenants() []string { return []string{"bench-1", "bench-2", "bench-3"} }

// rig is the stores of a run.
type rig struct {
	cfg      Config
	postgres *devpg.Server
	redis    *redisServer // nil unless a subject needs it
	admin    *pgx.Conn    // to the database postgres, for copies and questions
	keys     []string     // API keys, one per tenant
	copies   int          // databases made so far
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
	r.postgres, err = devpg.Start(ctx, devpg.Config{Durable: true, Settings: r.cfg.databaseSettings})
	if err != nil {
		return err
	}
	if r.admin, err = pgx.Connect(ctx, r.postgres.URL("postgres")); err != nil {
		return fmt.Errorf("connect: %w", err)
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
	if tenant < len(r.keys) {
		return r.keys[tenant]
	}
	return strings.Repeat("k", keyLength)
}

// needs says whether a subject's name begins with prefix.
func (r *rig) needs(prefix string) bool {
	return slices.ContainsFunc(r.cfg.Subjects, func(name string) bool { return strings.HasPrefix(name, prefix) })
}

func (r *rig) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverStop)
	defer cancel()
	var errs []error
	if r.redis != nil {
		errs = append(errs, r.redis.stop())
	}
	if r.admin != nil {
		errs = append(errs, r.admin.Close(ctx))
	}
	if r.postgres != nil {
		errs = append(errs, r.postgres.Stop(ctx))
	}
	return errors.Join(errs...)
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

// prepareBerth migrates a database and makes tenants without quotas, their keys, and workers.
func (r *rig) prepareBerth(ctx context.Context) error {
	if err := r.postgres.CreateDatabase(ctx, berthTemplate); err != nil {
		return err
	}
	url := r.postgres.URL(berthTemplate)
	if err := migrations.Up(ctx, url, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	store, err := postgres.Open(ctx, postgres.Config{URL: url, Name: "berth bench", PoolSize: setupPool})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.RotateKeys(ctx); err != nil {
		return err
	}
	if err := store.SetRegion(ctx, berth.Region{ID: region}); err != nil {
		return err
	}
	for _, tenant := range tenants() {
		if err := r.addTenant(ctx, store, tenant); err != nil {
			return err
		}
	}
	if err := register(ctx, store, r.cfg.Workers, r.cfg.Slots); err != nil {
		return err
	}
	_, err = store.Pool().Exec(ctx, "vacuum analyze")
	return err
}

func (r *rig) addTenant(ctx context.Context, store *postgres.Store, id string) error {
	if err := store.SetTenant(ctx, berth.Tenant{ID: id}); err != nil {
		return err
	}
	key, record, err := auth.GenerateKey(auth.RoleTenant)
	if err != nil {
		return err
	}
	record.TenantID = id
	r.keys = append(r.keys, key)
	return store.CreateKey(ctx, record)
}

// within runs use on a connection to a database.
func (r *rig) within(ctx context.Context, database string, use func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, r.postgres.URL(database))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return errors.Join(use(conn), conn.Close(context.WithoutCancel(ctx)))
}

// copyOf makes a database like the template and returns its name. Files are copied, so that the log does not grow by
// the size of the template, and a checkpoint is part of it.
func (r *rig) copyOf(ctx context.Context, template string) (string, error) {
	r.copies++
	name := fmt.Sprintf("round_%d", r.copies)
	_, err := r.admin.Exec(ctx, fmt.Sprintf("create database %s template %s strategy file_copy",
		pgx.Identifier{name}.Sanitize(), pgx.Identifier{template}.Sanitize()))
	if err != nil {
		return "", fmt.Errorf("copy database: %w", err)
	}
	return name, nil
}

// drop removes a database, with whoever is still connected to it.
func (r *rig) drop(ctx context.Context, name string) error {
	_, err := r.admin.Exec(context.WithoutCancel(ctx), fmt.Sprintf("drop database %s with (force)", pgx.Identifier{name}.Sanitize()))
	return err
}

// checkpoint writes out what earlier work left to write, so that a measurement does not pay for it.
func (r *rig) checkpoint(ctx context.Context) error {
	_, err := r.admin.Exec(ctx, "checkpoint")
	return err
}
