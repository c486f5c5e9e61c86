package backplane_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/berthdev/berth/internal/testkit"
)

// statements records what goes through a pool.
type statements struct {
	mu   sync.Mutex // guards the rest
	sent []string
}

// pool leads to db, and is closed when the test ends.
func (s *statements) pool(t *testing.T, db *testkit.DB) *pgxpool.Pool {
	t.Helper()
	settings := db.Pool.Config()
	settings.ConnConfig.Tracer = s
	pool, err := pgxpool.NewWithConfig(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, data.SQL)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// count is how many statements call a function.
func (s *statements) count(function string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sql := range s.sent {
		if strings.Contains(sql, function) {
			n++
		}
	}
	return n
}
