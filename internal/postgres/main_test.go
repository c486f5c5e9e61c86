package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/migrations"
)

// databases is the server that these tests share.
var databases = testkit.NewPostgres(migrations.Up, testkit.PostgresConfig{AfterEach: noViolations})

func TestMain(m *testing.M) {
	// Each check talks to a database; the long proof ends by time. The command line still wins.
	checks := "20"
	if os.Getenv(proofVar) != "" {
		checks = "1000000"
	}
	for name, value := range map[string]string{"rapid.checks": checks, "rapid.seed": fmt.Sprint(rand.Uint64())} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(testkit.Main(m, testkit.MainConfig{Postgres: databases}))
}

type violation struct {
	Invariant int
	What      string
	Subject   string
}

// noViolations fails when an invariant of the schema does not hold.
func noViolations(ctx context.Context, pool *pgxpool.Pool) error {
	rows, err := pool.Query(ctx, "select invariant, what, subject from berth.violations")
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[violation])
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("violated: %+v", found)
	}
	return nil
}
