package testkit

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// leakVar makes a re-executed test binary one whose only test leaks.
const leakVar = "TESTKIT_TEST_LEAK"

// migrations counts how often the schema was made.
var migrations atomic.Int32

// databases is the server that these tests share.
var databases = NewPostgres(migrate, PostgresConfig{AfterEach: noViolations})

func TestMain(m *testing.M) {
	if os.Getenv(leakVar) != "" {
		os.Exit(Main(leaker{}, MainConfig{}))
	}
	os.Exit(Main(m, MainConfig{Postgres: databases}))
}

// migrate makes a small schema, and keeps a connection for a while as careless
// code would.
func migrate(ctx context.Context, url string, _ *slog.Logger) error {
	migrations.Add(1)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "create table violations (what text); create table things (name text primary key)")
	return err
}

func noViolations(ctx context.Context, pool *pgxpool.Pool) error {
	var n int
	if err := pool.QueryRow(ctx, "select count(*) from violations").Scan(&n); err != nil {
		return err
	}
	if n != 0 {
		return errors.New("there are violations")
	}
	return nil
}

type leaker struct{}

func (leaker) Run() int {
	go func() { select {} }()
	return 0
}

type canned int

func (code canned) Run() int { return int(code) }

func TestMainFailsOnALeak(t *testing.T) {
	t.Parallel()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	leaking := exec.CommandContext(t.Context(), executable)
	leaking.Env = append(os.Environ(), leakVar+"=1")
	out, err := leaking.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "leaker.Run") {
		t.Errorf("got %v and %s", err, out)
	}
}

func TestMainKeepsTheTestsExitCode(t *testing.T) {
	t.Parallel()
	unused := NewPostgres(migrate, PostgresConfig{})
	if code := Main(canned(3), MainConfig{Postgres: unused}); code != 3 {
		t.Errorf("got %d", code)
	}
	if _, err := unused.running(t.Context()); err == nil {
		t.Error("a closed server started")
	}
}
