package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/devpg"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/migrations"
)

// settled waits until so many slots are free.
func (r *rig) settled(free int) {
	r.Helper()
	testkit.Eventually(r.T, 10*time.Second, func() error {
		if n := r.free(); n != free {
			return fmt.Errorf("%d free, want %d", n, free)
		}
		return nil
	})
}

// F13: the answer to the commit is lost. It is neither success nor failure, and asking again finds out.
func TestScenario_F13_LostAnswerIsUnavailableAndTheRetryConverges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 8)
	way := testkit.NewNetwork(t, r.db)
	store := openStore(t, r.db, postgres.Config{URL: way.URL, PoolSize: 1})
	lose := func(call func() error) {
		t.Helper()
		first, err := store.Place(t.Context(), start("first")) // prepares the statements, so that one answer is all there is
		r.ok(err)
		r.ok(store.EndSessions(t.Context(), []berth.End{{Held: heldOf(first.Session), Reason: berth.EndedLeft}}))
		for _, w := range way.Wires() {
			w.Deafen()
		}
		if err := call(); !errors.Is(err, berth.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
	named, keyed := start("named"), start("drawn")
	keyed.IDChosen, keyed.IdempotencyKey = false, "K"
	for _, s := range []berth.Start{named, keyed} {
		lose(func() error { _, err := store.Place(t.Context(), s); return err })
		again := s
		if !s.IDChosen {
			again.ID = "drawn-anew"
		}
		testkit.EventuallyTrue(t, 5*time.Second, s.ID+" was not committed", func() bool { return r.live("t1") == 1 })
		placed, err := store.Place(t.Context(), again)
		if err != nil || placed.Created || placed.Session.ID != s.ID || r.live("t1") != 1 || r.free() != 7 {
			t.Errorf("%s: got %+v, %v; %d live, %d free", s.ID, placed, err, r.live("t1"), r.free())
		}
		lose(func() error { // the id is looked up first, so that it is the end that gets no answer
			return store.EndSessions(t.Context(), []berth.End{{Held: heldOf(placed.Session), Reason: berth.EndedLeft}})
		})
		_, err = store.EndSession(t.Context(), "t1", s.ID)
		r.ok(err)
		r.settled(8)
	}
}

// F15: packets vanish, and no end of the connection is told. Each call ends inside its deadline, what still works goes
// on, and in the end all is well again.
func TestScenario_F15_FrozenConnectionsHoldNobodyBeyondTheDeadline(t *testing.T) {
	t.Parallel()
	const connections, deadline = 3, 4 * time.Second
	r := newRig(t)
	r.worker("w1", 64)
	way := testkit.NewNetwork(t, r.db)
	store := openStore(t, r.db, postgres.Config{URL: way.URL, PoolSize: connections})
	place := func(round string, n int) (placed int, slowest time.Duration) {
		t.Helper()
		took := make([]time.Duration, n)
		for _, err := range oneByOne(n, func(i int) error {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			began := time.Now()
			_, err := store.Place(ctx, start(fmt.Sprintf("%s-%d", round, i)))
			took[i] = time.Since(began)
			return err
		}) {
			switch {
			case err == nil:
				placed++
			case !errors.Is(err, berth.ErrUnavailable):
				t.Errorf("%s: %v", round, err)
			}
		}
		for _, d := range took {
			slowest = max(slowest, d)
		}
		return placed, slowest
	}
	warm(t, store, connections)
	way.Wires()[0].Freeze()
	placed, slowest := place("one frozen", 12)
	if placed < 10 || slowest > deadline+time.Second {
		t.Errorf("one frozen connection of %d: %d of 12 were placed, the slowest call took %v", connections, placed, slowest)
	}
	way.Freeze()
	if _, slowest := place("all frozen", 6); slowest > deadline+time.Second {
		t.Errorf("all frozen: the slowest call took %v", slowest)
	}
	testkit.Eventually(t, time.Minute, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		_, err := store.Place(ctx, start("recovered"))
		return err
	})
}

