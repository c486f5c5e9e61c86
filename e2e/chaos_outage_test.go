//go:build chaos

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	sdk "github.com/berthdev/berth/sdk/go"
)

// TestScenario_F05_PostgresAwayForAMinuteLosesNobody stops the database for ten leases, with 20 workers, 200 sessions, a
// call, a peer with media, and clients that start more.
func TestScenario_F05_PostgresAwayForAMinuteLosesNobody(t *testing.T) {
	t.Parallel()
	const workers, sessions, outage = 20, 200, time.Minute
	c := newCity(t, cityPlan{
		apis: 2, workers: workers, slots: sessions/workers + 2, worker: []string{"BERTH_DATABASE_POOL_SIZE=2", "BERTH_SLOW_START=0s"},
	})
	held := c.holdSessions(t, sessions)
	a, b := c.holdCall(t, c.name("call"))
	client := c.client(t)
	placed, err := client.CreateSession(t.Context(), sdk.CreateSession{ID: c.name("media")})
	if err != nil {
		t.Fatal(err)
	}
	peer := connect(t, client, placed, "echo")
	peer.flows(t)
	stall := peer.watch(t)
	l := c.begin(t, loadPlan{})
	l.warm(t)
	before := c.mustOwners(t)

	stopped := time.Now()
	c.stopPostgres(t)
	after(time.Until(stopped.Add(outage)))
	c.startPostgres(t)
	up := time.Now()
	eventually(t, func() error { return l.startedSince(up) })
	first := time.Since(up)
	c.kept(t, before)
	renewed := c.renewals(t, workers, up)
	c.ticked(t, 4*settled) // beyond the lease that everybody was given
	c.kept(t, before)
	l.end(t)
	longest := stall()
	t.Logf("down for %.1f s; up: the next start succeeded after %.2f s, %d workers renewed within %s", up.Sub(stopped).Seconds(),
		first.Seconds(), workers, renewed)
	t.Logf("the longest pause of media was %.2f s", longest.Seconds())
	if longest > 2*time.Second {
		t.Errorf("media stopped for %v", longest)
	}
	allOpen(t, append(held, a, b)...)
	talk(t, a, b, "after the outage")
	if moves := peer.conn.Stats().Moves; moves != 0 {
		t.Errorf("the peer moved %d times", moves)
	}
	if lost := c.losses(t); len(lost) > 0 {
		t.Errorf("declared lost: %s", strings.Join(lost, "; "))
	}
	c.nobodyEnded(t)
}

// renewals waits until every worker has renewed since a moment, and says how these were spread, by quarters.
func (c *city) renewals(t testing.TB, workers int, since time.Time) string {
	t.Helper()
	var count int
	var spread []float64
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := c.store.Pool().QueryRow(ctx, `select count(*), percentile_cont(array[0, .25, .5, .75, 1]) within group
			(order by extract(epoch from renewed_at - $1)) from berth.worker_leases where renewed_at > $1`, since).Scan(&count, &spread)
		if err == nil && count < workers {
			err = fmt.Errorf("%d workers of %d have renewed", count, workers)
		}
		return err
	})
	return fmt.Sprintf("%.1f..%.1f..%.1f..%.1f..%.1f s", spread[0], spread[1], spread[2], spread[3], spread[4])
}
