package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestScenario_F03_AllAPIsAwayForTwoLeasesLosesNobody kills every API process while the workers live, and starts them
// again after two leases.
func TestScenario_F03_AllAPIsAwayForTwoLeasesLosesNobody(t *testing.T) {
	t.Parallel()
	c := newCity(t, cityPlan{apis: 2, workers: 3, slots: 8, worker: shortLease, api: shortLease[:1]})
	held := c.holdSessions(t, 9)
	a, b := c.holdCall(t, c.name("call"))
	before := c.mustOwners(t)

	killed := time.Now()
	c.killAPIs(t)
	after(time.Until(killed.Add(2 * shortTerm)))
	c.restartAPIs(t)
	back := time.Now()
	c.ticked(t, settled)
	c.kept(t, before)
	t.Logf("no API process for %.1f s, %d looks of the reaper within %.1f s after it", back.Sub(killed).Seconds(), settled,
		time.Since(back).Seconds())
	if lost := c.losses(t); len(lost) > 0 {
		t.Errorf("declared lost: %s", strings.Join(lost, "; "))
	}
	allOpen(t, append(held, a, b)...)
	talk(t, a, b, "afterwards")
}

// TestScenario_F21_WorkerKilledWhileNobodyLookedIsFoundSoonAfter kills a worker while no API process runs.
func TestScenario_F21_WorkerKilledWhileNobodyLookedIsFoundSoonAfter(t *testing.T) {
	t.Parallel()
	c := newCity(t, cityPlan{apis: 2, workers: 3, slots: 8, worker: shortLease, api: shortLease[:1]})
	held := c.holdSessions(t, 9)
	dead := c.workers[0]
	c.killAPIs(t)
	killed := time.Now()
	dead.kill(t)
	after(time.Until(killed.Add(2 * shortTerm)))
	c.restartAPIs(t)
	back := time.Now()

	eventually(t, func() error {
		if row := c.worker(t, dead.id); row.State != "lost" {
			return fmt.Errorf("worker %s is %s", dead.id, row.State)
		}
		return nil
	})
	found := time.Since(back)
	for _, s := range held {
		owner := s.placed.Owner.WorkerID
		eventually(t, func() error {
			switch row := c.owner(t, s.placed.ID); {
			case owner != dead.id && (row.worker != owner || row.state != "active"):
				return finalError{fmt.Errorf("session %s of %s, which lives, is %v", s.placed.ID, owner, row)}
			case owner == dead.id && row.state != "awaiting_rejoin":
				return fmt.Errorf("session %s of the dead worker is %v", s.placed.ID, row)
			}
			return nil
		})
	}
	freed := time.Since(back)
	t.Logf("found %.2f s after the API processes were back, its sessions freed after %.2f s: %s", found.Seconds(), freed.Seconds(),
		strings.Join(c.losses(t), "; "))
	if limit := 10 * time.Second; freed > limit {
		t.Errorf("that took longer than %v", limit)
	}
	if lost := c.losses(t); len(lost) != 1 {
		t.Errorf("declared lost: %s", strings.Join(lost, "; "))
	}
}
