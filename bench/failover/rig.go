package failover

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/devpg"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/migrations"
)

const (
	region = "local"
	// template is what the databases of scenes are copied from.
	template = "berth_template"
	// setupPool is how many connections prepare the template.
	setupPool = 2
	// maxConnections of Postgres: the pools of five processes, and each worker's presence.
	maxConnections = 400
	// serverStop bounds the stop of Postgres.
	serverStop = 20 * time.Second

	// The tenants: the one whose calls are measured, and another one.
	tenantCalls = "bench"
	tenantOther = "other"
)

// rig is the server of a run, and what its scenes share.
type rig struct {
	cfg      Config
	postgres *devpg.Server
	admin    *pgx.Conn // to the database postgres
	password string    // of the roles of API processes
	keys     map[string]string
	copies   int // databases made so far
	done     int // steps
	tally    *tally
}

// openRig starts Postgres and prepares what scenes copy.
func openRig(ctx context.Context, cfg Config) (*rig, error) {
	r := &rig{cfg: cfg, password: rand.Text(), keys: map[string]string{}, tally: &tally{}}
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.close(ctx))
	}
	return r, nil
}

func (r *rig) open(ctx context.Context) (err error) {
	if r.postgres, err = devpg.Start(ctx, devpg.Config{Durable: true, MaxConnections: maxConnections}); err != nil {
		return err
	}
	if r.admin, err = pgx.Connect(ctx, r.postgres.URL("postgres")); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	for i := range r.cfg.APIs {
		if _, err := r.admin.Exec(ctx, fmt.Sprintf("create role %s superuser login password '%s'",
			pgx.Identifier{apiRole(i)}.Sanitize(), r.password)); err != nil {
			return fmt.Errorf("create role: %w", err)
		}
	}
	if err := r.prepare(ctx); err != nil {
		return fmt.Errorf("prepare database: %w", err)
	}
	return nil
}

// apiRole is the database user of one API process, by which its locks are told from those of others.
func apiRole(i int) string { return fmt.Sprintf("bench_api_%d", i+1) }

// prepare migrates the template and makes tenants without quotas, with a key each.
func (r *rig) prepare(ctx context.Context) error {
	if err := r.postgres.CreateDatabase(ctx, template); err != nil {
		return err
	}
	database := r.postgres.URL(template)
	if err := migrations.Up(ctx, database, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	store, err := postgres.Open(ctx, postgres.Config{URL: database, Name: "berth bench", PoolSize: setupPool})
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
	for _, id := range []string{tenantCalls, tenantOther} {
		if err := r.addTenant(ctx, store, id); err != nil {
			return err
		}
	}
	return nil
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
	r.keys[id] = key
	return store.CreateKey(ctx, record)
}

// copied makes a database like the template and returns its name.
func (r *rig) copied(ctx context.Context) (string, error) {
	r.copies++
	name := fmt.Sprintf("scene_%d", r.copies)
	_, err := r.admin.Exec(ctx, fmt.Sprintf("create database %s template %s", name, template))
	if err != nil {
		return "", fmt.Errorf("copy database: %w", err)
	}
	return name, nil
}

// drop removes a database, with whoever is still connected to it.
func (r *rig) drop(ctx context.Context, name string) error {
	_, err := r.admin.Exec(context.WithoutCancel(ctx), fmt.Sprintf("drop database %s with (force)", name))
	return err
}

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

func (r *rig) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverStop)
	defer cancel()
	var errs []error
	if r.admin != nil {
		errs = append(errs, r.admin.Close(ctx))
	}
	if r.postgres != nil {
		errs = append(errs, r.postgres.Stop(ctx))
	}
	return errors.Join(errs...)
}
