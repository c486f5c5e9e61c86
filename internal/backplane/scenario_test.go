package backplane_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/devpg"
	"github.com/berthdev/berth/internal/testkit"
)

// asShipped takes back what tests change of the intervals.
func asShipped(c *backplane.Config) {
	c.Linger, c.CountInterval, c.ProbeInterval, c.ProbeTimeout = 0, 0, 0, 0
}

// saySlowly publishes the numbers from..to, one in each interval.
func saySlowly(t *testing.T, p plane, topic string, from, to int, interval time.Duration) {
	t.Helper()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for _, text := range numbers(from, to) {
		<-ticker.C
		say(t, p, topic, text)
	}
}

// B01: packets of the listener's connection vanish, while others publish. It is noticed in time, and nothing is missed.
func TestScenario_B01_BlackHoledListenLinkIsFoundInTime(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	net := testkit.NewNetwork(t, db)
	writer, _ := startBus(t, db, nil)
	reader, registry := startBus(t, db, func(c *backplane.Config) {
		asShipped(c)
		c.DirectURL = net.URL
	})
	s := spyOn(t, reader, "t", nil)
	say(t, writer, "t", "1")
	s.last("1")
	if frozen := net.Freeze(); frozen != 1 {
		t.Fatalf("%d connections", frozen)
	}
	began := time.Now()
	saySlowly(t, writer, "t", 2, 100, 20*time.Millisecond)
	dense(t, s.count(100), 1)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("found after %v", took)
	} else {
		t.Logf("found after %v", took)
	}
	if n := metric(t, registry, "berth_backplane_resyncs_total"); n != 2 {
		t.Errorf("the metric shows %v resyncs", n)
	}
}

