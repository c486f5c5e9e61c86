package testkit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/internal/devpg"
)

// scalar returns the only value that a statement yields on url.
func scalar[T any](t testing.TB, url, statement string, args ...any) (value T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	err = conn.QueryRow(t.Context(), statement, args...).Scan(&value)
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatalf("query: %v", err)
	}
	return value
}

func TestDatabasesAreMigratedOnceAndIsolated(t *testing.T) {
	t.Parallel()
	for i := range 6 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			db := databases.Database(t)
			if _, err := db.Pool.Exec(t.Context(), "insert into things values ('mine')"); err != nil {
				t.Fatal(err)
			}
			if n := scalar[int](t, db.URL, "select count(*) from things"); n != 1 {
				t.Errorf("%d things, want the test's own", n)
			}
			if n := migrations.Load(); n != 1 {
				t.Errorf("migrated %d times", n)
			}
		})
	}
}

func TestEmptyDatabaseHasNoTables(t *testing.T) {
	t.Parallel()
	db := databases.EmptyDatabase(t)
	if n := scalar[int](t, db.SocketURL, "select count(*) from pg_class where relnamespace = 'public'::regnamespace"); n != 0 {
		t.Errorf("%d relations", n)
	}
}

func TestDatabaseIsDroppedDespiteConnections(t *testing.T) {
	t.Parallel()
	witness := databases.EmptyDatabase(t)
	var name string
	var straggler *pgx.Conn
	failures := onSpy(t, func(tb testing.TB) {
		tb.Helper()
		db := databases.Database(tb)
		name = db.Name
		conn, err := pgx.Connect(t.Context(), db.URL)
		if err != nil {
			tb.Fatalf("connect: %v", err)
		}
		straggler = conn
	})
	if failures != "" {
		t.Error(failures)
	}
	if n := scalar[int](t, witness.URL, "select count(*) from pg_database where datname = $1", name); n != 0 {
		t.Errorf("database %s is still there", name)
	}
	if err := straggler.Ping(t.Context()); err == nil {
		t.Error("the connection survived its database")
	}
}

func TestAfterEachFailsTheTest(t *testing.T) {
	t.Parallel()
	failures := onSpy(t, func(tb testing.TB) {
		tb.Helper()
		db := databases.Database(tb)
		if _, err := db.Pool.Exec(tb.Context(), "insert into violations values ('x')"); err != nil {
			tb.Fatalf("insert: %v", err)
		}
		db.Pool.Close() // a test may
	})
	if failures != "the database after the test: there are violations" {
		t.Errorf("got %q", failures)
	}
}

func TestUnreleasedConnectionFailsTheTest(t *testing.T) {
	t.Parallel()
	var release func()
	failures := onSpy(t, func(tb testing.TB) {
		tb.Helper()
		conn, err := databases.Database(tb).Pool.Acquire(tb.Context())
		if err != nil {
			tb.Fatalf("acquire: %v", err)
		}
		release = conn.Release
	})
	release()
	if failures != "1 connections of DB.Pool were never released" {
		t.Errorf("got %q", failures)
	}
}

func TestFailedMigrationFailsEveryTestWithItsReason(t *testing.T) {
	t.Parallel()
	calls := 0
	broken := NewPostgres(func(context.Context, string, *slog.Logger) error {
		calls++
		return errors.New("syntax error in 00007")
	}, PostgresConfig{})
	for range 2 {
		failures := onSpy(t, func(tb testing.TB) {
			tb.Helper()
			broken.Database(tb)
		})
		if !strings.Contains(failures, "syntax error in 00007") {
			t.Errorf("got %q", failures)
		}
	}
	if calls != 1 {
		t.Errorf("migrated %d times", calls)
	}
	if err := broken.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestMissingPostgresFailsWithTheRemedy(t *testing.T) {
	t.Parallel()
	missing := NewPostgres(migrate, PostgresConfig{Server: devpg.Config{BinDir: t.TempDir()}})
	failures := onSpy(t, func(tb testing.TB) {
		tb.Helper()
		missing.Database(tb)
	})
	if !strings.Contains(failures, "make deps") {
		t.Errorf("got %q", failures)
	}
}

func TestStartPostgresGivesAServerToBreak(t *testing.T) {
	t.Parallel()
	var server *devpg.Server
	failures := onSpy(t, func(tb testing.TB) {
		tb.Helper()
		server = StartPostgres(tb, devpg.Config{})
		if err := server.Stop(context.WithoutCancel(tb.Context())); err != nil {
			tb.Errorf("stop: %v", err)
		}
	})
	if failures != "" {
		t.Error(failures)
	}
	<-server.Done()
}

func TestDatabaseNamesFit(t *testing.T) {
	t.Parallel()
	if got := databaseName(7, "TestÜber/Some_Case"); got != "t7_test_ber_some_case" {
		t.Errorf("got %s", got)
	}
	if got := databaseName(7, strings.Repeat("x", 100)); len(got) != maxIdentifier {
		t.Errorf("%d bytes", len(got))
	}
}

func BenchmarkClone(b *testing.B) {
	databases.Database(b) // starts and migrates
	ctx := context.WithoutCancel(b.Context())
	for b.Loop() {
		name, err := databases.cluster.clone(ctx, migratedTemplate, b.Name())
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := databases.cluster.drop(ctx, name); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
