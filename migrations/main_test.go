package migrations_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/migrations"
)

// databases is the server that these tests share.
var databases = testkit.NewPostgres(migrations.Up, testkit.PostgresConfig{})

func TestMain(m *testing.M) {
	os.Exit(testkit.Main(m, testkit.MainConfig{Postgres: databases}))
}

// exec runs a statement that must succeed.
func exec(t *testing.T, pool *pgxpool.Pool, statement string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// lines runs a query of one text column.
func lines(t *testing.T, pool *pgxpool.Pool, query string, args ...any) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return found
}

// newest is the version of the last migration.
func newest(t *testing.T, url string) int64 {
	t.Helper()
	steps := status(t, url)
	return steps[len(steps)-1].Version
}

func status(t *testing.T, url string) []migrations.Step {
	t.Helper()
	steps, err := migrations.Status(t.Context(), url, testkit.Logger(t))
	if err != nil {
		t.Fatalf("status: %v", err)
	}
	return steps
}

func upTo(t *testing.T, url string, version int64) {
	t.Helper()
	if err := migrations.UpTo(t.Context(), url, version, testkit.Logger(t)); err != nil {
		t.Fatalf("up to %d: %v", version, err)
	}
}

func down(t *testing.T, url string) {
	t.Helper()
	if err := migrations.Down(t.Context(), url, testkit.Logger(t)); err != nil {
		t.Fatalf("down: %v", err)
	}
}

// withTx runs use in a transaction that is rolled back.
func withTx(t *testing.T, pool *pgxpool.Pool, use func(pgx.Tx)) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	defer func() {
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("rollback: %v", err)
		}
	}()
	use(tx)
}
