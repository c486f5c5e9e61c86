package backplane_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/testkit"
)

// presence asks who is there.
func presence(t *testing.T, p plane, topic string) backplane.Presence {
	t.Helper()
	got, err := p.Presence(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// counts waits until as many are there.
func counts(t *testing.T, p plane, topic string, members, processes int) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		if got := presence(t, p, topic); got.Members != members || got.Processes != processes {
			return fmt.Errorf("%+v, want %d members in %d processes", got, members, processes)
		}
		return nil
	})
}

func TestPresenceCountsSubscribersEverywhere(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		both := 2
		if w.a == w.b {
			both = 1
		}
		if got := presence(t, w.a, "t"); got != (backplane.Presence{}) {
			t.Errorf("a topic that is not there: %+v", got)
		}
		say(t, w.a, "t", "1", "2")
		if got := presence(t, w.b, "t"); got.Position.Offset != 2 || got.Members+got.Processes != 0 {
			t.Errorf("a topic that nobody subscribes to: %+v", got)
		}
		first := spyOn(t, w.a, "t", nil)
		want := backplane.Presence{Position: first.sub.Position(), Members: 1, Processes: 1}
		if got := presence(t, w.b, "t"); got != want {
			t.Errorf("the first of a process counts at once: %+v, want %+v", got, want)
		}
		spyOn(t, w.a, "other", nil)
		spyOn(t, w.a, "t", nil)
		last := spyOn(t, w.b, "t", nil)
		counts(t, w.b, "t", 3, both)
		first.sub.Unsubscribe()
		first.sub.Unsubscribe()
		counts(t, w.b, "t", 2, both)
		last.sub.Unsubscribe()
		counts(t, w.b, "t", 1, 1)
		if _, err := w.a.Presence(t.Context(), "a b"); !errors.Is(err, backplane.ErrInvalid) {
			t.Errorf("no topic: %v", err)
		}
		w.b.Close()
		if _, err := w.b.Presence(t.Context(), "t"); !errors.Is(err, backplane.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

func TestPresenceCountsNoDeadProcess(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	listenFor(t, db, 0x7000000000000007, false)
	run(t, db, "update berth.topic_interest set members = 7")
	bus, _ := startBus(t, db, nil)
	spyOn(t, bus, "t", nil)
	counts(t, bus, "t", 1, 1)
}

// Interest that is made anew comes with its members, also with those that were never counted.
func TestPresenceSurvivesTheLossOfInterest(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	bus, _ := startBus(t, db, func(c *backplane.Config) { c.CountInterval = time.Hour })
	for range 3 {
		spyOn(t, bus, "t", nil)
	}
	if got := presence(t, bus, "t"); got.Members != 1 {
		t.Errorf("%+v: counted before it is time", got)
	}
	run(t, db, "truncate berth.topics, berth.topic_log, berth.topic_interest")
	counts(t, bus, "t", 3, 1)
}

// Members are counted by one statement for all topics, and by none when none changed.
func TestMembersAreCountedTogether(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	traced := &statements{}
	bus, _ := startBus(t, db, func(c *backplane.Config) {
		c.Pool = traced.pool(t, db)
		c.CountInterval = 300 * time.Millisecond
	})
	const topics = 200
	var leaving []*spy
	for i := range topics {
		spyOn(t, bus, fmt.Sprint(i), nil)
		leaving = append(leaving, spyOn(t, bus, fmt.Sprint(i), nil))
	}
	total := "select sum(members) from berth.topic_interest"
	becomes(t, db, 2*topics, total)
	for _, s := range leaving {
		s.sub.Unsubscribe()
	}
	becomes(t, db, topics, total)
	if n := traced.count("berth.count_members"); n > 20 {
		t.Errorf("%d statements for %d changes", n, 3*topics)
	}
	before := traced.count("berth.count_members")
	again := spyOn(t, bus, "1", nil)
	again.sub.Unsubscribe()
	spyOn(t, bus, "2", nil)
	becomes(t, db, topics+1, total)
	if n := traced.count("berth.count_members") - before; n < 1 || n > 2 {
		t.Errorf("%d statements for one change, and one that was taken back", n)
	}
}

// A statement that its process gave up may come to its end later, and has the last word.
func TestMembersThatTheTablesHaveOtherwiseAreCountedAgain(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	bus, registry := startBus(t, db, func(c *backplane.Config) { c.CompareInterval = 100 * time.Millisecond })
	spyOn(t, bus, "t", nil)
	spyOn(t, bus, "t", nil)
	members := "select members from berth.topic_interest where topic = 't'"
	becomes(t, db, 2, members)
	run(t, db, "update berth.topic_interest set members = 7 where topic = 't'")
	becomes(t, db, 2, members)
	if n := metric(t, registry, "berth_backplane_behind_total"); n != 0 {
		t.Errorf("%v topics were behind", n)
	}
}

// To find out who listens is a look at all connections of the server. However many ask, about however many topics, it is one
// look a second.
func TestPresenceOfManyTopicsLooksOnceAtWhoListens(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	traced := &statements{}
	other, _ := startBus(t, db, nil)
	spyOn(t, other, "t", nil)
	bus, _ := startBus(t, db, func(c *backplane.Config) {
		c.Pool = traced.pool(t, db)
		c.ListeningAge = time.Hour
	})
	var asking sync.WaitGroup
	for i := range 20 {
		asking.Go(func() {
			for n := range 10 {
				if got, err := bus.Presence(t.Context(), "t"); err != nil || got.Members != 1 || got.Processes != 1 {
					t.Errorf("%+v, %v", got, err)
				}
				if got, err := bus.Presence(t.Context(), fmt.Sprintf("%d.%d", i, n)); err != nil || got != (backplane.Presence{}) {
					t.Errorf("a topic that is not there: %+v, %v", got, err)
				}
			}
		})
	}
	asking.Wait()
	if n := traced.count("berth.listening_processes"); n != 1 {
		t.Errorf("%d looks at who listens", n)
	}
	say(t, bus, "t", "1")
	spyOn(t, bus, "t", nil)
	if got := presence(t, bus, "t"); got.Position.Offset != 1 || got.Members != 2 || got.Processes != 2 {
		t.Errorf("%+v: what the process does itself shows at once", got)
	}
}
