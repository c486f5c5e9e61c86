// Package migrations brings a database to the schema that this binary needs: its own in the schema berth, by goose,
// and River's in the schema river.
//
// All of it runs under one session advisory lock, so that any number of processes may start at once on an empty
// database: one migrates, the others find it done. Neither "create schema if not exists" nor River's migrator is
// safe without it.
//
// Tables are made by numbered files. Each has a way down, and a comment says what a statement locks where that matters. A
// file that was released is never changed; the next one changes what it made. Functions and views are the program's, and
// keep nothing: those of folder code are replaced as a whole when the tables are there. See code.go.
package migrations

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

//go:embed sql/*.sql
var files embed.FS

const (
	// Schema holds Berth's tables, functions and views.
	Schema = "berth"
	// RiverSchema holds River's tables.
	RiverSchema = "river"

	versionTable = Schema + ".schema_version"

	// lockID spells "bertmigr" and is taken as one bigint, apart from the pairs of ints that SQL functions lock.
	lockID = 0x626572746d696772
	// lockPoll is how often a process that waits for another to migrate asks again. It does not wait in the
	// database: a blocked statement holds a snapshot.
	lockPoll = 100 * time.Millisecond
)

// What Check finds, and what any change to a newer schema is refused with.
var (
	// ErrNewerSchema says that the database was migrated by a newer Berth than this one.
	ErrNewerSchema = errors.New(
		"the database schema is newer than this program: run the newer berth, or `berth migrate down` with it")
	// ErrOlderSchema says that the database lacks migrations that this Berth needs.
	ErrOlderSchema = errors.New("the database schema is older than this program: run `berth migrate up` first")
)

// errMalformedURL stands for the error of pgx, which may quote the password.
var errMalformedURL = errors.New("parse database url: it must look like postgres://user:password@host:5432/name")

// Step is one migration and whether it is applied.
type Step struct {
	Version int64
	Name    string
	Applied bool
}

// migrator migrates one database, while it holds the lock.
type migrator struct {
	pool     *pgxpool.Pool
	provider *goose.Provider
	logger   *slog.Logger
}

// Up applies every migration that is missing. It refuses a database that is newer than this program.
func Up(ctx context.Context, url string, logger *slog.Logger) error {
	return withMigrator(ctx, url, logger, func(m *migrator) error {
		if err := m.up(ctx, m.latest()); err != nil {
			return err
		}
		return m.river(ctx, rivermigrate.DirectionUp, nil)
	})
}

// UpTo applies own migrations up to and including version. River's are left alone.
func UpTo(ctx context.Context, url string, version int64, logger *slog.Logger) error {
	return withMigrator(ctx, url, logger, func(m *migrator) error { return m.up(ctx, version) })
}

// Down takes back the newest own migration that is applied. When none is left it takes back River's.
func Down(ctx context.Context, url string, logger *slog.Logger) error {
	return withMigrator(ctx, url, logger, func(m *migrator) error {
		version, err := m.version(ctx)
		if err != nil {
			return err
		}
		if version >= firstWithoutCode {
			if err := m.dropCode(ctx); err != nil {
				return err
			}
		}
		result, err := m.provider.Down(ctx)
		if errors.Is(err, goose.ErrNoNextVersion) {
			return m.river(ctx, rivermigrate.DirectionDown, &rivermigrate.MigrateOpts{TargetVersion: -1})
		}
		if err != nil {
			return fmt.Errorf("migrate down: %w", err)
		}
		m.logger.InfoContext(ctx, "migration taken back", "version", result.Source.Version)
		return m.makeCode(ctx)
	})
}

// Status lists own migrations, oldest first.
func Status(ctx context.Context, url string, logger *slog.Logger) ([]Step, error) {
	var steps []Step
	err := withMigrator(ctx, url, logger, func(m *migrator) error {
		statuses, err := m.provider.Status(ctx)
		if err != nil {
			return fmt.Errorf("migration status: %w", err)
		}
		for _, s := range statuses {
			steps = append(steps, Step{
				Version: s.Source.Version,
				Name:    s.Source.Path,
				Applied: s.State == goose.StateApplied,
			})
		}
		return nil
	})
	return steps, err
}

