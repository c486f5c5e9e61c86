package postgres_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
)

// stress is one of several processes that do everything at once.
type stress struct {
	rig       *rig
	store     *postgres.Store
	random    *rand.Rand
	workers   []string
	tenants   []string
	instances map[string]berth.Instance // that this process registered last
}

// mayFail are answers that overlapping calls get rightly.
func mayFail(err error) error {
	if errors.Is(err, berth.ErrStale) || berth.RefusalCode(err) != "" {
		return nil
	}
	return err
}

func (s *stress) id() string     { return fmt.Sprintf("s%d", s.random.IntN(40)) }
func (s *stress) tenant() string { return s.tenants[s.random.IntN(len(s.tenants))] }
func (s *stress) worker() string { return s.workers[s.random.IntN(len(s.workers))] }

func (s *stress) step() error {
	switch n := s.random.IntN(100); {
	case n < 35:
		return s.claim()
	case n < 50:
		_, err := s.store.EndSession(s.rig.Context(), s.tenant(), s.id())
		return mayFail(err)
	case n < 65:
		return s.serve()
	case n < 72:
		return s.drain()
	case n < 80:
		return s.displace()
	case n < 86:
		return s.register()
	case n < 94:
		return s.renew()
	default:
		return s.reap()
	}
}

func (s *stress) claim() error {
	var batch []berth.Start
	for range 1 + s.random.IntN(12) {
		start := startOf(s.tenant(), s.id())
		start.OnWorkerLoss = []berth.OnWorkerLoss{berth.LossRejoin, berth.LossReplace, berth.LossEnd}[s.random.IntN(3)]
		batch = append(batch, start)
	}
	results, err := s.store.ClaimSessions(s.rig.Context(), batch)
	for _, result := range results {
		err = errors.Join(err, mayFail(result.Err))
	}
	return err
}

