package e2e

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

// query reads one value from the stack's database.
func query[T any](t testing.TB, s *stack, sql string, args ...any) T {
	t.Helper()
	var value T
	if err := s.store.Pool().QueryRow(t.Context(), sql, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// violations lists the invariants that do not hold.
func (s *stack) violations(t testing.TB) []string {
	t.Helper()
	// Cleanups have no t.Context any more.
	rows, err := s.store.Pool().Query(detached(t), "select format('%s: %s (%s)', invariant, what, subject) from berth.violations")
	if err != nil {
		t.Fatalf("read violations: %v", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("read violations: %v", err)
	}
	return found
}

// ownership is what the session's row says about its owner.
type ownership struct {
	worker     string
	instance   int
	generation int64
	state      string
}

func (o ownership) String() string {
	return fmt.Sprintf("%s, owner %q instance %d, generation %d", o.state, o.worker, o.instance, o.generation)
}

// owner reads the newest session with an id. Ids of these tests are unique among tenants.
func (s *stack) owner(t testing.TB, sessionID string) ownership {
	t.Helper()
	var o ownership
	err := s.store.Pool().QueryRow(t.Context(), `select coalesce(worker_id, ''), coalesce(instance, 0), generation, state
		from berth.sessions where id = $1 order by key desc limit 1`, sessionID).Scan(&o.worker, &o.instance, &o.generation, &o.state)
	if err != nil {
		t.Fatalf("read the row of session %s: %v", sessionID, err)
	}
	return o
}
