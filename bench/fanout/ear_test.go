package fanout

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func newEar(w *window) *ear {
	return &ear{window: w, answered: make(chan struct{}), answers: func(message []byte) int {
		if string(message) == "subscribed" {
			return 1
		}
		return 0
	}}
}

func TestMessageSaysWhenItWasPublished(t *testing.T) {
	t.Parallel()
	at := time.Unix(0, 1_764_500_000_123_456_789)
	for _, size := range []int{minSize, 128, 5000} {
		message := messageOf(at, size)
		var body struct{ At int64 }
		if err := json.Unmarshal(message, &body); err != nil || body.At != at.UnixNano() || len(message) != size {
			t.Errorf("%d bytes of %d: %s, %v", len(message), size, message, err)
		}
	}
}

func TestEarCountsWhatWasPublishedWithinTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &window{}
		w.never()
		e := newEar(w)
		e.hear(messageOf(time.Now(), 50)) // before the window
		e.hear([]byte("subscribed"))
		e.hear([]byte("subscribed")) // the library may answer twice
		<-e.answered
		begin := time.Now()
		w.from.Store(begin.UnixNano())
		w.to.Store(begin.Add(time.Second).UnixNano())
		early, late := messageOf(begin.Add(-1), 50), messageOf(begin.Add(time.Second), 50)
		first, second := messageOf(begin, 50), messageOf(begin.Add(5*time.Millisecond), 50)
		<-time.After(10 * time.Millisecond) // the clock is synctest's
		e.hear(slices.Concat([]byte(`{"push":`), first, []byte("}\n{\"push\":"), second, []byte("}")))
		e.hear(early)
		e.hear(late)
		if e.heard.Load() != 2 || !slices.Equal(e.took, []time.Duration{10 * time.Millisecond, 5 * time.Millisecond}) {
			t.Errorf("heard %d, which took %v", e.heard.Load(), e.took)
		}
	})
}

func TestPublisherKeepsItsRateWhateverTheServerDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &window{}
		begin := time.Now()
		w.from.Store(begin.Add(time.Second).UnixNano())
		w.to.Store(begin.Add(3 * time.Second).UnixNano())
		var mu sync.Mutex
		topics := map[int]int{}
		p := publish(t.Context(), shape{members: 20, topics: 10, rate: 100}, w, func(_ context.Context, topic int, _ time.Time) error {
			<-time.After(300 * time.Millisecond) // a slow server, by synctest's clock
			mu.Lock()
			defer mu.Unlock()
			topics[topic]++
			return nil
		})
		<-time.After(4*time.Second - time.Millisecond) // the clock is synctest's
		if err := p.close(); err != nil {
			t.Fatal(err)
		}
		for topic := range 10 {
			if topics[topic] != 40 || p.counts[topic].Load() != 20 {
				t.Errorf("topic %d: %d messages, %d of the window, want 40 and 20", topic, topics[topic], p.counts[topic].Load())
			}
		}
	})
}

func TestPublisherTellsOfTheFirstFailure(t *testing.T) {
	t.Parallel()
	failed := errors.New("no")
	tried := make(chan struct{}, backlog)
	p := publish(t.Context(), shape{members: 2, topics: 1, rate: 1000}, &window{}, func(context.Context, int, time.Time) error {
		tried <- struct{}{}
		return failed
	})
	<-tried
	if err := p.close(); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
}
