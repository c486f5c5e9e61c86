package api

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
)

func TestPositionsKeepTheirOrderAsText(t *testing.T) {
	t.Parallel()
	position := rapid.Custom(func(t *rapid.T) berth.Position {
		return berth.Position{XID: rapid.Uint64().Draw(t, "xid"), ID: rapid.Int64Range(0, math.MaxInt64).Draw(t, "id")}
	})
	rapid.Check(t, func(rt *rapid.T) {
		a, b := position.Draw(rt, "a"), position.Draw(rt, "b")
		if got, ok := parsePosition(formatPosition(a)); !ok || got != a {
			rt.Fatalf("%+v becomes %+v", a, got)
		}
		if comparePositions(a, b) != -comparePositions(b, a) || comparePositions(later(a, b), a) < 0 || later(a, b) != later(b, a) {
			rt.Fatalf("%+v and %+v have no order", a, b)
		}
	})
}

func TestHeldCallsEndOnceAndForgottenOnesNever(t *testing.T) {
	t.Parallel()
	var h held
	ended := map[string]int{}
	add := func(name string) func() { return h.add(func() { ended[name]++ }) }
	add("first")
	forget := add("second")
	forget()
	forget()
	add("third")
	h.end()
	h.end()
	forget = add("late")
	forget()
	if len(ended) != 3 || ended["first"] != 1 || ended["third"] != 1 || ended["late"] != 1 {
		t.Errorf("ended %v", ended)
	}
}

func TestHeldCallsMayComeAndGoWhileOthersAreEnded(t *testing.T) {
	t.Parallel()
	var h held
	var running sync.WaitGroup
	ending, proceed, forgotten := make(chan struct{}), make(chan struct{}), make(chan struct{})
	forget := h.add(func() { close(ending); <-proceed })
	running.Go(h.end)
	<-ending
	late := 0
	h.add(func() { late++ })() // nothing is locked meanwhile
	if late != 1 {
		t.Errorf("a late call was ended %d times, want once", late)
	}
	running.Go(func() { forget(); close(forgotten) })
	select {
	case <-forgotten:
		t.Error("a call was forgotten while its end was under way")
	case <-time.After(20 * time.Millisecond):
	}
	close(proceed)
	running.Wait()
	<-forgotten
}

func TestWatcherPollsOnlyWhileThereAreStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		w := newWatcher(s, testkit.Logger(t), 250*time.Millisecond, 8)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.run(ctx) })
		defer running.Wait()
		defer cancel()
		polls := func(during time.Duration) int64 {
			before := s.polls.Load()
			<-time.After(during)
			synctest.Wait()
			return s.polls.Load() - before
		}
		if n := polls(time.Hour); n != 0 {
			t.Errorf("%d polls without streams", n)
		}
		for range 2 { // it wakes again
			leave, err := w.enter("t-1")
			if err != nil {
				t.Fatal(err)
			}
			if n := polls(10 * time.Second); n < 40 || n > 42 {
				t.Errorf("%d polls in ten seconds", n)
			}
			leave()
			if n := polls(time.Hour); n > 1 {
				t.Errorf("%d polls after the stream closed", n)
			}
		}
	})
}

func TestWatcherTellsNewsAndSurvivesTheDatabase(t *testing.T) {
	t.Parallel()
	s := newStore()
	w := newWatcher(s, testkit.Logger(t), time.Hour, 8)
	told := func() bool {
		_, news := w.state()
		w.look(t.Context())
		select {
		case <-news:
			return true
		default:
			return false
		}
	}
	if told() {
		t.Error("an empty history is news")
	}
	x := &stored{Session: berth.Session{TenantID: "t-1", ID: "s-1", Key: 1}}
	s.happened(x, "created")
	if !told() || told() {
		t.Error("one event is news once")
	}
	s.setFail(errors.New("away"))
	if told() {
		t.Error("a failure is news")
	}
	s.happened(x, "active")
	s.setFail(nil)
	if end, _ := w.state(); !told() || end != (berth.Position{XID: 1000, ID: 1}) {
		t.Errorf("after a failure, from %+v", end)
	}
}

func TestReadersOfTheHistoryTakeTurns(t *testing.T) {
	t.Parallel()
	s := newStore()
	s.frozen.Store(true)
	w := newWatcher(s, testkit.Logger(t), time.Hour, 8)
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 4 * streamReads {
		readers.Go(func() {
			if _, err := w.read(ctx, berth.EventFilter{Limit: 1}); !errors.Is(err, context.Canceled) {
				t.Errorf("read: %v", err)
			}
		})
	}
	testkit.EventuallyTrue(t, 5*time.Second, "some read", func() bool { return s.reads.Load() == streamReads })
	cancel()
	readers.Wait()
	if n := s.reads.Load(); n > 4*streamReads {
		t.Errorf("%d reads", n)
	}
}
