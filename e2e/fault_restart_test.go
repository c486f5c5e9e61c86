package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestRestartsOfPostgresUnderLoadLoseNothing restarts the database three times, once by a crash, while sessions and a
// call live and others start and end.
func TestRestartsOfPostgresUnderLoadLoseNothing(t *testing.T) {
	t.Parallel()
	c := newCity(t, cityPlan{apis: 2, workers: 3, slots: 20})
	held := c.holdSessions(t, 20)
	a, b := c.holdCall(t, c.name("call"))
	l := c.begin(t, loadPlan{})
	l.warm(t)
	before := c.mustOwners(t)
	for i, stop := range []func(testing.TB){c.stopPostgres, c.crashPostgres, c.stopPostgres} {
		stopped := time.Now()
		stop(t)
		c.startPostgres(t)
		up := time.Now()
		eventually(t, func() error { return l.startedSince(up) })
		t.Logf("restart %d: down for %.2f s, the next start succeeded %.2f s after it was up", i+1,
			up.Sub(stopped).Seconds(), l.lastStart().Sub(up).Seconds())
		c.kept(t, before)
		talk(t, a, b, fmt.Sprintf("after restart %d", i+1))
	}
	c.ticked(t, settled)
	c.kept(t, before)
	l.end(t)
	allOpen(t, append(held, a, b)...)
	if lost := c.losses(t); len(lost) > 0 {
		t.Errorf("declared lost: %s", strings.Join(lost, "; "))
	}
	c.nobodyEnded(t)
}
