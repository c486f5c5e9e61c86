package backplane_test

import (
	"sync"
	"testing"

	"github.com/berthdev/berth/internal/backplane"
)

// Everybody comes back at once, each with its own position, and gets what it missed.
func TestStormOfResumesReadsHistoryOnceForMany(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	traced := &statements{}
	bus, _ := startBus(t, db, func(c *backplane.Config) { c.Pool = traced.pool(t, db) })
	sayMany(t, bus, "t", 1, backplane.Kept)
	epoch := presence(t, bus, "t").Position.Epoch
	const subscribers = 1000
	var resuming sync.WaitGroup
	for i := range subscribers {
		resuming.Go(func() {
			from := backplane.Position{Epoch: epoch, Offset: int64(backplane.Kept - 20 + i%20)}
			if i%100 == 0 {
				from.Offset = int64(i / 10)
			}
			s := &spy{t: t, changed: make(chan struct{})}
			if _, err := bus.Subscribe(t.Context(), "t", &from, s.deliver); err != nil {
				t.Error(err)
				return
			}
			got := s.all()
			if last := got[len(got)-1].Position.Offset; len(got) != 1+int(backplane.Kept-from.Offset) || last != backplane.Kept {
				t.Errorf("from %d: given %d, up to %d", from.Offset, len(got), last)
			}
		})
	}
	resuming.Wait()
	n := traced.count("berth.read_topics")
	t.Logf("%d statements", n)
	if n > subscribers/20 {
		t.Errorf("%d statements for %d subscribers", n, subscribers)
	}
}

// B10: a subscriber that stops reading amid its history delays nobody else, and gets all of it when it goes on.
func TestScenario_B10_SlowReplayDelaysNobody(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		sayMany(t, w.a, "t", 1, backplane.Kept)
		epoch := presence(t, w.a, "t").Position.Epoch
		slow, release := &spy{t: t, changed: make(chan struct{})}, make(chan struct{})
		var replaying sync.WaitGroup
		replaying.Go(func() {
			from := backplane.Position{Epoch: epoch}
			if _, err := w.b.Subscribe(t.Context(), "t", &from, func(m backplane.Message) {
				slow.deliver(m)
				if m.Position.Offset == 10 {
					<-release
				}
			}); err != nil {
				t.Error(err)
			}
		})
		slow.count(11)
		from := backplane.Position{Epoch: epoch, Offset: backplane.Kept - 1}
		quick, other := spyOn(t, w.b, "t", &from), spyOn(t, w.b, "other", nil)
		say(t, w.a, "t", "live")
		say(t, w.a, "other", "live")
		quick.last("live")
		other.last("live")
		close(release)
		replaying.Wait()
		dense(t, slow.last("live")[1:], 1)
	})
}
