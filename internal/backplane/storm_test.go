package backplane_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/testkit"
)

// sizes of bodies: by notification, at its bound, and by table.
func randomBody(random *rand.Rand, publisher, n int) []byte {
	text := fmt.Sprintf("%d/%d ", publisher, n)
	switch random.IntN(10) {
	case 0:
		return []byte(text + strings.Repeat("é", random.IntN(4000)))
	case 1:
		return []byte(text + strings.Repeat("x", 1500+random.IntN(60)))
	default:
		return []byte(text)
	}
}

// ordered fails unless offsets are dense and each publisher's messages are in its order.
func ordered(t *testing.T, got []backplane.Message) {
	t.Helper()
	dense(t, got, 1)
	var last [8]int
	for _, m := range got {
		var publisher, n int
		if _, err := fmt.Sscanf(string(m.Data), "%d/%d", &publisher, &n); err != nil {
			t.Fatal(err)
		}
		if n <= last[publisher] {
			t.Fatalf("message %d of publisher %d comes after its %d", n, publisher, last[publisher])
		}
		last[publisher] = n
	}
}

func TestParallelPublishersLeaveNoGapAndKeepTheirOrder(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	seed := testkit.Seed(t)
	const publishers, topics, calls = 4, 5, 60
	reader, _ := startBus(t, db, nil)
	var spies []*spy
	for i := range topics {
		spies = append(spies, spyOn(t, reader, fmt.Sprint("topic-", i), nil))
	}
	var counts [topics]int
	var mu sync.Mutex
	var running sync.WaitGroup
	for p := range publishers {
		bus, _ := startBus(t, db, nil)
		random := rand.New(rand.NewPCG(uint64(seed), uint64(p)))
		running.Go(func() {
			n := 0
			for range calls {
				var out []backplane.Outgoing
				for range 1 + random.IntN(6) {
					n++
					topic := random.IntN(topics)
					out = append(out, backplane.Outgoing{Topic: fmt.Sprint("topic-", topic), Data: randomBody(random, p, n)})
					mu.Lock()
					counts[topic]++
					mu.Unlock()
				}
				if _, err := bus.Publish(t.Context(), out...); err != nil {
					t.Error(err)
				}
				if random.IntN(20) == 0 {
					if _, err := db.Pool.Exec(t.Context(), "select pg_terminate_backend(pid) "+listeners); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	running.Wait()
	for i, s := range spies {
		ordered(t, s.count(counts[i]))
	}
}

// Interest comes and goes with subscribers; none of them may miss what is published after it subscribed.
func TestFlappingSubscribersMissNothing(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	seed := testkit.Seed(t)
	writer, _ := startBus(t, db, nil)
	reader, _ := startBus(t, db, func(c *backplane.Config) { c.Linger = time.Nanosecond })
	stop := writing(t, writer, "t")
	var flapping sync.WaitGroup
	for i := range 4 {
		random := rand.New(rand.NewPCG(uint64(seed), uint64(i)))
		flapping.Go(func() {
			for range 40 {
				flap(t, reader, random.IntN(4))
			}
		})
	}
	flapping.Wait()
	stop()
	becomes(t, db, 0, "select count(*)::int from berth.topic_interest where topic <> ''")
}

// flap subscribes, sees n messages and leaves.
func flap(t *testing.T, p plane, n int) {
	t.Helper()
	got := make(chan backplane.Message, 1<<16)
	sub, err := p.Subscribe(t.Context(), "t", nil, func(m backplane.Message) { got <- m })
	if err != nil {
		t.Errorf("subscribe: %v", err)
		return
	}
	defer sub.Unsubscribe()
	at := sub.Position()
	if opening := <-got; !opening.Opening || opening.Position != at {
		t.Errorf("opened with %+v at %+v", opening, at)
	}
	for range n {
		select {
		case m := <-got:
			at.Offset++
			if m.Position != at || m.Notice() {
				t.Errorf("given %+v where %+v is next", m, at)
				return
			}
		case <-time.After(patience):
			t.Errorf("nothing comes after %+v", at)
			return
		}
	}
}
