package jobs_test

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthdev/berth/internal/berth"
)

func TestKilledWorkersSessionsMoveWithinOneTick(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	w1 := c.worker("w1", 8)
	rejoin, end := c.place("rejoin", berth.LossRejoin), c.place("end", berth.LossEnd)
	replace := c.place("replace", berth.LossReplace)
	c.worker("w2", 8)
	other := c.place("other", berth.LossRejoin) // on w2, which is empty
	reaper, registry := c.reaper()
	c.looked()
	w1.die()
	started := time.Now()
	tick(t, reaper)
	t.Logf("found and moved in %v", time.Since(started))
	c.expect(rejoin, berth.SessionAwaitingRejoin, "")
	c.expect(end, berth.SessionEnded, berth.EndedWorkerLost)
	if got := c.expect(replace, berth.SessionAssigned, ""); got.WorkerID != "w2" || got.Generation <= replace.Generation {
		t.Errorf("got %+v", got)
	}
	if got := c.expect(other, berth.SessionAssigned, ""); got.Generation != other.Generation {
		t.Errorf("collateral: %+v", got)
	}
	if n := counter(t, registry, "berth_workers_lost_total", "probe_refused"); n != 1 {
		t.Errorf("%v losses", n)
	}
}

func TestTwoOfThreeKilledAtOnceAreFoundByOneTick(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	w1, w2 := c.worker("w1", 2), c.worker("w2", 2)
	c.worker("w3", 2)
	c.looked()
	w1.die()
	w2.die()
	reaper, _ := c.reaper()
	tick(t, reaper)
	if n := c.count("select count(*) from berth.workers where state = 'lost'"); n != 2 {
		t.Errorf("%d lost", n)
	}
}

func TestTerminatedPresenceOfAnAliveWorkerCostsNothing(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	w := c.worker("w1", 2)
	placed := c.place("a", berth.LossRejoin)
	c.looked()
	c.terminate(w)
	<-w.presence.Done()
	reaper, _ := c.reaper()
	tick(t, reaper)
	if got := c.expect(placed, berth.SessionAssigned, ""); got.Generation != placed.Generation {
		t.Errorf("got %+v", got)
	}
	if open, cleared := c.count("select count(*) from berth.gaps where cleared_at is null"),
		c.count("select count(*) from berth.gaps where cleared_at is not null"); open != 0 || cleared != 1 {
		t.Errorf("%d gaps open, %d cleared", open, cleared)
	}
}

func TestRestartedWorkerIsProvenDeadAsItsOldInstance(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	old := c.worker("w1", 2)
	placed := c.place("a", berth.LossRejoin)
	c.looked()
	old.vanish()
	old.server.Config.Handler = says(200, `{"worker_id":"w1","instance":9999}`) // the same port, another start
	reaper, _ := c.reaper()
	tick(t, reaper)
	c.expect(placed, berth.SessionAwaitingRejoin, "")
}

func TestScenario_F03_BlindReaperGivesEveryLeaseAFullTerm(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.worker("w1", 2)
	placed := c.place("a", berth.LossRejoin)
	c.exec("update berth.worker_leases set expires_at = clock_timestamp() - interval '1 hour'") // all APIs were down
	reaper, _ := c.reaper()
	tick(t, reaper)
	c.expect(placed, berth.SessionAssigned, "")
	left := c.count("select extract(epoch from expires_at - clock_timestamp())::int from berth.worker_leases")
	if gaps := c.count("select count(*) from berth.gaps"); gaps != 0 || left < 4 {
		t.Errorf("%d gaps, %d s of the lease left", gaps, left)
	}
}

// F21: what died while no reaper ran is found by the first that does.
func TestScenario_F21_WorkerKilledWhileNobodyLookedIsFound(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	w := c.worker("w1", 2)
	placed := c.place("a", berth.LossRejoin)
	w.die()
	reaper, _ := c.reaper() // blind: it has never looked
	tick(t, reaper)
	c.expect(placed, berth.SessionAwaitingRejoin, "")
}

func TestTwoReapersAtOnceActOnce(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	w := c.worker("w1", 8)
	for _, id := range []string{"a", "b", "c"} {
		c.place(id, berth.LossRejoin)
	}
	c.looked()
	w.die()
	lost := 0.0
	var group errgroup.Group
	for range 3 {
		reaper, registry := c.reaper()
		group.Go(func() error { return errors.Join(reaper.Tick(t.Context()), reaper.Tick(t.Context())) })
		defer func() {
			if lost += counter(t, registry, "berth_workers_lost_total", "probe_refused"); lost > 1 {
				t.Errorf("%v losses", lost)
			}
		}()
	}
	c.ok(group.Wait())
	if n := c.count("select count(*) from berth.session_events where type = 'displaced'"); n != 3 {
		t.Errorf("%d displacements", n)
	}
	if n := c.count("select count(*) from berth.gaps where confirmed_at is not null"); n != 1 {
		t.Errorf("%d confirmed gaps", n)
	}
}

func TestTickEndsWhatIsOverdueOnTheDatabase(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	w := c.worker("w1", 8)
	noShow, drained := c.place("no-show", berth.LossRejoin), c.place("drained", berth.LossRejoin)
	_, err := c.store.DrainWorker(t.Context(), w.id, time.Minute, false)
	c.ok(err)
	c.exec("update berth.sessions set connect_by = clock_timestamp() - interval '1 second' where id = 'no-show'")
	reaper, _ := c.reaper()
	tick(t, reaper)
	c.expect(noShow, berth.SessionEnded, berth.EndedNoShow)
	c.expect(drained, berth.SessionAssigned, "")
	c.exec("update berth.workers set drain_deadline = clock_timestamp() - interval '10 seconds'")
	tick(t, reaper)
	c.expect(drained, berth.SessionAwaitingRejoin, "")
}

// The reaper that dies between a verdict and the moves leaves rows that the next one finds.
func TestUnfinishedLossIsFinishedByTheNextTick(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	w := c.worker("w1", 2)
	placed := c.place("a", berth.LossRejoin)
	w.die()
	verdict, err := c.store.BeginTick(t.Context(), detection.BlindAfter, detection.Lease)
	c.ok(err)
	c.ok(c.store.OpenGap(t.Context(), verdict.Number, w.id, w.number, "test", 0))
	lost, err := c.store.MarkLost(t.Context(), verdict.Number, w.id, w.number, "test")
	if err != nil || !lost {
		t.Fatalf("lost %v, %v", lost, err)
	}
	reaper, _ := c.reaper()
	tick(t, reaper)
	c.expect(placed, berth.SessionAwaitingRejoin, "")
}
