package backplane_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthdev/berth/internal/backplane"
)

func TestPublisherLearnsWhereItsMessagesAreAndWhoWasTold(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		here, there := spyOn(t, w.a, "heard", nil), spyOn(t, w.b, "heard", nil)
		other := spyOn(t, w.b, "other", nil)
		both := 2
		if w.a == w.b {
			both = 1
		}
		out := func(topic, text string) backplane.Outgoing {
			return backplane.Outgoing{Topic: topic, Data: []byte(text)}
		}
		got, err := w.a.Publish(t.Context(),
			out("heard", "1"), out("nobody", "1"), out("other", strings.Repeat("x", 5000)), out("heard", "2"), out("nobody", "2"))
		if err != nil {
			t.Fatal(err)
		}
		epoch := there.sub.Position().Epoch
		at := func(offset int64) backplane.Position { return backplane.Position{Epoch: epoch, Offset: offset} }
		want := []backplane.Published{
			{Position: at(1), Processes: both},
			{Position: backplane.Position{Epoch: got[1].Position.Epoch, Offset: 1}},
			{Position: backplane.Position{Epoch: other.sub.Position().Epoch, Offset: 1}, Processes: 1},
			{Position: at(2), Processes: both},
			{Position: backplane.Position{Epoch: got[1].Position.Epoch, Offset: 2}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if last := here.last("2"); last[len(last)-1].Position != at(2) {
			t.Errorf("given %+v", last)
		}
		there.sub.Unsubscribe()
	})
}

func TestMessagesThatNobodyHearsAreCounted(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	listenFor(t, db, 0x7000000000000006, false) // dead, and interested in t
	bus, registry := startBus(t, db, nil)
	spyOn(t, bus, "heard", nil)
	say(t, bus, "t", "1", "2")
	say(t, bus, "heard", "1")
	for name, want := range map[string]float64{"berth_backplane_published_total": 3, "berth_backplane_unheard_total": 2} {
		if got := metric(t, registry, name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
