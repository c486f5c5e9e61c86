package backplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// publishing runs a publisher on a stub of the database, until the test ends.
func publishing(t *testing.T, publish func([]Outgoing) error) *publisher {
	t.Helper()
	m, err := newMetrics(nil, func() int { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	p := newPublisher(func(_ context.Context, messages []Outgoing) ([]Published, error) {
		return make([]Published, len(messages)), publish(messages)
	}, ownerOf, m)
	p.start()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.run(ctx) })
	t.Cleanup(func() {
		p.close()
		cancel()
		running.Wait()
	})
	return p
}

// ownerOf is what is before a slash in a topic's name.
func ownerOf(topic string) string {
	name, _, named := strings.Cut(topic, "/")
	if !named {
		return ""
	}
	return name
}

func TestWhatComesWhileABatchIsInFlightIsTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var batches [][]string
		p := publishing(t, func(messages []Outgoing) error {
			var topics []string
			for _, m := range messages {
				topics = append(topics, m.Topic)
			}
			batches = append(batches, topics)
			<-release
			return nil
		})
		var calls sync.WaitGroup
		for i := range 1000 {
			calls.Go(func() {
				if _, err := p.do(t.Context(), []Outgoing{{Topic: strconv.Itoa(i)}}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(release)
		calls.Wait()
		var sizes []int
		for _, b := range batches {
			sizes = append(sizes, len(b))
		}
		if !slices.Equal(sizes, []int{1, 256, 256, 256, 231}) {
			t.Errorf("batches of %v", sizes)
		}
		for i, topic := range slices.Concat(batches...) {
			if topic != strconv.Itoa(i) {
				t.Fatalf("message %s at %d", topic, i)
			}
		}
	})
}

func TestFullQueueRefusesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := publishing(t, func([]Outgoing) error { <-release; return nil })
		var calls sync.WaitGroup
		many := make([]Outgoing, MaxMessages)
		for range 1 + maxQueued/MaxMessages {
			calls.Go(func() {
				if _, err := p.do(t.Context(), many); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if _, err := p.do(t.Context(), many[:1]); !errors.Is(err, ErrUnavailable) {
			t.Errorf("beyond the bound: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		close(release)
		calls.Wait()
		if _, err := p.do(ctx, nil); err != nil {
			t.Errorf("nothing to publish: %v", err)
		}
	})
}

func TestBadPostFailsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("bad data")
		gate := make(chan struct{})
		p := publishing(t, func(messages []Outgoing) error {
			<-gate
			if slices.ContainsFunc(messages, func(m Outgoing) bool { return m.Topic == "3" }) {
				return bad
			}
			return nil
		})
		var calls sync.WaitGroup
		for i := range 6 {
			calls.Go(func() {
				_, err := p.do(t.Context(), []Outgoing{{Topic: fmt.Sprint(i)}})
				if errors.Is(err, bad) != (i == 3) {
					t.Errorf("%d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		close(gate)
		calls.Wait()
	})
}

func TestClosedPublisherAnswersWhoWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := publishing(t, func([]Outgoing) error { <-release; return nil })
		var calls sync.WaitGroup
		answers := make([]error, 3)
		for i := range answers {
			calls.Go(func() { _, answers[i] = p.do(t.Context(), []Outgoing{{Topic: "t"}}) })
			synctest.Wait()
		}
		p.close()
		close(release)
		calls.Wait()
		if answers[0] != nil || !errors.Is(answers[1], ErrClosed) || !errors.Is(answers[2], ErrClosed) {
			t.Errorf("in flight, waiting, waiting: %v", answers)
		}
		if _, err := p.do(t.Context(), []Outgoing{{Topic: "t"}}); !errors.Is(err, ErrClosed) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// slowly runs a publisher on a database that takes a while for each batch, and a flood of each of some senders, that has reached
// its bound. stop ends it.
func slowly(t *testing.T, takes time.Duration, senders int) (p *publisher, stop func()) {
	t.Helper()
	p = publishing(t, func([]Outgoing) error { <-time.After(takes); return nil })
	large := make([]byte, MaxData)
	ctx, cancel := context.WithCancel(t.Context())
	var flooding sync.WaitGroup
	for i := range senders {
		for range 128 {
			flooding.Go(func() {
				for ctx.Err() == nil {
					if _, err := p.do(ctx, []Outgoing{{Topic: fmt.Sprintf("flood-%d/t", i), Data: large}}); err != nil {
						<-time.After(takes)
					}
				}
			})
		}
	}
	<-time.After(20 * takes)
	return p, func() {
		cancel()
		flooding.Wait()
	}
}

// One tenant's flood, or that of many, is refused; calls and other tenants go on as if it were not there.
func TestFloodIsRefusedAlone(t *testing.T) {
	t.Parallel()
	const takes = 10 * time.Millisecond
	for _, senders := range []int{1, 6} {
		synctest.Test(t, func(t *testing.T) {
			p, stop := slowly(t, takes, senders)
			defer stop()
			refused := 0
			for range 50 {
				if _, err := p.do(t.Context(), []Outgoing{{Topic: "flood-0/t", Data: make([]byte, MaxData)}}); errors.Is(err, ErrUnavailable) {
					refused++
				}
			}
			if refused == 0 {
				t.Errorf("%d senders: the flood was not refused", senders)
			}
			for _, topic := range []string{"call.1", "quiet/t"} {
				for range 50 {
					began := time.Now()
					_, err := p.do(t.Context(), []Outgoing{{Topic: topic, Data: make([]byte, 2000)}})
					if took := time.Since(began); err != nil || took > 2*takes {
						t.Errorf("%d senders: %s after %v: %v", senders, topic, took, err)
					}
				}
			}
		})
	}
}

// Calls are not held up by however many tenants take their turns.
func TestProgramHasEverySecondTurn(t *testing.T) {
	t.Parallel()
	w := newSenders()
	for i := range 100 {
		w.add(strconv.Itoa(i), &post{messages: make([]Outgoing, 1)})
		w.add("", &post{messages: make([]Outgoing, 1)})
	}
	for i := range 200 {
		s := w.next()
		if own := s.name == ""; own != (i%2 == 1) {
			t.Fatalf("turn %d is of %q", i, s.name)
		}
		w.pass(s)
	}
	if w.next() != nil || w.count() != 0 || w.bytes+len(w.byName) != 0 {
		t.Errorf("left: %+v", w)
	}
}

// Whoever comes and goes: what waits of a sender keeps its order, and nothing is lost or beyond the bounds.
func TestSendersKeepTheirOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newSenders()
		waiting := map[string][]*post{}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e"}).Draw(t, "sender")
				item := &post{
					messages: make([]Outgoing, rapid.IntRange(1, MaxMessages).Draw(t, "messages")),
					bytes:    rapid.IntRange(0, 1<<20).Draw(t, "bytes"),
				}
				switch {
				case w.add(name, item):
					waiting[name] = append(waiting[name], item)
				case len(waiting[name]) == 0 && w.messages < maxQueued-MaxMessages && w.bytes < maxWaiting-1<<20:
					t.Fatalf("%q is refused, and has nothing waiting", name)
				}
			},
			"pass": func(t *rapid.T) {
				s := w.next()
				if s == nil {
					return
				}
				if s.posts[0] != waiting[s.name][0] {
					t.Fatalf("%q is out of order", s.name)
				}
				waiting[s.name] = waiting[s.name][1:]
				w.pass(s)
			},
			"": func(t *rapid.T) {
				messages := 0
				for name, posts := range waiting {
					bytes := 0
					for _, item := range posts {
						messages += len(item.messages)
						bytes += item.bytes
					}
					if len(posts) > 1 && bytes > maxSender {
						t.Fatalf("%d bytes wait of %q", bytes, name)
					}
				}
				if messages != w.count() || w.bytes > maxWaiting || w.messages > maxQueued {
					t.Fatalf("%d messages, counted %d; %d bytes", messages, w.count(), w.bytes)
				}
			},
		})
		for s := w.next(); s != nil; s = w.next() {
			w.pass(s)
		}
		if w.count()+w.bytes+w.own.bytes+len(w.turns)+len(w.byName) != 0 {
			t.Fatalf("left: %+v", w)
		}
	})
}
