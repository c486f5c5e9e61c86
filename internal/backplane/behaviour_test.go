package backplane_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthdev/berth/internal/backplane"
)

// world is two processes on one backplane; in memory they are one.
type world struct {
	t    *testing.T
	a, b plane
	// forget empties every topic, as a crash of the database does.
	forget func()
}

func memoryWorld(t *testing.T) world {
	t.Helper()
	m := backplane.NewMemory()
	t.Cleanup(m.Close)
	return world{t: t, a: m, b: m, forget: m.Forget}
}

func postgresWorld(t *testing.T) world {
	t.Helper()
	db := databases.Database(t)
	a, _ := startBus(t, db, nil)
	b, _ := startBus(t, db, nil)
	return world{t: t, a: a, b: b, forget: func() {
		if _, err := db.Pool.Exec(t.Context(), "truncate berth.topics, berth.topic_log, berth.topic_interest"); err != nil {
			t.Fatal(err)
		}
	}}
}

// everywhere runs a test on all implementations.
func everywhere(t *testing.T, test func(w world)) {
	t.Helper()
	for name, makeWorld := range map[string]func(*testing.T) world{
		"memory": memoryWorld, "postgres": postgresWorld, "cluster": clusterWorld,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(makeWorld(t))
		})
	}
}

func TestMessagesArriveInOrderWithDenseOffsets(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		here, there := spyOn(t, w.a, "t", nil), spyOn(t, w.b, "t", nil)
		say(t, w.a, "t", "1", "2", "3")
		say(t, w.b, "t", "4")
		for _, s := range []*spy{here, there} {
			got := s.count(4)
			dense(t, got, 1)
			if diff := cmp.Diff(numbers(1, 4), texts(got)); diff != "" {
				t.Error(diff)
			}
			if got[0].Topic != "t" || got[0].Position.Epoch != s.sub.Position().Epoch || s.sub.Position().Offset != 0 {
				t.Errorf("subscribed at %+v, given %+v", s.sub.Position(), got[0])
			}
		}
	})
}

func TestTopicsAreApart(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		one, two := spyOn(t, w.a, "one", nil), spyOn(t, w.a, "two", nil)
		out := func(topic, text string) backplane.Outgoing {
			return backplane.Outgoing{Topic: topic, Data: []byte(text)}
		}
		if _, err := w.b.Publish(t.Context(), out("one", "a"), out("two", "b"), out("none", "x"), out("one", "c")); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a", "c"}, texts(one.count(2))); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"b"}, texts(two.count(1))); diff != "" {
			t.Error(diff)
		}
	})
}

// exactly is a text of so many bytes, of a pattern and what it takes to fill up.
func exactly(pattern string, size int) string {
	text := strings.Repeat(pattern, size/len(pattern))
	return text + strings.Repeat("x", size-len(text))
}

// B03: a body whose notification is as long as Postgres allows, or longer, in whatever characters. 1536 is where bodies go by
// table.
func TestScenario_B03_BodiesOfEverySizeKeepTheirOrder(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		there := spyOn(t, w.b, "t", nil)
		sizes := []int{0, 1, 1535, 1536, 1537, 10, 7_899, 7_900, 1, 20_000, 60 << 10, backplane.MaxData, 2}
		for size := 7_990; size <= 8_010; size++ {
			sizes = append(sizes, size)
		}
		var want []string
		for _, size := range sizes {
			want = append(want, exactly("x", size), exactly("\U0001F6A2", size), exactly(`"\"`, size), exactly("\U0001F6A2\"\n", size))
		}
		say(t, w.a, "t", want...)
		got := there.count(len(want))
		dense(t, got, 1)
		if !slices.Equal(want, texts(got)) {
			t.Error("bodies changed on their way")
		}
	})
}

