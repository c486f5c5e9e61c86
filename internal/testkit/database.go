package testkit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// releaseTimeout is how long a test's connections may take to come back to its
// pool when it ends.
const releaseTimeout = 5 * time.Second

// maxIdentifier is what PostgreSQL keeps of a name, in bytes.
const maxIdentifier = 63

// DB is a database that one test has to itself.
type DB struct {
	// Name is made of a number and the test's name.
	Name string
	// URL is the address over TCP, for the code under test, other processes and
	// proxies. It has the superuser's password in it.
	URL string
	// SocketURL is the address over the Unix socket, for this process: it
	// connects faster, as it needs no password.
	SocketURL string
	// Pool is connected by SocketURL, eight connections at most. It is closed when
	// the test ends; the test may close it earlier.
	Pool *pgxpool.Pool
}

// Database returns a new, migrated database.
func (p *Postgres) Database(t testing.TB) *DB {
	t.Helper()
	return p.database(t, migratedTemplate)
}

// EmptyDatabase returns a new database without any schema.
func (p *Postgres) EmptyDatabase(t testing.TB) *DB {
	t.Helper()
	return p.database(t, emptyTemplate)
}

func (p *Postgres) database(t testing.TB, template string) *DB {
	t.Helper()
	ctx, cancel := detached(t, setupTimeout)
	defer cancel()
	server, err := p.running(ctx)
	if err != nil {
		t.Fatalf("start the shared server: %v", err)
	}
	name, err := server.clone(ctx, template, t.Name())
	if err != nil {
		t.Fatalf("clone a database: %v", err)
	}
	t.Cleanup(func() { p.discard(t, server, name, template == migratedTemplate) })
	db := &DB{Name: name, URL: server.server.URL(name), SocketURL: server.server.SocketURL(name)}
	if db.Pool, err = newPool(ctx, db.SocketURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePool(t, db.Pool) })
	return db
}

// detached is a context for work on behalf of a test that must not stop half
// way when the test ends. In cleanups the test's context is over already.
func detached(t testing.TB, timeout time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
}

// closePool closes the pool, which waits for acquired connections, and fails the
// test if one never comes back. Dropping the database then cuts it.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	timer := time.NewTimer(releaseTimeout)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
		t.Errorf("%d connections of DB.Pool were never released", pool.Stat().AcquiredConns())
	}
}

// discard checks and drops a database.
func (p *Postgres) discard(t testing.TB, server *cluster, name string, migrated bool) {
	t.Helper()
	ctx, cancel := detached(t, setupTimeout)
	defer cancel()
	if migrated && p.cfg.AfterEach != nil {
		if err := p.inspect(ctx, server.server.SocketURL(name)); err != nil {
			t.Errorf("the database after the test: %v", err)
		}
	}
	if err := server.drop(ctx, name); err != nil {
		t.Errorf("drop database: %v", err)
	}
}

func (p *Postgres) inspect(ctx context.Context, url string) error {
	pool, err := newPool(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	return p.cfg.AfterEach(ctx, pool)
}

// databaseName makes the name of the nth database from the test's.
func databaseName(n int, test string) string {
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		default:
			return '_'
		}
	}, test)
	name := fmt.Sprintf("t%d_%s", n, strings.ToLower(plain))
	return name[:min(len(name), maxIdentifier)]
}
