package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
)

// The storm of jicofo PR #1298: 92 joins at once, of which 58 landed on one of ten bridges.
func TestParallelStartsSpreadEvenly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range ids("w", 10) {
		r.worker(id, 25)
	}
	stores := r.stores(3)
	for wave := range 2 {
		errs := parallel(92, func(i int) error {
			_, err := stores[i%3].Place(t.Context(), start(fmt.Sprintf("s%d-%d", wave, i)))
			return err
		})
		r.ok(errors.Join(errs...))
		if r.spread() > 1 {
			t.Errorf("wave %d: %v", wave, r.loads())
		}
	}
}

func TestPackOpensTheNextWorkerOnlyWhenTheLastIsFull(t *testing.T) {
	t.Parallel()
	for name, asks := range map[string]func(r *rig, s *berth.Start){
		"the request": func(_ *rig, s *berth.Start) { s.Strategy = berth.StrategyPack },
		"the tenant": func(r *rig, _ *berth.Start) {
			r.ok(r.store.SetTenant(r.Context(), berth.Tenant{ID: "t1", Strategy: berth.StrategyPack}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for _, id := range ids("w", 4) {
				r.worker(id, 6)
			}
			for i := range 24 {
				s := start(fmt.Sprintf("s%d", i))
				asks(r, &s)
				r.place(s)
				if i%5 == 4 || i == 23 {
					if used := r.usedWorkers(); used != i/6+1 {
						t.Errorf("%d sessions are on %d workers: %v", i+1, used, r.loads())
					}
				}
			}
			// One leaves the first worker, which is the fullest of those with room.
			for _, s := range r.all("t1")[:7] {
				_, err := r.store.EndSession(t.Context(), "t1", s.ID)
				r.ok(err)
			}
			loads := r.loads()
			fullest := slices.MaxFunc(slices.Collect(maps.Keys(loads)), func(a, b string) int {
				return loads[a]%6 - loads[b]%6 // a full one has no room
			})
			s := start("next")
			asks(r, &s)
			if got := r.place(s).Session.WorkerID; loads[fullest]%6 > 0 && loads[got] != loads[fullest] {
				t.Errorf("got %s of %v", got, loads)
			}
		})
	}
}

func (r *rig) usedWorkers() (n int) {
	r.Helper()
	for _, used := range r.loads() {
		if used > 0 {
			n++
		}
	}
	return n
}

func TestParallelPackingUsesAsFewWorkersAsItMust(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range ids("w", 6) {
		r.worker(id, 10)
	}
	stores := r.stores(3)
	errs := parallel(30, func(i int) error {
		s := start(fmt.Sprintf("s%d", i))
		s.Strategy = berth.StrategyPack
		_, err := stores[i%3].Place(t.Context(), s)
		return err
	})
	r.ok(errors.Join(errs...))
	// A claim that meets a slot of another in flight takes the next, so a worker may be opened a little early.
	if used := r.usedWorkers(); used > 4 {
		t.Errorf("30 sessions are on %d workers of 10 slots: %v", used, r.loads())
	}
}

func TestWeightedSessionTakesItsSlotsOnOneWorkerOrNone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 6)
	r.worker("w2", 6)
	heavy := func(id string, slots int) berth.Start {
		s := start(id)
		s.Slots = slots
		return s
	}
	first := r.place(heavy("a", 4)).Session
	if second := r.place(heavy("b", 4)).Session; second.WorkerID == first.WorkerID {
		t.Errorf("8 slots on a worker of 6")
	}
	r.placeRefused(berth.CodeAtCapacity, heavy("c", 3)) // 4 are free, 2 and 2
	if free := r.free(); free != 4 {
		t.Errorf("%d free after a refusal", free)
	}
	r.place(heavy("d", 2))
	r.place(heavy("e", 2))
	r.placeRefused(berth.CodeAtCapacity, heavy("f", 1))
	_, err := r.store.EndSession(t.Context(), "t1", "a")
	r.ok(err)
	if free := r.free(); free != 4 {
		t.Errorf("%d free after 4 were given back", free)
	}
	r.placeRefused(berth.CodeAtCapacity, heavy("g", 64))
}

func TestParallelWeightedStartsFillEverySlot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range ids("w", 5) {
		r.worker(id, 12)
	}
	stores := r.stores(3)
	errs := parallel(20, func(i int) error {
		s := start(fmt.Sprintf("s%d", i))
		s.Slots = 3
		_, err := stores[i%3].Place(t.Context(), s)
		return err
	})
	r.ok(errors.Join(errs...))
	if free := r.free(); free != 0 || r.deadlocks() != 0 {
		t.Errorf("%d free, %d deadlocks", free, r.deadlocks())
	}
}

