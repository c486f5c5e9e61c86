package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
)

const (
	// chaosProcesses do everything at once.
	chaosProcesses = 12
	// roundTime is the longest that they do so before they rest and all that they left is checked.
	roundTime = 4 * time.Second
)

// stepper is one of the processes of a round.
type stepper interface {
	step(ctx context.Context) error
}

// chaos is what the processes of a proof share.
type chaos struct {
	*rig

	seed     uint64
	count    *tally
	stores   []*postgres.Store
	workers  []string
	numbers  map[string]berth.Instance
	regional bool
}

func newChaos(t *testing.T) *chaos {
	t.Helper()
	r := newRig(t)
	c := &chaos{rig: r, seed: uint64(testkit.Seed(t)), count: &tally{}, workers: ids("w", 6), numbers: map[string]berth.Instance{}}
	r.region("us")
	r.region("eu", "us")
	r.quota("few", 7)
	r.quota("many", 2100)
	r.tenant("odd")
	for _, id := range c.workers {
		c.numbers[id] = r.registered(registrationOf(id, 0, 6))
	}
	c.stores = r.attended(3)
	return c
}

// random are the numbers of one process in one round.
func (c *chaos) random(round, process int) *rand.Rand {
	return rand.New(rand.NewPCG(c.seed, uint64(round*100+process)))
}

func (c *chaos) stress(round, process int) *stress {
	return &stress{
		rig: c.rig, store: c.stores[process%3], random: c.random(round, process), tally: c.count, workers: c.workers,
		tenants: []string{"t1", "few", "many", "odd"}, instances: maps.Clone(c.numbers), regional: c.regional,
	}
}

// registered is a worker without a presence of its own.
func (r *rig) registered(registration berth.Registration) berth.Instance {
	r.Helper()
	number, err := r.store.NextInstance(r.Context())
	r.ok(err)
	registration.Instance = number
	_, err = r.store.Register(r.Context(), registration)
	r.ok(err)
	r.ok(r.store.Open(r.Context(), registration.WorkerID, number))
	return number
}

// run repeats rounds until the time is over, and prints the one line that says what they found.
func (c *chaos) run(name string, d time.Duration, processes int, process func(round, i int) stepper) {
	c.Helper()
	ends := time.Now().Add(d)
	for round := 0; round == 0 || time.Now().Before(ends); round++ {
		c.round(round, min(time.Until(ends), roundTime), processes, process)
		if c.Failed() {
			break
		}
	}
	c.count.conclude(c.rig, name)
}

// round lets processes run for a while, and checks what they left once they rest.
func (c *chaos) round(round int, d time.Duration, processes int, process func(round, i int) stepper) {
	c.Helper()
	c.count.rounds.Add(1)
	stop := c.count.watch(c.rig, "few", "many")
	ctx, cancel := context.WithTimeout(c.Context(), d)
	defer cancel()
	var running sync.WaitGroup
	for i := range processes {
		running.Go(func() {
			s := process(round, i)
			for n := 0; ctx.Err() == nil; n++ {
				if err := s.step(c.Context()); err != nil {
					c.count.failures.Add(1)
					c.Errorf("round %d, process %d, step %d: %v", round, i, n, err)
					return
				}
			}
		})
	}
	running.Wait()
	stop()
	c.rests()
	c.refill()
}

// rests lets the reaper finish.
func (c *chaos) rests() {
	c.Helper()
	testkit.Eventually(c.T, 20*time.Second, func() error {
		if n, err := c.waiters(); err != nil || n > 0 {
			return fmt.Errorf("%d starts wait still: %w", n, err)
		}
		_, overdueErr := c.store.EndOverdue(c.Context(), 1000)
		left, err := c.store.Unfinished(c.Context())
		err = errors.Join(err, overdueErr)
		for _, l := range left {
			_, displaceErr := c.store.DisplaceLost(c.Context(), l.WorkerID, l.Instance, 1000)
			err = errors.Join(err, displaceErr)
		}
		return errors.Join(err, noViolations(c.Context(), c.db.Pool))
	})
}

func (c *chaos) waiters() (n int, err error) {
	err = c.db.Pool.QueryRow(c.Context(), "select count(*) from berth.waiters where outcome is null and deadline > clock_timestamp()").Scan(&n)
	return n, err
}

// refill fills every slot, and empties it again: none may be lost.
func (c *chaos) refill() {
	c.Helper()
	want, got := c.free(), 0
	for i := range want + 1 {
		err := c.certain(func() error {
			_, err := c.store.Place(c.Context(), startOf("t1", fmt.Sprintf("fill%d", i)))
			return err
		})
		if err == nil {
			got++
		}
	}
	c.count.lostSlots.Add(int64(max(want-got, got-want)))
	for i := range want + 1 {
		err := c.certain(func() error {
			_, err := c.store.EndSession(c.Context(), "t1", fmt.Sprintf("fill%d", i))
			return err
		})
		c.ok(mayFail(err))
	}
}

// certain repeats a call whose connection was cut while it was idle.
func (r *rig) certain(call func() error) (err error) {
	r.Helper()
	testkit.Eventually(r.T, 20*time.Second, func() error {
		if err = call(); errors.Is(err, berth.ErrUnavailable) {
			return err
		}
		return nil
	})
	return err
}

// Everything at once: no call may fail for the sake of another, no deadlock, and the invariants hold while it runs and
// at rest.
func TestProof_EverythingAtOnceKeepsTheInvariants(t *testing.T) {
	t.Parallel()
	c := newChaos(t)
	c.run("everything at once", proofTime(t, 4*time.Second, 0.4), chaosProcesses, func(round, i int) stepper {
		return c.stress(round, i)
	})
}