// serve does what a worker does about sessions: connect, end, disconnect.
func (s *stress) serve() error {
	sessions, err := s.store.ListSessions(s.rig.Context(), berth.SessionFilter{WorkerID: s.worker(), Limit: 8})
	if err != nil || len(sessions) == 0 {
		return err
	}
	var ends []berth.End
	for _, session := range sessions {
		connect := connectOf(session, "p1", fmt.Sprint(s.random.IntN(3)))
		if _, err := s.store.ConnectPeer(s.rig.Context(), connect); mayFail(err) != nil {
			return err
		}
		ends = append(ends, berth.End{Held: heldOf(session), Reason: berth.EndedLeft})
	}
	s.random.Shuffle(len(ends), func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
	return errors.Join(
		s.store.DisconnectPeer(s.rig.Context(), berth.Disconnect{Held: ends[0].Held, PeerID: "p1", ConnectionID: "1"}),
		s.store.EndSessions(s.rig.Context(), ends[:s.random.IntN(len(ends)+1)]))
}

func (s *stress) drain() error {
	if s.random.IntN(3) == 0 {
		_, err := s.store.DrainWorker(s.rig.Context(), s.worker(), time.Hour, false)
		return err
	}
	_, err := s.store.UndrainWorker(s.rig.Context(), s.worker())
	return err
}

func (s *stress) displace() error {
	worker := s.worker()
	if s.random.IntN(2) == 0 {
		_, err := s.store.DisplaceDrained(s.rig.Context(), worker, s.instances[worker], 1+s.random.IntN(4))
		return err
	}
	sessions, err := s.store.ListSessions(s.rig.Context(), berth.SessionFilter{State: berth.SessionAwaitingRejoin, Limit: 3})
	for _, session := range sessions {
		_, rejoinErr := s.store.Rejoin(s.rig.Context(), berth.Rejoin{Key: session.Key, PeerID: "p1", Generation: session.Generation})
		err = errors.Join(err, mayFail(rejoinErr))
	}
	return err
}

func (s *stress) register() error {
	number, err := s.store.NextInstance(s.rig.Context())
	if err != nil {
		return err
	}
	worker := s.worker()
	_, err = s.store.Register(s.rig.Context(), berth.Registration{
		WorkerID: worker, Instance: number, Region: "eu", Capacity: s.random.IntN(8), Lease: lease,
	})
	if err != nil {
		return mayFail(err)
	}
	s.instances[worker] = number
	return mayFail(s.store.Open(s.rig.Context(), worker, number))
}

func (s *stress) renew() error {
	worker := s.worker()
	_, renewErr := s.store.Renew(s.rig.Context(), berth.Renewal{WorkerID: worker, Instance: s.instances[worker], Lease: lease})
	sessions, err := s.store.ListSessions(s.rig.Context(), berth.SessionFilter{WorkerID: worker, Limit: 4})
	var held []berth.Held
	for _, session := range sessions {
		held = append(held, heldOf(session))
	}
	_, reconcileErr := s.store.Reconcile(s.rig.Context(), worker, s.instances[worker], held)
	return errors.Join(renewErr, err, reconcileErr)
}

// reap does a bit of each thing that a reaper does.
func (s *stress) reap() error {
	tick, err := s.store.BeginTick(s.rig.Context(), time.Duration(s.random.IntN(2))*time.Hour, lease)
	if err != nil {
		return err
	}
	worker := s.worker()
	gapErr := s.store.OpenGap(s.rig.Context(), tick.Number, worker, s.instances[worker], "test")
	_, cordonErr := s.store.CordonLate(s.rig.Context(), tick.Number, worker, s.instances[worker])
	_, lostErr := s.store.MarkLost(s.rig.Context(), tick.Number, worker, s.instances[worker], "test")
	left, leftErr := s.store.Unfinished(s.rig.Context())
	for _, l := range left {
		_, err := s.store.DisplaceLost(s.rig.Context(), l.WorkerID, l.Instance, 3)
		leftErr = errors.Join(leftErr, err)
	}
	_, replaceErr := s.store.ReplaceLost(s.rig.Context(), 5)
	_, overdueErr := s.store.EndOverdue(s.rig.Context(), 5)
	return errors.Join(gapErr, cordonErr, lostErr, leftErr, mayFail(replaceErr), overdueErr)
}

// Everything at once: no call may fail for the sake of another (a deadlock is an error here), and the invariants hold
// at the end, which the rig checks, and in between.
func TestEverythingAtOnceKeepsTheInvariants(t *testing.T) {
	t.Parallel()
	const processes, steps = 8, 120
	r := newRig(t)
	seed := uint64(testkit.Seed(t))
	r.quota("t1", 12)
	for _, id := range []string{"t2", "t3"} {
		r.tenant(id)
	}
	workers := ids("w", 4)
	numbers := map[string]berth.Instance{}
	for _, id := range workers {
		numbers[id] = r.worker(id, 6).number
	}
	stores := r.stores(4)
	r.ok(errors.Join(parallel(processes, func(i int) error {
		s := &stress{
			rig: r, store: stores[i%4], random: rand.New(rand.NewPCG(seed, uint64(i))), workers: workers,
			tenants: []string{"t1", "t2", "t3"}, instances: maps.Clone(numbers),
		}
		for n := range steps {
			if err := s.step(); err != nil {
				return fmt.Errorf("process %d, step %d: %w", i, n, err)
			}
			if n%20 == 0 {
				if err := noViolations(r.Context(), r.db.Pool); err != nil {
					return fmt.Errorf("process %d, step %d: %w", i, n, err)
				}
			}
		}
		return nil
	})...))
	if most := read[int](r, mostAtOnce, "t1"); most > 12 {
		t.Errorf("%d sessions of a tenant that may have 12", most)
	}
	r.settles()
}

// settles lets the reaper finish and fills every slot: none may be lost.
func (r *rig) settles() {
	r.Helper()
	left, err := r.store.Unfinished(r.Context())
	r.ok(err)
	for _, l := range left {
		_, err := r.store.DisplaceLost(r.Context(), l.WorkerID, l.Instance, 1000)
		r.ok(err)
	}
	want := r.free()
	for i := range want + 1 {
		_, err := r.store.Place(r.Context(), startOf("t2", fmt.Sprintf("fill%d", i)))
		if i < want {
			r.ok(err)
		} else {
			r.refused(berth.CodeAtCapacity, err)
		}
	}
}
