package backplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/testkit"
)

func TestProcessListensOnlyWhileItHasSubscribers(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	bus, _ := startBus(t, db, nil)
	say(t, bus, "t", "1")
	if n := value[int](t, db, "select count(*) "+listeners); n != 0 {
		t.Errorf("%d listeners, and nobody subscribed", n)
	}
	one, two := spyOn(t, bus, "t", nil), spyOn(t, bus, "t", nil)
	if n := value[int](t, db, "select count(*) from berth.topic_interest where topic = 't'"); n != 1 {
		t.Errorf("%d rows of interest of one process", n)
	}
	one.sub.Unsubscribe()
	say(t, bus, "t", "2")
	two.last("2")
	two.sub.Unsubscribe()
	becomes(t, db, 0, "select count(*) from berth.topic_interest where topic = 't'")
	becomes(t, db, 0, "select count(*) "+listeners)
	three := spyOn(t, bus, "t", nil)
	say(t, bus, "t", "3")
	three.last("3")
}

// Interest may be left behind, as when its deletion failed. It is deleted with the first message that it brings.
func TestInterestThatNobodyHasIsDeleted(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	const process = 0x7000000000000004
	bus, _ := startBus(t, db, func(c *backplane.Config) { c.Process = process })
	s := spyOn(t, bus, "t", nil)
	run(t, db, "insert into berth.topic_interest (topic, process) values ('stray', $1)", int64(process))
	say(t, bus, "stray", "1")
	becomes(t, db, 0, "select count(*) from berth.topic_interest where topic = 'stray'")
	stray := spyOn(t, bus, "stray", nil)
	say(t, bus, "stray", "2")
	stray.last("2")
	say(t, bus, "t", "1")
	s.last("1")
}

func TestCloseTakesInterestAlong(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	bus, _ := startBus(t, db, nil)
	spyOn(t, bus, "t", nil)
	bus.Close()
	if n := value[int](t, db, "select count(*) from berth.topic_interest"); n != 0 {
		t.Errorf("%d rows of interest are left", n)
	}
}

func TestOnlyInterestedProcessesAreTold(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	writer, _ := startBus(t, db, nil)
	one, oneMetrics := startBus(t, db, nil)
	two, twoMetrics := startBus(t, db, nil)
	s := spyOn(t, one, "t", nil)
	other := spyOn(t, two, "other", nil)
	sayMany(t, writer, "t", 1, 100)
	s.count(100)
	say(t, writer, "other", "1")
	other.count(1)
	for name, want := range map[string][2]float64{
		"berth_backplane_received_total": {100, 1}, "berth_backplane_delivered_total": {100, 1},
	} {
		got := [2]float64{metric(t, oneMetrics, name), metric(t, twoMetrics, name)}
		if got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// listenFor is a connection on a process's channel; alive, it holds the lock that says so.
func listenFor(t *testing.T, db *testkit.DB, process int64, alive bool) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.SocketURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	if _, err := conn.Exec(t.Context(), fmt.Sprintf("listen berth_p_%x", process)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "select berth.subscribe_topics($1, '{t}')", process); err != nil {
		t.Fatal(err)
	}
	if alive {
		if _, err := conn.Exec(t.Context(), "select berth.listen_for($1)", process); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// told is how many notifications a connection has got.
func told(t *testing.T, conn *pgx.Conn) (count int) {
	t.Helper()
	if err := conn.Ping(t.Context()); err != nil { // what was notified before comes with the answer
		t.Fatal(err)
	}
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := conn.WaitForNotification(ctx)
		cancel()
		if err != nil {
			return count
		}
		count++
	}
}

func TestDeadProcessesAreNotToldAndPurged(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	const aliveKey, deadKey = 0x7000000000000001, 0x7000000000000002
	alive, dead := listenFor(t, db, aliveKey, true), listenFor(t, db, deadKey, false)
	bus, _ := startBus(t, db, nil)
	say(t, bus, "t", "1", "2")
	if told(t, alive) != 2 || told(t, dead) != 0 {
		t.Error("the living are to be told, and the dead are not")
	}
	if err := bus.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := value[int64](t, db, "select sum(process) from berth.topic_interest where topic = 't'"); left != aliveKey {
		t.Errorf("left after the purge: %x", left)
	}
	if err := alive.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, patience, "interest of a process that died is purged", func() bool {
		return bus.Purge(t.Context()) == nil && value[int](t, db, "select count(*) from berth.topic_interest") == 0
	})
}

// waiting waits until a statement that calls a function waits for a row.
func waiting(t *testing.T, db *testkit.DB, function string) {
	t.Helper()
	becomes(t, db, 1, `select count(*) from pg_stat_activity
		where datname = current_database() and wait_event_type = 'Lock' and query like '%' || $1 || '%'`, "berth."+function)
}

// A message that a publisher is about to commit is before the position of a subscription that does not see it.
func TestSubscriptionWaitsForAPublishUnderWay(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	bus, _ := startBus(t, db, nil)
	say(t, bus, "t", "1")
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select berth.publish('{t}', '{2}')"); err != nil {
		t.Fatal(err)
	}
	subscribed := make(chan backplane.Position, 1)
	go func() {
		sub, err := bus.Subscribe(t.Context(), "t", nil, func(backplane.Message) {})
		if err != nil {
			t.Error(err)
			close(subscribed)
			return
		}
		subscribed <- sub.Position()
	}()
	waiting(t, db, "subscribe_topics")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if at := <-subscribed; at.Offset != 2 {
		t.Errorf("subscribed at %+v", at)
	}
}

