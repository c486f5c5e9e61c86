package backplane_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/backplane"
)

// When the database has lost its topics, all subscribers of all processes are told; not in the same moment.
func TestResetsAreSpreadWhenTopicsAreLost(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	const topics, spread = 500, time.Second
	bus, _ := startBus(t, db, func(c *backplane.Config) { c.ResetSpread = spread })
	type reset struct {
		topic int
		at    time.Time
	}
	resets, later := make(chan reset, 2*topics), make(chan string, 4*topics)
	for i := range topics {
		for range 3 {
			if _, err := bus.Subscribe(t.Context(), fmt.Sprint(i), nil, func(m backplane.Message) {
				switch {
				case m.Recovery.Outcome == backplane.Reset:
					select {
					case resets <- reset{i, time.Now()}:
					default:
					}
				case !m.Notice():
					later <- string(m.Data)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(t, db, "truncate berth.topics, berth.topic_log, berth.topic_interest")
	var first, last time.Time
	told := map[int]bool{}
	for len(told) < topics {
		select {
		case r := <-resets:
			if first.IsZero() {
				first = r.at
			}
			last, told[r.topic] = r.at, true
		case <-time.After(patience):
			t.Fatalf("%d of %d topics were reset", len(told), topics)
		}
	}
	if took := last.Sub(first); took < spread*7/10 {
		t.Errorf("all within %v", took)
	}
	say(t, bus, "7", "after")
	for range 3 {
		if got := <-later; got != "after" {
			t.Errorf("given %q", got)
		}
	}
}

// Whoever subscribes while a reset is put off begins with the new topic, and misses nothing of it.
func TestSubscriberAmidAResetBeginsWithTheNewTopic(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	bus, _ := startBus(t, db, func(c *backplane.Config) { c.ResetSpread = 3 * time.Second })
	var old []*spy
	for range 3000 {
		old = append(old, spyOn(t, bus, "t", nil))
	}
	epoch := old[0].sub.Position().Epoch
	run(t, db, "truncate berth.topics, berth.topic_log, berth.topic_interest")
	becomes(t, db, 1, "select count(*) from berth.topic_interest where topic = 't'")
	say(t, bus, "t", "new 1")
	from := presence(t, bus, "t").Position
	fresh := spyOn(t, bus, "t", &from)
	say(t, bus, "t", "new 2")
	dense(t, fresh.last("new 2")[1:], 2)
	if fresh.sub.Position().Epoch == epoch || fresh.sub.Recovery().Outcome != backplane.Complete {
		t.Errorf("began at %+v of the old epoch %s", fresh.sub.Position(), epoch)
	}
	got := old[0].last("new 2")
	if len(got) != 3 || got[0].Recovery.Outcome != backplane.Reset {
		t.Errorf("given%s", brief(got))
	}
}