// B05: who notifies takes a lock of the whole server until it has committed. So placement does not, and what does has no
// flush to wait for: logged commits beside a storm of publishes never wait for that lock.
func TestScenario_B05_PublishingHoldsUpNoCommit(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	rows, err := db.Pool.Query(t.Context(), `select proname::text from pg_proc
		where pronamespace = 'berth'::regnamespace and prosrc like '%pg_notify%' order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	notifying, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if diff := cmp.Diff([]string{"probe_listener", "publish"}, notifying); diff != "" || err != nil {
		t.Errorf("functions that notify: %v %s", err, diff)
	}
	reader, _ := startBus(t, db, nil)
	run(t, db, "create table ledger (n int)")
	spyOn(t, reader, "t", nil)
	var stops []func() int
	for range 3 {
		writer, _ := startBus(t, db, nil)
		stops = append(stops, writing(t, writer, "t"))
	}
	var committing sync.WaitGroup
	for range 3 {
		committing.Go(func() {
			for n := range 300 {
				if _, err := db.Pool.Exec(t.Context(), "insert into ledger values ($1)", n); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		committing.Wait()
	}()
	waits, looks := 0, 0
	for running := true; running; looks++ {
		waits += value[int](t, db, `select count(*) from pg_stat_activity where datname = current_database()
			and query like 'insert into ledger%' and wait_event_type = 'Lock' and wait_event <> 'extend'`) // of their own table
		select {
		case <-done:
			running = false
		default:
		}
	}
	published := 0
	for _, stop := range stops {
		published += stop()
	}
	t.Logf("900 commits beside %d publishes, %d looks", published, looks)
	if waits > 0 || published == 0 {
		t.Errorf("commits were seen %d times to wait for a lock; %d messages published", waits, published)
	}
}

// B06: the database restarts while nothing happens. Afterwards processes reach each other, and none was restarted.
func TestScenario_B06_RestartOfTheDatabaseWithoutTraffic(t *testing.T) {
	t.Parallel()
	dir := keptDir(t)
	server := testkit.StartPostgres(t, devpg.Config{Dir: dir})
	db := ownDatabase(t, server)
	a, _ := startBus(t, db, nil)
	b, registry := startBus(t, db, nil)
	here, there := spyOn(t, a, "t", nil), spyOn(t, b, "t", nil)
	say(t, a, "t", "before")
	there.last("before")
	port := server.Port()
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, patience, "the gap shows", func() bool { return metric(t, registry, "berth_backplane_listening") == 0 })
	testkit.StartPostgres(t, devpg.Config{Dir: dir, Port: port})
	testkit.EventuallyTrue(t, patience, "it listens again", func() bool { return metric(t, registry, "berth_backplane_listening") == 1 })
	for i := range 20 { // stale connections of the pool fail once each
		testkit.Eventually(t, patience, func() error {
			_, err := b.Publish(t.Context(), backplane.Outgoing{Topic: "other", Data: fmt.Append(nil, i)})
			return err
		})
	}
	say(t, b, "t", "after")
	dense(t, here.last("after"), 1)
	dense(t, there.last("after"), 1)
	fresh := spyOn(t, a, "other", nil)
	say(t, b, "other", "2")
	fresh.last("2")
}

// keptDir is a place for a server's data that outlives the server.
func keptDir(t *testing.T) string {
	t.Helper()
	root, err := os.MkdirTemp(devpg.MemoryDir(), "backplane-test-") //nolint:usetesting // t.TempDir is closed to the server's user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(root, 0o711); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "data")
}

// B08: a process is killed. Who is there can be asked as before, and soon the dead are not counted; no answer waits for one.
func TestScenario_B08_DeadProcessesHoldUpNoAnswer(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	bus, _ := startBus(t, db, nil)
	spyOn(t, bus, "t", nil)
	other := startProcess(t, db)
	counts(t, bus, "t", 2, 2)
	other.signal(syscall.SIGKILL)
	killed := time.Now()
	var took []time.Duration
	var gone time.Duration
	for ticker := time.NewTicker(100 * time.Millisecond); len(took) < 20; <-ticker.C {
		began := time.Now()
		got := presence(t, bus, "t")
		took = append(took, time.Since(began))
		if got.Members == 1 && got.Processes == 1 && gone == 0 {
			gone = time.Since(killed)
		}
	}
	published, err := bus.Publish(t.Context(), backplane.Outgoing{Topic: "t", Data: []byte("1")})
	if err != nil || published[0].Processes != 1 {
		t.Errorf("published %+v: %v", published, err)
	}
	t.Logf("gone after %v, the slowest answer took %v", gone, slices.Max(took))
	if gone == 0 || gone > time.Second || slices.Max(took) > time.Second {
		t.Errorf("gone after %v, the slowest answer took %v", gone, slices.Max(took))
	}
}

// A process that is paused, by SIGSTOP or its machine, reads nothing: the server ends its connection before that matters to
// others, who notice nothing. When it wakes it gets what it missed.
func TestPausedProcessSlowsNobody(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	writer, _ := startBus(t, db, nil)
	bystander, _ := startBus(t, db, nil)
	other := startProcess(t, db)
	s := spyOn(t, bystander, "t", nil)
	round := func(from, to int) time.Duration {
		t.Helper()
		var took []time.Duration
		for i := from; i <= to; i++ {
			began := time.Now()
			say(t, writer, "t", fmt.Sprint(i))
			s.count(i)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	before := round(1, 500)
	other.follow(1, 500)
	other.signal(syscall.SIGSTOP)
	during := round(501, 1000)
	fill(t, writer, "t", 20_000) // more than fits on the way to the paused one
	total := int64(21_000)
	s.count(int(total))
	paused := time.Now()
	becomes(t, db, 1, "select count(*) "+listeners) // only the bystander's is left
	t.Logf("99 %% within %v before, %v during the pause; cut off %v after that", before, during, time.Since(paused))
	if during > 10*before+100*time.Millisecond {
		t.Errorf("99 %% within %v before, and %v during the pause", before, during)
	}
	other.signal(syscall.SIGCONT)
	missing := other.follow(501, total)
	if missing < total-1000-backplane.Kept-100 || missing > total-500-backplane.Kept {
		t.Logf("%d of %d are missing", missing, total-500) // what had arrived before it was paused may be more or less
	}
	dense(t, s.all(), 1)
	if usage := value[float64](t, db, "select pg_notification_queue_usage()"); usage > 0.01 {
		t.Errorf("the queue is %v full", usage)
	}
}