// A publisher that waited for a subscription tells it: it asks who is interested by a later statement than the one that waited.
func TestPublishThatWaitedForASubscriptionTellsIt(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	bus, _ := startBus(t, db, nil)
	const process = 0x7000000000000003
	say(t, bus, "late", "0")
	conn := listenFor(t, db, process, true)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select berth.subscribe_topics($1, '{late}')", process); err != nil {
		t.Fatal(err)
	}
	published := make(chan error, 1)
	go func() {
		_, err := bus.Publish(t.Context(), backplane.Outgoing{Topic: "late", Data: []byte("1")})
		published <- err
	}()
	waiting(t, db, "publish")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	if n := told(t, conn); n != 1 {
		t.Errorf("told %d times", n)
	}
}

func TestPurgeKeepsWhatIsUsed(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	bus, _ := startBus(t, db, nil)
	for _, topic := range []string{"new", "old", "mixed", "idle", "wanted"} {
		say(t, bus, topic, "1", "2", "3")
	}
	held := spyOn(t, bus, "wanted", nil)
	run(t, db, `update berth.topic_log set at = at - interval '301 seconds'
		where topic in ('old', 'idle', 'wanted') or topic = 'mixed' and "offset" = 2`)
	run(t, db, "update berth.topics set at = at - interval '3601 seconds' where topic in ('idle', 'wanted')")
	if err := bus.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows, err := db.Pool.Query(t.Context(), `select t.topic || ':' || coalesce(string_agg(l.offset::text, ','), '')
		from berth.topics t left join berth.topic_log l using (topic) group by t.topic order by t.topic`)
	if err != nil {
		t.Fatal(err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"mixed:3", "new:1,2,3", "old:", "wanted:"}, left); diff != "" {
		t.Error(diff)
	}
	from := held.sub.Position()
	from.Offset = 0
	want := backplane.Recovery{Outcome: backplane.Partial, Missing: backplane.Range{From: 1, To: 3}}
	if got := spyOn(t, bus, "wanted", &from).sub.Recovery(); got != want {
		t.Errorf("resumed %+v", got)
	}
}

func TestLogIsBoundedByCount(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	bus, _ := startBus(t, db, nil)
	for i := range 20 {
		sayMany(t, bus, "t", i*50+1, i*50+50)
	}
	if n := value[int](t, db, "select count(*) from berth.topic_log"); n < backplane.Kept || n > backplane.Kept+64 {
		t.Errorf("%d of 1000 messages are kept", n)
	}
}

// One logged write would make every publish wait for a flush, under the lock of all that notify.
func TestPublishWritesNothingThatIsLogged(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	bus, _ := startBus(t, db, nil)
	spyOn(t, bus, "a", nil)
	for name, statement := range map[string]string{
		"publish": `select berth.publish('{a,b,a}', array['1', repeat('x', 5000), '3'])`,
		"many":    `select berth.publish(array_fill('a'::text, '{256}'), array_fill('x'::text, '{256}'))`,
		"join":    `select * from berth.subscribe_topics(7, '{a,c}')`,
		"again":   `select * from berth.subscribe_topics(7, '{a,c}', '{1,2}')`,
		"count":   `select berth.count_members(7, '{a,c}', '{3,4}')`,
		"leave":   `select berth.unsubscribe_topics(7, '{a,c}')`,
	} {
		run(t, db, statement) // whose first run may tidy up pages of the new database's catalogue
		var plan []byte
		explain := "explain (analyze, wal, format json) " + statement
		if err := db.Pool.QueryRow(t.Context(), explain).Scan(&plan); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var plans []struct {
			Plan struct {
				Records *int `json:"WAL Records"`
			}
		}
		if err := json.Unmarshal(plan, &plans); err != nil || plans[0].Plan.Records == nil || *plans[0].Plan.Records != 0 {
			t.Errorf("%s: %v %s", name, err, plan)
		}
	}
}

func TestFirstSubscriberLearnsOfAPooler(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	pooler := testkit.StartPooler(t, db)
	bus, _ := startBus(t, db, func(c *backplane.Config) { c.DirectURL = pooler })
	_, err := bus.Subscribe(t.Context(), "t", nil, func(backplane.Message) {})
	if !errors.Is(err, backplane.ErrPooled) || !strings.Contains(err.Error(), "BERTH_DATABASE_DIRECT_URL") {
		t.Errorf("behind a pooler: %v", err)
	}
}

func TestPoolMayLeadThroughAPooler(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	settings, err := pgxpool.ParseConfig(testkit.StartPooler(t, db))
	if err != nil {
		t.Fatal(err)
	}
	settings.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	bus, _ := startBus(t, db, func(c *backplane.Config) { c.Pool = pool })
	s := spyOn(t, bus, "t", nil)
	say(t, bus, "t", "1", strings.Repeat("x", 5000), "3")
	dense(t, s.last("3"), 1)
	from := s.sub.Position()
	dense(t, spyOn(t, bus, "t", &from).last("3")[1:], 1)
	if err := bus.Purge(t.Context()); err != nil {
		t.Error(err)
	}
}
