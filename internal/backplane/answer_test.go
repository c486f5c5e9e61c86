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

func TestEverySubscriptionBeginsWithItsOpening(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		say(t, w.a, "t", "1", "2")
		plain := spyOn(t, w.b, "t", nil)
		at := plain.sub.Position()
		want := backplane.Message{Topic: "t", Position: at, Opening: true}
		if diff := cmp.Diff(want, plain.opening); diff != "" || at.Offset != 2 || !plain.opening.Notice() {
			t.Errorf("at %+v: %s", at, diff)
		}
		from := backplane.Position{Epoch: at.Epoch, Offset: 1}
		resumed := spyOn(t, w.b, "t", &from)
		want = backplane.Message{Topic: "t", Position: from, Opening: true, Recovery: backplane.Recovery{Outcome: backplane.Complete}}
		if diff := cmp.Diff(want, resumed.all()[0]); diff != "" {
			t.Error(diff)
		}
		w.forget()
		say(t, w.a, "t", "new")
		for _, s := range []*spy{plain, resumed} {
			got := s.last("new")
			if reset := got[len(got)-2]; reset.Recovery.Outcome != backplane.Reset || reset.Opening {
				t.Errorf("a later notice: %+v", reset)
			}
		}
	})
}

// What comes while the opening is delivered comes after it, however much it is.
func TestOpeningIsBeforeWhatIsPublishedMeanwhile(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		const many = 1500 // more than is held, and than is kept
		s := &spy{t: t, changed: make(chan struct{})}
		var err error
		s.sub, err = w.b.Subscribe(t.Context(), "t", nil, func(m backplane.Message) {
			s.deliver(m)
			if m.Opening {
				sayMany(t, w.a, "t", 1, many)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		got := s.last("1500")
		next := int64(1)
		for _, m := range got {
			if m.Recovery.Outcome == backplane.Partial && m.Recovery.Missing.From == next {
				next = m.Position.Offset + 1
				continue
			}
			if m.Notice() || m.Position.Offset != next {
				t.Fatalf("given %+v where %d is next", m, next)
			}
			next++
		}
	})
}
