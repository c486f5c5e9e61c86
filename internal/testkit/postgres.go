package testkit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/berthdev/berth/internal/devpg"
)

// setupTimeout bounds the start of the server, the migration and each clone.
// It is generous because machines that run tests are busy.
const setupTimeout = 2 * time.Minute

// MigrateFunc brings the empty database at url to the schema that tests expect.
// migrations.Up is one.
type MigrateFunc func(ctx context.Context, url string, logger *slog.Logger) error

// PostgresConfig is what a shared server may be told.
type PostgresConfig struct {
	// Server configures the server. Default: a throwaway server in memory.
	Server devpg.Config
	// AfterEach looks at each migrated database before it is dropped; its error
	// fails the test. It gets a pool of its own, as the test may have closed
	// DB.Pool. Default: nothing is looked at.
	AfterEach func(ctx context.Context, pool *pgxpool.Pool) error
}

// Postgres is the server that the tests of one binary share. It starts when the
// first test asks for a database.
type Postgres struct {
	migrate MigrateFunc
	cfg     PostgresConfig

	mu      sync.Mutex // held while the server starts, so that all tests wait for one start
	cluster *cluster
	err     error // of the start: every test fails with it, none tries again
}

// NewPostgres prepares a shared server. Pass it to Main, which closes it.
func NewPostgres(migrate MigrateFunc, cfg PostgresConfig) *Postgres {
	cfg.Server = throwaway(cfg.Server)
	return &Postgres{migrate: migrate, cfg: cfg}
}

// throwaway fills in what suits tests.
func throwaway(cfg devpg.Config) devpg.Config {
	cfg.TempDir = cmp.Or(cfg.TempDir, devpg.MemoryDir())
	cfg.StartTimeout = cmp.Or(cfg.StartTimeout, setupTimeout)
	return cfg
}

// Close stops the server if it runs. No test may use it any more.
func (p *Postgres) Close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	running := p.cluster
	p.cluster, p.err = nil, errors.New("testkit: the shared server was closed")
	if running == nil {
		return nil
	}
	return running.close(ctx)
}

// running returns the server, starting it if need be.
func (p *Postgres) running(ctx context.Context) (*cluster, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cluster == nil && p.err == nil {
		p.cluster, p.err = startCluster(ctx, p.cfg.Server, p.migrate)
	}
	return p.cluster, p.err
}

// StartPostgres starts a server for one test and stops it afterwards. It has
// only the databases that the test makes. The test may stop or kill it itself.
func StartPostgres(t testing.TB, cfg devpg.Config) *devpg.Server {
	t.Helper()
	server, err := devpg.Start(t.Context(), throwaway(cfg))
	if err != nil {
		t.Fatalf("start a server: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), stopTimeout)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Errorf("stop the server: %v", err)
		}
	})
	return server
}

// newPool opens a small pool. It connects lazily.
func newPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("testkit: %w", err)
	}
	cfg.MaxConns = 8 // of 200, with many tests in parallel
	return pgxpool.NewWithConfig(ctx, cfg)
}