// Check says whether the database has the schema that this program needs: nil, ErrOlderSchema, ErrNewerSchema, or that
// it could not be read. It changes nothing and takes no lock, so a pooler is no obstacle.
func Check(ctx context.Context, url string) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return errMalformedURL
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // it was read from only
	var current int64
	err = conn.QueryRow(ctx, "select coalesce(max(version_id), 0) from "+versionTable).Scan(&current)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && (pgErr.Code == "42P01" || pgErr.Code == "3F000") {
		return ErrOlderSchema // there is no such table, or no such schema
	}
	if err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	newest, err := newestVersion()
	if err != nil {
		return err
	}
	switch {
	case current > newest:
		return ErrNewerSchema
	case current < newest:
		return ErrOlderSchema
	default:
		return checkCode(ctx, conn)
	}
}

// newestVersion is that of the last embedded file.
func newestVersion() (int64, error) {
	names, err := fs.Glob(files, "sql/*.sql")
	if err != nil || len(names) == 0 {
		return 0, fmt.Errorf("read embedded migrations: %w", cmp.Or(err, fs.ErrNotExist))
	}
	return goose.NumericComponent(names[len(names)-1])
}

// withMigrator connects, takes the lock, makes the schemas, and runs use.
func withMigrator(ctx context.Context, url string, logger *slog.Logger, use func(*migrator) error) (err error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return errMalformedURL
	}
	defer pool.Close()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Release()
	if err := lock(ctx, conn.Conn()); err != nil {
		return err
	}
	defer func() {
		_, unlockErr := conn.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock($1)", int64(lockID))
		err = errors.Join(err, unlockErr)
	}()
	for _, schema := range []string{Schema, RiverSchema} {
		if _, err := conn.Exec(ctx, "create schema if not exists "+schema); err != nil {
			return fmt.Errorf("create schema %s: %w", schema, err)
		}
	}
	db := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	dir, err := fs.Sub(files, "sql")
	if err != nil {
		return fmt.Errorf("open embedded migrations: %w", err)
	}
	store, err := database.NewStore(database.DialectPostgres, versionTable)
	if err != nil {
		return fmt.Errorf("open version table: %w", err)
	}
	provider, err := goose.NewProvider("", db, dir, goose.WithStore(store), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	return use(&migrator{pool: pool, provider: provider, logger: logger})
}

// lock takes the migration lock, or waits for the process that has it.
func lock(ctx context.Context, conn *pgx.Conn) error {
	for {
		var taken bool
		if err := conn.QueryRow(ctx, "select pg_try_advisory_lock($1)", int64(lockID)).Scan(&taken); err != nil {
			return fmt.Errorf("take migration lock: %w", err)
		}
		if taken {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for another process to migrate: %w", ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}

func (m *migrator) latest() int64 {
	sources := m.provider.ListSources()
	return sources[len(sources)-1].Version
}

// version is the newest migration that is applied. A newer one than this program knows is ErrNewerSchema.
func (m *migrator) version(ctx context.Context) (int64, error) {
	current, err := m.provider.GetDBVersion(ctx)
	if err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	if current > m.latest() {
		return current, ErrNewerSchema
	}
	return current, nil
}

func (m *migrator) up(ctx context.Context, version int64) error {
	if _, err := m.version(ctx); err != nil {
		return err
	}
	if err := m.tables(ctx, min(version, firstWithoutCode-1)); err != nil || version < firstWithoutCode {
		return err
	}
	current, err := m.version(ctx)
	if err != nil {
		return err
	}
	if current == m.latest() {
		return m.replaceCode(ctx)
	}
	if err := m.dropCode(ctx); err != nil {
		return err
	}
	if err := m.tables(ctx, version); err != nil {
		return err
	}
	return m.makeCode(ctx)
}

// tables runs the numbered files up to version.
func (m *migrator) tables(ctx context.Context, version int64) error {
	results, err := m.provider.UpTo(ctx, version)
	if err != nil {
		return fmt.Errorf("migrate up: %w", err)
	}
	for _, r := range results {
		m.logger.InfoContext(ctx, "migration applied", "version", r.Source.Version, "took", r.Duration)
	}
	return nil
}

func (m *migrator) river(ctx context.Context, direction rivermigrate.Direction, opts *rivermigrate.MigrateOpts) error {
	river, err := rivermigrate.New(riverpgxv5.New(m.pool), &rivermigrate.Config{
		Schema: RiverSchema,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return fmt.Errorf("open river migrations: %w", err)
	}
	if _, err := river.Migrate(ctx, direction, opts); err != nil {
		return fmt.Errorf("migrate river: %w", err)
	}
	return nil
}
