package backplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
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
	}, m)
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