func TestUnusableMessagesAreRefused(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		for name, tc := range map[string]struct {
			out  backplane.Outgoing
			want error
		}{
			"no topic":      {backplane.Outgoing{Data: []byte("x")}, backplane.ErrInvalid},
			"long topic":    {backplane.Outgoing{Topic: strings.Repeat("t", backplane.MaxTopic+1)}, backplane.ErrInvalid},
			"space":         {backplane.Outgoing{Topic: "a b"}, backplane.ErrInvalid},
			"line":          {backplane.Outgoing{Topic: "a\nb"}, backplane.ErrInvalid},
			"large":         {backplane.Outgoing{Topic: "t", Data: make([]byte, backplane.MaxData+1)}, backplane.ErrTooLarge},
			"not UTF-8":     {backplane.Outgoing{Topic: "t", Data: []byte{0xff}}, backplane.ErrInvalid},
			"with a NUL":    {backplane.Outgoing{Topic: "t", Data: []byte{'a', 0}}, backplane.ErrInvalid},
			"longest topic": {backplane.Outgoing{Topic: strings.Repeat("t", backplane.MaxTopic)}, nil},
		} {
			if _, err := w.a.Publish(t.Context(), tc.out); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", name, err, tc.want)
			}
		}
		many := slices.Repeat([]backplane.Outgoing{{Topic: "t"}}, backplane.MaxMessages+1)
		if _, err := w.a.Publish(t.Context(), many...); !errors.Is(err, backplane.ErrTooLarge) {
			t.Errorf("too many: %v", err)
		}
		if _, err := w.a.Publish(t.Context()); err != nil {
			t.Errorf("none: %v", err)
		}
		if _, err := w.a.Subscribe(t.Context(), "a b", nil, nil); !errors.Is(err, backplane.ErrInvalid) {
			t.Errorf("subscribe: %v", err)
		}
	})
}

func TestSubscriberGetsWhatComesAfterIt(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		say(t, w.a, "t", "before")
		first := spyOn(t, w.b, "t", nil)
		say(t, w.a, "t", "between")
		first.last("between")
		second := spyOn(t, w.b, "t", nil)
		say(t, w.a, "t", "after")
		if diff := cmp.Diff([]string{"between", "after"}, texts(first.last("after"))); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"after"}, texts(second.last("after"))); diff != "" {
			t.Error(diff)
		}
		if got := second.sub.Position().Offset; got != 2 || second.sub.Recovery() != (backplane.Recovery{}) {
			t.Errorf("second began at %d with %+v", got, second.sub.Recovery())
		}
	})
}

func TestUnsubscribedGetsNoMore(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		left, stays := spyOn(t, w.b, "t", nil), spyOn(t, w.b, "t", nil)
		say(t, w.a, "t", "1")
		left.last("1")
		stays.last("1")
		left.sub.Unsubscribe()
		left.sub.Unsubscribe()
		say(t, w.a, "t", "2")
		stays.last("2")
		if got := left.all(); len(got) != 1 {
			t.Errorf("given after it left:%s", brief(got))
		}
		again := spyOn(t, w.b, "t", &got0(left).Position)
		if diff := cmp.Diff([]string{"2"}, texts(again.last("2"))); diff != "" {
			t.Error(diff)
		}
	})
}

// got0 is the first that was given.
func got0(s *spy) *backplane.Message { return &s.count(1)[0] }

func TestDeliveryMayUnsubscribe(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		once := make(chan backplane.Message, 10)
		subscribed := make(chan struct{})
		var sub *backplane.Subscription
		sub, err := w.b.Subscribe(t.Context(), "t", nil, func(m backplane.Message) {
			if m.Opening {
				return
			}
			<-subscribed
			once <- m
			sub.Unsubscribe()
		})
		if err != nil {
			t.Fatal(err)
		}
		close(subscribed)
		stays := spyOn(t, w.b, "t", nil)
		say(t, w.a, "t", "1", "2")
		stays.last("2")
		if len(once) != 1 {
			t.Errorf("given %d times", len(once))
		}
	})
}

func TestResumeIsCompleteWhileMessagesAreKept(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		sayMany(t, w.a, "t", 1, backplane.Kept)
		epoch := spyOn(t, w.a, "t", nil).sub.Position().Epoch
		for _, offset := range []int64{0, 1, 100, backplane.Kept - 1, backplane.Kept} {
			from := backplane.Position{Epoch: epoch, Offset: offset}
			s := spyOn(t, w.b, "t", &from)
			got := s.all() // history is replayed before Subscribe returns
			if !got[0].Notice() || got[0].Recovery.Outcome != backplane.Complete || got[0].Position != from {
				t.Fatalf("from %d: opened with %+v", offset, got[0])
			}
			if s.sub.Recovery().Outcome != backplane.Complete || s.sub.Position() != from {
				t.Errorf("from %d: subscribed %+v at %+v", offset, s.sub.Recovery(), s.sub.Position())
			}
			dense(t, got[1:], offset+1)
			if len(got) != 1+int(backplane.Kept-offset) {
				t.Errorf("from %d: given %d", offset, len(got))
			}
		}
	})
}

