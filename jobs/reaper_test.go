package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/jobs"
)

var detection = berth.DefaultDetection()

// reaperStore is all that a reaper and its detector ask of the database.
type reaperStore interface {
	jobs.ReaperStore
	jobs.LookStore
}

func newReaper(t *testing.T, store reaperStore, prober jobs.Prober) (*jobs.Reaper, *prometheus.Registry) {
	t.Helper()
	return newReaperOf(t, detection, store, prober, nil, testkit.Logger(t))
}

func newReaperOf(
	t *testing.T, numbers berth.Detection, store reaperStore, prober jobs.Prober, asker jobs.Asker, logger *slog.Logger,
) (*jobs.Reaper, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	detector, err := jobs.NewDetector(numbers, store, prober, asker)
	if err != nil {
		t.Fatal(err)
	}
	reaper, err := jobs.NewReaper(store, detector, topicsOf(store), numbers, logger, registry)
	if err != nil {
		t.Fatal(err)
	}
	return reaper, registry
}

func tick(t *testing.T, r *jobs.Reaper) {
	t.Helper()
	if err := r.Tick(t.Context()); err != nil {
		t.Fatalf("tick: %v", err)
	}
}

// ticks runs one tick a second for d.
func ticks(t *testing.T, r *jobs.Reaper, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		started := time.Now()
		tick(t, r)
		<-time.After(time.Second - time.Since(started))
	}
}

func wrote(t *testing.T, f *fakeStore, want ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	got := slices.DeleteFunc(slices.Clone(f.calls), func(call string) bool { return call == "replace" || call == "end 0" })
	if !slices.Equal(got, want) {
		t.Errorf("wrote %q, want %q", got, want)
	}
}

func TestOneTickFindsAKilledWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add("w1", 450).present = false
		store.add("w2", 3)
		reaper, registry := newReaper(t, store, cannedProber(berth.ProbeDead))
		started := time.Now()
		tick(t, reaper)
		if took := store.workers["w1"].lostAt.Sub(started); took != detection.ConfirmDelay {
			t.Errorf("lost after %v", took)
		}
		wrote(t, store, "gap w1 presence_gone", "lost w1 probe_refused",
			"displace lost w1 200", "displace lost w1 200", "displace lost w1 50", "displace lost w1 0")
		if n := counter(t, registry, "berth_workers_lost_total", "probe_refused"); n != 1 {
			t.Errorf("%v losses counted", n)
		}
		if n := counter(t, registry, "berth_sessions_displaced_total", ""); n != 450 {
			t.Errorf("%v sessions counted", n)
		}
	})
}

func TestAliveWorkerWithoutPresenceLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add("w1", 5).present = false
		reaper, _ := newReaper(t, store, cannedProber(berth.ProbeAlive))
		tick(t, reaper)
		wrote(t, store, "gap w1 presence_gone", "clear w1")
	})
}

func TestSilentWorkerIsLostOnceItsLeaseIsLongOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		reaper, _ := newReaper(t, store, cannedProber(berth.ProbeUnknown))
		tick(t, reaper) // so that it is not blind
		w := store.add("w1", 1)
		w.present = false
		ticks(t, reaper, 20*time.Second)
		late := w.lostAt.Sub(w.expires)
		if w.lost != "lease_over_and_silent" || late < detection.UnprovenWait || late > detection.UnprovenWait+time.Second {
			t.Errorf("lost by %q, %v after its lease", w.lost, late)
		}
	})
}

func TestPausedWorkerIsCordonedAndLostAtThePauseLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		asked := proberFunc(func(context.Context, berth.Sighting) berth.ProbeResult {
			t.Error("a worker that is present was asked")
			return berth.ProbeDead
		})
		reaper, _ := newReaper(t, store, asked)
		tick(t, reaper)
		w := store.add("w1", 0)
		ticks(t, reaper, detection.PauseLimit+5*time.Second)
		wrote(t, store, "gap w1 lease_late", "cordon w1")
		ticks(t, reaper, 2*time.Second)
		wrote(t, store, "gap w1 lease_late", "cordon w1", "lost w1 pause_limit", "displace lost w1 0")
		if late := w.lostAt.Sub(w.expires); late < detection.PauseLimit {
			t.Errorf("lost %v after its lease", late)
		}
	})
}

func TestRenewalClearsAPausedWorkersGap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		reaper, _ := newReaper(t, store, cannedProber(berth.ProbeDead))
		tick(t, reaper)
		w := store.add("w1", 1)
		ticks(t, reaper, 9*time.Second)
		w.expires = time.Now().Add(detection.Lease)
		tick(t, reaper)
		wrote(t, store, "gap w1 lease_late", "cordon w1", "clear w1")
	})
}

// F01: two misses count as two in a row only if both were looks that succeeded.
func TestScenario_F01_SuspicionDoesNotSurviveABlindReaper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		w := store.add("w1", 1)
		reaper, registry := newReaper(t, store, cannedProber(berth.ProbeDead))
		tick(t, reaper)
		<-time.After(7 * time.Second) // nobody ticks, and the lease runs out
		store.fails = "BeginTick"
		if err := reaper.Tick(t.Context()); !errors.Is(err, errBroken) {
			t.Errorf("got %v", err)
		}
		store.fails, store.lastLook = "", time.Time{}
		tick(t, reaper)
		wrote(t, store)
		if left := time.Until(w.expires); left < 5*time.Second {
			t.Errorf("%v of the lease left", left)
		}
		if n := counter(t, registry, "berth_reaper_ticks_total", "failed"); n != 1 {
			t.Errorf("%v failures counted", n)
		}
	})
}

func TestOvertakenReaperDoesNothingMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add("w1", 1).present = false
		reaper, _ := newReaper(t, store, cannedProber(berth.ProbeDead))
		failed := make(chan error)
		go func() { failed <- reaper.Tick(t.Context()) }()
		synctest.Wait() // it is in its confirm delay
		store.mu.Lock()
		store.number++
		store.mu.Unlock()
		if err := <-failed; !errors.Is(err, berth.ErrStale) {
			t.Errorf("got %v", err)
		}
		wrote(t, store, "gap w1 presence_gone")
	})
}

func TestTickElsewhereIsNoTickHere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add("w1", 1).present = false
		store.elsewhere = true
		reaper, registry := newReaper(t, store, cannedProber(berth.ProbeDead))
		tick(t, reaper)
		wrote(t, store)
		if n := counter(t, registry, "berth_reaper_ticks_total", "elsewhere"); n != 1 {
			t.Errorf("%v counted", n)
		}
	})
}

func TestTickFinishesWhatIsOverdue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add("old", 1)
		store.add("draining", 2)
		store.unfinished, store.drains, store.overdue = []string{"old"}, []string{"draining"}, 250
		reaper, registry := newReaper(t, store, cannedProber(berth.ProbeAlive))
		tick(t, reaper)
		wrote(t, store, "displace lost old 1", "displace lost old 0", "displace drained draining 2", "displace drained draining 0",
			"end 200", "end 50")
		if n := counter(t, registry, "berth_sessions_overdue_total", ""); n != 250 {
			t.Errorf("%v counted", n)
		}
	})
}

func TestStepThatFailsFailsTheTick(t *testing.T) {
	t.Parallel()
	for _, method := range []string{
		"BeginTick", "Look", "OpenGap", "MarkLost", "OwnedBy", "DisplaceLost", "Unfinished", "OverdueDrains", "DisplaceDrained",
		"ReplaceLost", "EndOverdue", "WarmWorkers", "JudgeWorkers",
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newFakeStore()
				store.add("w1", 1).present = false
				store.add("w2", 1)
				store.drains, store.fails = []string{"w2"}, method
				reaper, _ := newReaper(t, store, cannedProber(berth.ProbeDead))
				if err := reaper.Tick(t.Context()); !errors.Is(err, errBroken) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestManyWorkersAreAskedAtATimeButNotAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		for i := range 100 {
			store.add(fmt.Sprintf("w%d", i), 0).present = false
		}
		var mu sync.Mutex
		now, most := 0, 0
		reaper, _ := newReaper(t, store, proberFunc(func(context.Context, berth.Sighting) berth.ProbeResult {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			<-time.After(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return berth.ProbeAlive
		}))
		started := time.Now()
		tick(t, reaper)
		if took := time.Since(started); most > 32 || took > 5*time.Second {
			t.Errorf("%d at a time, %v in all", most, took)
		}
	})
}

func TestWakesDuringATickAreOneMoreTick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		started, release := make(chan struct{}), make(chan struct{})
		store.onLock = func() {
			started <- struct{}{}
			<-release
		}
		reaper, registry := newReaper(t, store, cannedProber(berth.ProbeAlive))
		reaper.Start(t.Context())
		reaper.Start(t.Context())
		defer reaper.Stop()
		reaper.Wake()
		<-started
		for range 10 {
			reaper.Wake()
		}
		release <- struct{}{}
		<-started
		release <- struct{}{}
		synctest.Wait()
		if n := counter(t, registry, "berth_reaper_ticks_total", "acted"); n != 2 {
			t.Errorf("%v ticks", n)
		}
	})
}

func TestFailedTickIsFollowedByTheNextWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.fails = "Look"
		reaper, registry := newReaper(t, store, cannedProber(berth.ProbeAlive))
		reaper.Start(t.Context())
		defer reaper.Stop()
		reaper.Wake()
		synctest.Wait()
		store.mu.Lock()
		store.fails = ""
		store.mu.Unlock()
		reaper.Wake()
		synctest.Wait()
		if failed, acted := counter(t, registry, "berth_reaper_ticks_total", "failed"),
			counter(t, registry, "berth_reaper_ticks_total", "acted"); failed != 1 || acted != 1 {
			t.Errorf("%v failed, %v acted", failed, acted)
		}
	})
}

func TestStopCutsTheConfirmDelayShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add("w1", 1).present = false
		reaper, _ := newReaper(t, store, cannedProber(berth.ProbeDead))
		reaper.Start(t.Context())
		reaper.Wake()
		synctest.Wait()
		before := time.Now()
		reaper.Stop()
		if took := time.Since(before); took != 0 {
			t.Errorf("stopped after %v", took)
		}
		wrote(t, store, "gap w1 presence_gone")
	})
}

func TestStopIsIdempotentAndSafeBeforeStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		reaper, _ := newReaper(t, store, cannedProber(berth.ProbeAlive))
		reaper.Stop()
		reaper.Wake() // nobody listens yet
		reaper.Start(t.Context())
		synctest.Wait()
		var stops sync.WaitGroup
		for range 3 {
			stops.Go(reaper.Stop)
		}
		stops.Wait()
		number := store.number
		reaper.Wake()
		synctest.Wait()
		if number != 1 || store.number != number {
			t.Errorf("%d ticks, then %d", number, store.number)
		}
	})
}

func TestEndOfTheContextStopsTheReaper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reaper, _ := newReaper(t, newFakeStore(), cannedProber(berth.ProbeAlive))
		ctx, cancel := context.WithCancel(t.Context())
		reaper.Start(ctx)
		cancel()
		reaper.Stop()
	})
}