func TestNobodySpillsWhileTheRegionHasRoom(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *berth.Start){
		"plain":    func(*berth.Start) {},
		"packed":   func(s *berth.Start) { s.Strategy = berth.StrategyPack },
		"selector": func(s *berth.Start) { s.Selector = map[string]string{"gpu": "yes"} },
		"weighted": func(s *berth.Start) { s.Slots = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.region("us")
			r.region("eu", "us")
			for _, region := range []string{"eu", "us"} {
				for _, id := range ids(region, 5) {
					registration := registrationOf(id, 0, 40)
					registration.Region, registration.Labels = region, map[string]string{"gpu": "yes"}
					r.registered(registration)
				}
			}
			stores := r.stores(3)
			var spilled atomic.Int32
			errs := parallel(90, func(i int) error {
				s := start(fmt.Sprintf("s%d", i))
				s.Region = "eu"
				change(&s)
				placed, err := stores[i%3].Place(t.Context(), s)
				if err == nil && placed.Session.Spilled() {
					spilled.Add(1)
				}
				return err
			})
			r.ok(errors.Join(errs...))
			if n := spilled.Load(); n > 0 {
				t.Errorf("%d of 90 spilled, though the region has 200 slots", n)
			}
		})
	}
}

func TestLoweredQuotaHoldsOnceItIsSet(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 4000)
	stores := r.stores(3)
	ctx, cancel := context.WithCancel(t.Context())
	var number atomic.Int64
	var running sync.WaitGroup
	for i := range 6 {
		running.Go(func() {
			for ctx.Err() == nil {
				_, err := stores[i%3].Place(ctx, start(fmt.Sprintf("s%d", number.Add(1))))
				if err != nil && berth.RefusalCode(err) == "" && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
	for round := range 10 {
		r.ok(r.store.SetTenant(t.Context(), berth.Tenant{ID: "t1"}))
		before := number.Load()
		testkit.EventuallyTrue(t, 10*time.Second, "nobody starts", func() bool { return number.Load() > before+12 })
		r.ok(r.store.SetTenant(t.Context(), berth.Tenant{ID: "t1", MaxConcurrentSessions: new(1)}))
		live := r.live("t1")
		before = number.Load()
		testkit.EventuallyTrue(t, 10*time.Second, "nobody asks", func() bool { return number.Load() > before+12 })
		if now := r.live("t1"); now > live {
			t.Errorf("round %d: %d sessions, then %d, though the quota is 1", round, live, now)
		}
	}
	cancel()
	running.Wait()
}

// Far from its limit, a tenant's claims run side by side, each on a lane. Seventeen processes are more than there are
// lanes, and the limit is where they must begin to take turns.
func TestLanesNeverPassTheQuota(t *testing.T) {
	t.Parallel()
	const processes, batches, batch, quota = 17, 3, 60, 2500
	r := newRig(t)
	for _, id := range ids("w", 4) {
		r.worker(id, 800)
	}
	r.quota("t1", quota)
	stores := r.stores(processes)
	errs := parallel(processes, func(i int) error {
		for n := range batches {
			var starts []berth.Start
			for k := range batch {
				starts = append(starts, start(fmt.Sprintf("s%d-%d-%d", i, n, k)))
			}
			if err := r.claimAll(stores[i], starts); err != nil {
				return err
			}
		}
		return nil
	})
	r.ok(errors.Join(errs...))
	if live, most := r.live("t1"), read[int](r, mostAtOnce, "t1"); live != quota || most != quota {
		t.Errorf("%d live, %d at most; the quota is %d, and %d were asked for", live, most, quota, processes*batches*batch)
	}
}

// claimAll asks until each start has an answer.
func (r *rig) claimAll(store *postgres.Store, starts []berth.Start) error {
	for len(starts) > 0 {
		results, err := store.ClaimSessions(r.Context(), starts)
		if err != nil {
			return err
		}
		var again []berth.Start
		for i, result := range results {
			if result.Contended {
				again = append(again, starts[i])
			} else if mayFail(result.Err) != nil {
				return result.Err
			}
		}
		starts = again
	}
	return nil
}

func TestGenerationsJumpOnceUnderParallelClaims(t *testing.T) {
	t.Parallel()
	const n = 60
	r := newRig(t)
	r.worker("w1", 200)
	r.tick()
	before := r.place(start("before")).Session.Generation
	r.exec("update berth.reaper_state set timeline = 'another', settled_start = null")
	stores := r.stores(3)
	generations := make([]berth.Generation, n)
	errs := parallel(n, func(i int) error {
		placed, err := stores[i%3].Place(t.Context(), start(fmt.Sprintf("s%d", i)))
		generations[i] = placed.Session.Generation
		return err
	})
	r.ok(errors.Join(errs...))
	least, most := slices.Min(generations), slices.Max(generations)
	if least < before+1<<20 || most >= before+2<<20 {
		t.Errorf("from %d to %d - %d: want one jump of %d, before the first claim", before, least, most, 1<<20)
	}
	slices.Sort(generations)
	if len(slices.Compact(generations)) != n {
		t.Error("a generation was handed out twice")
	}
}
