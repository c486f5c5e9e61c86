package postgres_test

import (
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// Two starts of one batch that look for unlike slots, find none and wait: only one has a token to pay with.
func TestStartsOfOneBatchThatWaitPayWithTokensThatAreThere(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.ok(l.store.SetTenant(t.Context(), berth.Tenant{ID: "slow", StartRate: 0.02, StartBurst: 1}))
	l.worker("w1", 1)
	l.place(start("full"))
	one, two := startOf("slow", "one"), startOf("slow", "two")
	one.Wait, two.Wait, two.Slots = 20*time.Second, 20*time.Second, 2
	results, err := l.store.ClaimSessions(t.Context(), []berth.Start{one, two})
	l.ok(err)
	if n := l.waiting(); n != 1 {
		t.Errorf("%d wait for the price of one: %+v", n, results)
	}
	l.refused(berth.CodeStartRateLimited, results[1].Err)
	l.ok(noViolations(t.Context(), l.db.Pool))
	l.exec("delete from berth.waiters")
}
