package backplane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/testkit"
)

// fill publishes n messages of 1500 bytes to a topic; five of them are a notification.
func fill(t *testing.T, p plane, topic string, n int) {
	t.Helper()
	body := []byte(strings.Repeat("x", 1500))
	out := make([]backplane.Outgoing, 100)
	for i := range out {
		out[i] = backplane.Outgoing{Topic: topic, Data: body}
	}
	for range n / len(out) {
		if _, err := p.Publish(t.Context(), out...); err != nil {
			t.Fatal(err)
		}
	}
}

// A listener that does not read holds up the queue of the whole server. Its process drops it, also when it is never asked
// for a sign of life.
func TestListenerThatHoldsUpTheQueueIsDroppedByItsProcess(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	net := testkit.NewNetwork(t, db)
	writer, _ := startBus(t, db, nil)
	bystander, quiet := startBus(t, db, func(c *backplane.Config) { c.WatchInterval = 20 * time.Millisecond })
	reader, registry := startBus(t, db, func(c *backplane.Config) {
		c.DirectURL, c.ProbeInterval, c.WatchInterval = net.URL, time.Hour, 50*time.Millisecond
	})
	s, other := spyOn(t, reader, "t", nil), spyOn(t, bystander, "t", nil)
	if n := metric(t, registry, "berth_backplane_listening"); n != 1 {
		t.Errorf("listening: %v", n)
	}
	for _, w := range net.Wires() {
		w.Stall()
	}
	total := 0
	dropped := func() bool { return metric(t, registry, "berth_backplane_listener_drops_total") == 1 }
	for !dropped() && total < 100_000 {
		fill(t, writer, "t", 2000)
		total += 2000
	}
	testkit.EventuallyTrue(t, patience, "the listener is dropped", dropped)
	say(t, writer, "t", "after")
	got := s.last("after")
	if last := got[len(got)-1].Position.Offset; last != int64(total+1) {
		t.Errorf("the last of %d is %d", total+1, last)
	}
	dense(t, other.last("after"), 1)
	if n := metric(t, quiet, "berth_backplane_listener_drops_total"); n != 0 {
		t.Errorf("the bystander dropped its listener %v times", n)
	}
	becomes(t, db, 2, "select count(*) "+listeners) // the one that was dropped is gone
}

// A process cannot know whose listener it is that holds up the queue. Each tries its own, once.
func TestListenerIsDroppedOnceWhileTheQueueIsTooFull(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	writer, _ := startBus(t, db, nil)
	reader, registry := startBus(t, db, func(c *backplane.Config) {
		c.WatchInterval, c.QueueBound = 20*time.Millisecond, 1e-9
	})
	s := spyOn(t, reader, "t", nil)
	pin := listenFor(t, db, 0x7000000000000008, true)
	run(t, db, "delete from berth.topic_interest where process = $1", int64(0x7000000000000008))
	tx, err := pin.Begin(t.Context()) // a listener in a transaction reads nothing
	if err != nil {
		t.Fatal(err)
	}
	for value[float64](t, db, "select pg_notification_queue_usage()") == 0 {
		fill(t, writer, "t", 1000)
	}
	testkit.EventuallyTrue(t, patience, "the listener is dropped", func() bool {
		return metric(t, registry, "berth_backplane_listener_drops_total") == 1
	})
	becomes(t, db, 1, "select count(*) "+listeners) // the one in a transaction has no name
	if metric(t, registry, "berth_backplane_notify_queue_ratio") == 0 {
		t.Error("the queue is said to be empty")
	}
	say(t, writer, "t", "after")
	s.last("after")
	if n := metric(t, registry, "berth_backplane_listener_drops_total"); n != 1 {
		t.Errorf("dropped %v times", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
}

// Under all the notifications there is a net.
func TestMessagesThatWereNotToldAreFound(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	bus, registry := startBus(t, db, func(c *backplane.Config) { c.CompareInterval = 100 * time.Millisecond })
	var spies []*spy
	for i := range 100 {
		spies = append(spies, spyOn(t, bus, fmt.Sprint(i), nil))
	}
	run(t, db, `with t as (update berth.topics set next = 3 where topic in ('7', '8') returning topic)
		insert into berth.topic_log (topic, "offset", data) select topic, n, n::text from t, generate_series(1, 2) n`)
	for _, i := range []int{7, 8} {
		dense(t, spies[i].last("2"), 1)
	}
	run(t, db, "delete from berth.topic_interest where topic = '9'") // nobody is told, and it is not noticed
	say(t, bus, "9", "1")
	spies[9].last("1")
	say(t, bus, "9", "2")
	dense(t, spies[9].last("2"), 1)
	if n := metric(t, registry, "berth_backplane_behind_total"); n < 3 || n > 5 {
		t.Errorf("%v topics were behind", n)
	}
	if n := metric(t, registry, "berth_backplane_resyncs_total"); n != 1 {
		t.Errorf("%v resyncs", n)
	}
}