func TestResumeNamesTheRangeThatIsNotKept(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		sayMany(t, w.a, "t", 1, 1000)
		from := backplane.Position{Epoch: spyOn(t, w.a, "t", nil).sub.Position().Epoch, Offset: 10}
		s := spyOn(t, w.b, "t", &from)
		want := backplane.Recovery{
			Outcome: backplane.Partial, Missing: backplane.Range{From: 11, To: 1000 - backplane.Kept},
		}
		got := s.all()
		if got[0].Recovery != want || s.sub.Recovery() != want || s.sub.Position().Offset != want.Missing.To {
			t.Errorf("opened with %+v, subscribed %+v at %+v", got[0], s.sub.Recovery(), s.sub.Position())
		}
		dense(t, got[1:], want.Missing.To+1)
		say(t, w.a, "t", "live")
		dense(t, s.last("live")[1:], want.Missing.To+1)
	})
}

func TestResumeFromAnotherEpochIsAReset(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		say(t, w.a, "t", "1", "2", "3")
		epoch := spyOn(t, w.a, "t", nil).sub.Position().Epoch
		for _, from := range []backplane.Position{{}, {Epoch: "another", Offset: 1}, {Epoch: epoch, Offset: 4}} {
			s := spyOn(t, w.b, "t", &from)
			want := backplane.Position{Epoch: epoch, Offset: 3}
			if got := s.all(); len(got) != 1 || got[0].Recovery.Outcome != backplane.Reset || got[0].Position != want {
				t.Errorf("from %+v: given %+v", from, got)
			}
			s.sub.Unsubscribe()
		}
	})
}

func TestLiveSubscriberIsToldOfANewEpoch(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		s := spyOn(t, w.b, "t", nil)
		say(t, w.a, "t", "1", "2")
		before := s.last("2")[1].Position
		w.forget()
		say(t, w.a, "t", "new 1")
		got := s.last("new 1")
		if len(got) != 4 || got[2].Recovery.Outcome != backplane.Reset || got[2].Position.Offset != 0 ||
			got[3].Position.Epoch == before.Epoch || got[3].Position.Offset != 1 {
			t.Errorf("given%s", brief(got))
		}
		resumed := spyOn(t, w.b, "t", &before)
		if resumed.sub.Recovery().Outcome != backplane.Reset {
			t.Errorf("resumed from the old epoch: %+v", resumed.sub.Recovery())
		}
		say(t, w.a, "t", "new 2")
		s.last("new 2")
		resumed.last("new 2")
	})
}

func TestResumingBesideALiveStreamMissesNothing(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		const total = 400
		first := spyOn(t, w.b, "t", nil)
		start := first.sub.Position()
		var publishing, resuming sync.WaitGroup
		publishing.Go(func() {
			for _, text := range numbers(1, total) {
				if _, err := w.a.Publish(t.Context(), backplane.Outgoing{Topic: "t", Data: []byte(text)}); err != nil {
					t.Error(err)
				}
			}
		})
		for i := range 20 {
			first.count(i * total / 25)
			resuming.Go(func() {
				from := start
				s := &spy{t: t, changed: make(chan struct{})}
				if _, err := w.b.Subscribe(t.Context(), "t", &from, s.deliver); err != nil {
					t.Error(err)
					return
				}
				publishing.Wait()
				testDense(t, s, total)
			})
		}
		publishing.Wait()
		resuming.Wait()
		dense(t, first.count(total), 1)
	})
}

// testDense is for other goroutines than the test's: everything arrives, or is named as missing.
func testDense(t *testing.T, s *spy, total int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		s.mu.Lock()
		got, changed := slices.Clone(s.got), s.changed
		s.mu.Unlock()
		next := int64(1)
		for _, m := range got[1:] {
			if !m.Notice() && m.Position.Offset != next && got[0].Recovery.Outcome == backplane.Complete {
				t.Errorf("offset %d where %d is next", m.Position.Offset, next)
				return
			}
			next = m.Position.Offset + 1
		}
		if next > total {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Errorf("only %d of %d came", next-1, total)
			return
		}
	}
}

func TestClosedRefuses(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w world) {
		t := w.t
		s := spyOn(t, w.b, "t", nil)
		w.b.Close()
		w.b.Close()
		if _, err := w.b.Publish(t.Context(), backplane.Outgoing{Topic: "t"}); !errors.Is(err, backplane.ErrClosed) {
			t.Errorf("publish: %v", err)
		}
		if _, err := w.b.Subscribe(t.Context(), "t", nil, s.deliver); !errors.Is(err, backplane.ErrClosed) {
			t.Errorf("subscribe: %v", err)
		}
		s.sub.Unsubscribe()
	})
}
