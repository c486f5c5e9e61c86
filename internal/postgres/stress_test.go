package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

// stress is one of several processes that do everything at once.
type stress struct {
	rig       *rig
	store     *postgres.Store
	random    *rand.Rand
	tally     *tally
	workers   []string
	tenants   []string
	instances map[string]berth.Instance // that this process registered last
	regional  bool                      // no start may go to a region that it does not name
}

// mayFail are answers that overlapping calls get rightly, and those of a database whose connections are cut.
func mayFail(err error) error {
	if errors.Is(err, berth.ErrStale) || errors.Is(err, berth.ErrUnavailable) || berth.RefusalCode(err) != "" {
		return nil
	}
	return err
}

func (s *stress) id() string        { return fmt.Sprintf("s%d", s.random.IntN(40)) }
func (s *stress) tenant() string    { return s.tenants[s.random.IntN(len(s.tenants))] }
func (s *stress) worker() string    { return s.workers[s.random.IntN(len(s.workers))] }
func (s *stress) chance(n int) bool { return s.random.IntN(n) == 0 }

func (s *stress) step(ctx context.Context) error {
	s.tally.calls.Add(1)
	switch n := s.random.IntN(100); {
	case n < 35:
		return s.place(ctx)
	case n < 40:
		return s.claim(ctx)
	case n < 55:
		_, err := s.store.EndSession(ctx, s.tenant(), s.id())
		return mayFail(err)
	case n < 67:
		return s.serve(ctx)
	case n < 74:
		return s.drain(ctx)
	case n < 80:
		return s.displace(ctx)
	case n < 85:
		return s.register(ctx)
	case n < 92:
		return s.renew(ctx)
	case n < 94:
		return s.requota(ctx)
	case n < 95:
		return s.crash(ctx)
	default:
		return s.reap(ctx)
	}
}

// start draws what a start asks for.
func (s *stress) start() berth.Start {
	start := startOf(s.tenant(), s.id())
	start.OnWorkerLoss = []berth.OnWorkerLoss{berth.LossRejoin, berth.LossReplace, berth.LossEnd}[s.random.IntN(3)]
	start.Region = []string{"", "eu", "us"}[s.random.IntN(3)]
	start.Spill = s.chance(2)
	if s.regional && start.Region == "" {
		start.Region = "us"
	}
	start.Strategy = []berth.Strategy{"", berth.StrategyPack, berth.StrategySpread}[s.random.IntN(3)]
	if s.chance(3) {
		start.Slots = 1 + s.random.IntN(4)
	}
	if s.chance(4) {
		start.Selector = map[string]string{"gpu": "yes"}
	}
	if s.chance(3) {
		start.Wait = time.Duration(1+s.random.IntN(100)) * time.Millisecond
	}
	if s.chance(3) {
		start.ID, start.IDChosen, start.Peer = berth.NewID("s"), false, berth.Peer{}
	}
	if s.chance(4) {
		start.IdempotencyKey = fmt.Sprintf("k%d", s.random.IntN(60))
		start.BodyHash[0] = byte(s.random.IntN(2))
	}
	return start
}

// place is a start whose caller may leave.
func (s *stress) place(ctx context.Context) error {
	if s.chance(6) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(s.random.IntN(20_000))*time.Microsecond)
		defer cancel()
	}
	_, err := s.store.Place(ctx, s.start())
	s.count(err)
	return mayFail(err)
}

func (s *stress) count(err error) {
	switch {
	case err == nil:
		s.tally.placed.Add(1)
	case berth.RefusalCode(err) != "":
		s.tally.refused.Add(1)
	default:
		s.tally.unknown.Add(1)
	}
}

func (s *stress) claim(ctx context.Context) error {
	var batch []berth.Start
	for range 1 + s.random.IntN(12) {
		start := s.start()
		start.IdempotencyKey = ""
		batch = append(batch, start)
	}
	results, err := s.store.ClaimSessions(ctx, batch)
	err = mayFail(err)
	for _, result := range results {
		err = errors.Join(err, mayFail(result.Err))
	}
	return err
}