// oneByOne runs act n times, and returns its errors in order: each begins when the one before has ended, or hangs. So each is a
// batch of its own, and a connection that is frozen has one of them.
func oneByOne(n int, act func(i int) error) []error {
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		done := make(chan struct{})
		running.Go(func() {
			defer close(done)
			errs[i] = act(i)
		})
		hangs := time.NewTimer(400 * time.Millisecond)
		select {
		case <-done:
		case <-hangs.C:
		}
		hangs.Stop()
	}
	running.Wait()
	return errs
}

// warm opens n connections of a store.
func warm(t *testing.T, store *postgres.Store, n int) {
	t.Helper()
	var held []*pgxpool.Conn
	for range n {
		conn, err := store.Pool().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	for _, conn := range held {
		conn.Release()
	}
}

// F16: a statement is cancelled by the server's own timeout. That is 503, and the connection is as good as before.
func TestScenario_F16_StatementTimeoutSpoilsNoConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 8)
	address, err := url.Parse(r.db.URL)
	r.ok(err)
	settings := address.Query()
	settings.Set("statement_timeout", "100ms")
	address.RawQuery = settings.Encode()
	store := openStore(t, r.db, postgres.Config{URL: address.String(), PoolSize: 2})
	_, err = store.EndSession(t.Context(), "t1", "unknown") // its plans are made
	r.refused(berth.CodeNotFound, err)
	release := r.hold("lock table berth.sessions in share mode")
	for _, err := range parallel(4, func(i int) error {
		_, err := store.Place(t.Context(), start(ids("s", 4)[i]))
		return err
	}) {
		if !errors.Is(err, berth.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
	release()
	for _, id := range ids("t", 8) {
		testkit.Eventually(t, 10*time.Second, func() error { // a slow machine may time out once more
			_, err := store.Place(t.Context(), start(id))
			if err != nil && !errors.Is(err, berth.ErrUnavailable) {
				t.Fatalf("after it: %v", err)
			}
			return err
		})
	}
}

// A commit that waits for a synchronous standby and is cancelled is answered with success and a warning. It may be gone
// after a failover, so nobody is told of it as done.
func TestUnconfirmedCommitIsUnavailableAndTheRetryConverges(t *testing.T) {
	t.Parallel()
	server := testkit.StartPostgres(t, devpg.Config{Settings: map[string]string{"synchronous_commit": "on"}})
	address := server.URL("postgres")
	db := &testkit.DB{URL: address, SocketURL: server.SocketURL("postgres")}
	pool, err := pgxpool.New(t.Context(), db.SocketURL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	db.Pool = pool
	if err := migrations.Up(t.Context(), address, testkit.Logger(t)); err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, db: db, store: openStore(t, db, postgres.Config{PoolSize: 2})}
	r.region("eu")
	r.tenant("t1")
	r.registered(berth.Registration{WorkerID: "w1", Region: "eu", Capacity: 2, Lease: lease})
	r.standby("nobody")
	answered := make(chan error, 1)
	go func() {
		_, err := r.store.Place(t.Context(), start("a"))
		answered <- err
	}()
	const waits = "from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'berth'"
	testkit.EventuallyTrue(t, 7*time.Second, "no commit waits for the standby", func() bool {
		return read[int](r, "select count(*)::int "+waits) > 0
	})
	r.exec("select pg_cancel_backend(pid) " + waits)
	if err := <-answered; !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	r.standby("")
	if placed := r.place(start("a")); placed.Created || r.live("t1") != 1 || r.free() != 1 {
		t.Errorf("got %+v; %d live, %d free", placed, r.live("t1"), r.free())
	}
	r.ok(noViolations(t.Context(), pool))
}

// standby sets who must confirm commits, and waits until the server knows.
func (r *rig) standby(name string) {
	r.Helper()
	r.exec("alter system set synchronous_standby_names = '" + name + "'")
	r.exec("select pg_reload_conf()")
	testkit.EventuallyTrue(r.T, 5*time.Second, "the setting is not in force", func() bool {
		return read[string](r, "show synchronous_standby_names") == name
	})
}
