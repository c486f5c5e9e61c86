package backplane_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/testkit"
)

// impatient is a connection that looks for deadlocks at once.
func impatient(t *testing.T, db *testkit.DB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.SocketURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	if _, err := conn.Exec(t.Context(), "set deadlock_timeout = '5ms'"); err != nil {
		t.Fatal(err)
	}
	return conn
}

// The books of a process are maps, so its statements name topics in any order, and several are under way at a time.
func TestStatementsOfAProcessNeverWaitForEachOther(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	seed := testkit.Seed(t)
	const topics, rounds, process = 200, 60, 0x7000000000000009
	var running sync.WaitGroup
	for i, statement := range []string{
		"select count(*) from berth.subscribe_topics($1, $2, $3)",
		"select count(*) from berth.subscribe_topics($1, $2, $3)",
		"select berth.count_members($1, $2, $3)",
		"select berth.unsubscribe_topics($1, ($2::text[])[:array_length($3::int[], 1) / 2])",
		"select berth.publish($2::text[], $3::int[]::text[]) from (select $1::bigint) p",
		"select berth.purge_topics('0', '0', 100) from (select $1::bigint, $2::text[], $3::int[]) p",
	} {
		conn, random := impatient(t, db), rand.New(rand.NewPCG(uint64(seed), uint64(i)))
		running.Go(func() {
			for range rounds {
				names, numbers := make([]string, topics), make([]int, topics)
				for i, n := range random.Perm(topics) {
					names[i], numbers[i] = fmt.Sprint("topic-", n), random.IntN(1000)
				}
				if _, err := conn.Exec(t.Context(), statement, int64(process), names, numbers); err != nil {
					t.Errorf("%s: %v", statement, err)
				}
			}
		})
	}
	running.Wait()
}

// Whoever names fresh topics leaves nothing behind.
func TestTopicThatNeverHadAMessageGoesWithItsLastInterest(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	one, _ := startBus(t, db, nil)
	two, _ := startBus(t, db, nil)
	stays := spyOn(t, two, "0", nil)
	for i := range 100 {
		spyOn(t, one, fmt.Sprint(i), nil).sub.Unsubscribe()
	}
	becomes(t, db, 1, "select count(*) from berth.topics")
	say(t, one, "0", "1")
	dense(t, stays.last("1"), 1)
	stays.sub.Unsubscribe()
	spyOn(t, two, "closing", nil)
	becomes(t, db, 1, "select count(*) from berth.topic_interest where topic not in ('', 'closing') or topic = 'closing'")
	two.Close()
	becomes(t, db, 1, "select count(*) from berth.topics")
	listenFor(t, db, 0x700000000000000a, false) // dies with a topic
	run(t, db, "insert into berth.topics (topic) values ('nobody''s')")
	for range 2 { // one that lost its listener for a moment finds its topic as it was
		if err := one.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := value[int](t, db, "select count(*) from berth.topics"); n != 1 {
		t.Errorf("%d topics are left, and one had a message", n)
	}
}

// A topic may be deleted at any moment that nobody is interested in it, but not under a subscription or a publish.
func TestTopicIsNeverDeletedUnderASubscription(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	writer, _ := startBus(t, db, nil)
	var running sync.WaitGroup
	for p := range 3 {
		bus, _ := startBus(t, db, func(c *backplane.Config) { c.Linger = 1 })
		running.Go(func() {
			for i := range 60 {
				topic := fmt.Sprint("topic-", i)
				sub, err := bus.Subscribe(t.Context(), topic, nil, func(backplane.Message) {})
				if err != nil {
					t.Error(err)
					return
				}
				if (i+p)%3 == 0 { // in another round by another process, so some topics have a message early and some late
					published, err := writer.Publish(t.Context(), backplane.Outgoing{Topic: topic, Data: []byte("x")})
					if err != nil || published[0].Processes == 0 || published[0].Position.Epoch != sub.Position().Epoch {
						t.Errorf("%s: %+v under a subscription at %+v: %v", topic, published, sub.Position(), err)
					}
				}
				sub.Unsubscribe()
			}
		})
	}
	running.Go(func() {
		for range 30 {
			if err := writer.Purge(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	running.Wait()
	becomes(t, db, 0, `select count(*) from berth.topics t where t.next = 1`)
}