// serve does what a worker does about sessions: connect, end, disconnect.
func (s *stress) serve(ctx context.Context) error {
	sessions, err := s.store.ListSessions(ctx, berth.SessionFilter{WorkerID: s.worker(), Limit: 8})
	if err != nil || len(sessions) == 0 {
		return mayFail(err)
	}
	var ends []berth.End
	for _, session := range sessions {
		connect := connectOf(session, "p1", fmt.Sprint(s.random.IntN(3)))
		if _, err := s.store.ConnectPeer(ctx, connect); mayFail(err) != nil {
			return err
		}
		ends = append(ends, berth.End{Held: heldOf(session), Reason: berth.EndedLeft})
	}
	s.random.Shuffle(len(ends), func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
	return errors.Join(
		mayFail(s.store.DisconnectPeer(ctx, berth.Disconnect{Held: ends[0].Held, PeerID: "p1", ConnectionID: "1"})),
		mayFail(s.store.EndSessions(ctx, ends[:s.random.IntN(len(ends)+1)])))
}

func (s *stress) drain(ctx context.Context) (err error) {
	if s.chance(3) {
		_, err = s.store.DrainWorker(ctx, s.worker(), time.Hour, false)
	} else {
		_, err = s.store.UndrainWorker(ctx, s.worker())
	}
	return mayFail(err)
}

func (s *stress) displace(ctx context.Context) error {
	worker := s.worker()
	if s.chance(2) {
		_, err := s.store.DisplaceDrained(ctx, worker, s.instances[worker], 1+s.random.IntN(4))
		return mayFail(err)
	}
	sessions, err := s.store.ListSessions(ctx, berth.SessionFilter{State: berth.SessionAwaitingRejoin, Limit: 3})
	err = mayFail(err)
	for _, session := range sessions {
		_, rejoinErr := s.store.Rejoin(ctx, berth.Rejoin{Key: session.Key, PeerID: "p1", Generation: session.Generation})
		err = errors.Join(err, mayFail(rejoinErr))
	}
	return err
}

// register starts an instance, or changes the capacity of the one that is there.
func (s *stress) register(ctx context.Context) error {
	worker := s.worker()
	number := s.instances[worker]
	if s.chance(2) {
		var err error
		if number, err = s.store.NextInstance(ctx); err != nil {
			return mayFail(err)
		}
	}
	_, err := s.store.Register(ctx, registrationOf(worker, number, s.random.IntN(8)))
	if err != nil {
		return mayFail(err)
	}
	s.instances[worker] = number
	return mayFail(s.store.Open(ctx, worker, number))
}

// registrationOf puts workers with an odd name in another region, and gives every third a label.
func registrationOf(worker string, number berth.Instance, capacity int) berth.Registration {
	n := worker[len(worker)-1] - '0'
	r := berth.Registration{WorkerID: worker, Instance: number, Region: []string{"eu", "us"}[n%2], Capacity: capacity, Lease: lease}
	if n%3 == 0 {
		r.Labels = map[string]string{"gpu": "yes"}
	}
	return r
}

func (s *stress) renew(ctx context.Context) error {
	worker := s.worker()
	_, renewErr := s.store.Renew(ctx, berth.Renewal{WorkerID: worker, Instance: s.instances[worker], Lease: lease})
	sessions, err := s.store.ListSessions(ctx, berth.SessionFilter{WorkerID: worker, Limit: 4})
	var held []berth.Held
	for _, session := range sessions {
		held = append(held, heldOf(session))
	}
	_, reconcileErr := s.store.Reconcile(ctx, worker, s.instances[worker], held)
	return errors.Join(mayFail(renewErr), mayFail(err), mayFail(reconcileErr))
}

// requota changes what the last tenant may do.
func (s *stress) requota(ctx context.Context) error {
	tenant := berth.Tenant{ID: s.tenants[len(s.tenants)-1]}
	if s.chance(2) {
		tenant.MaxConcurrentSessions = new(s.random.IntN(10))
	}
	if s.chance(2) {
		tenant.StartRate, tenant.StartBurst = 50+float64(s.random.IntN(200)), 1+s.random.IntN(20)
	}
	if s.chance(2) {
		tenant.Strategy = berth.StrategyPack
	}
	return mayFail(s.store.SetTenant(ctx, tenant))
}

// crash cuts a connection of an API process: one of its pool, or its presence.
func (s *stress) crash(ctx context.Context) error {
	_, err := s.rig.db.Pool.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and application_name like 'berth%' order by random() limit 1`)
	return err
}

// reap does a bit of each thing that a reaper does.
func (s *stress) reap(ctx context.Context) error {
	tick, err := s.store.BeginTick(ctx, time.Duration(s.random.IntN(2))*time.Hour, lease)
	if err != nil {
		return mayFail(err)
	}
	worker := s.worker()
	gapErr := s.store.OpenGap(ctx, tick.Number, worker, s.instances[worker], "test", 0)
	_, cordonErr := s.store.CordonLate(ctx, tick.Number, worker, s.instances[worker])
	_, lostErr := s.store.MarkLost(ctx, tick.Number, worker, s.instances[worker], "test")
	left, leftErr := s.store.Unfinished(ctx)
	leftErr = mayFail(leftErr)
	for _, l := range left {
		_, err := s.store.DisplaceLost(ctx, l.WorkerID, l.Instance, 3)
		leftErr = errors.Join(leftErr, mayFail(err))
	}
	if s.chance(4) { // sessions that nobody reached, and ghosts
		_, err := s.rig.db.Pool.Exec(ctx, `update berth.sessions set connect_by = clock_timestamp() + interval '15 s' - random() * interval '16 s'
			where key in (select key from berth.sessions where state = 'assigned' order by key limit 2 for no key update skip locked)`)
		leftErr = errors.Join(leftErr, err)
	}
	_, replaceErr := s.store.ReplaceLost(ctx, 5)
	_, overdueErr := s.store.EndOverdue(ctx, 5)
	return errors.Join(mayFail(gapErr), mayFail(cordonErr), mayFail(lostErr), leftErr, mayFail(replaceErr), mayFail(overdueErr))
}
