package backplane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// logs is the database as a historian reads it: topics with their messages, in pages of at most limit.
type logs struct {
	topics map[string]*history
	limit  int
	reads  int
}

func (l *logs) read(_ context.Context, topics []string, after []int64) ([]page, error) {
	l.reads++
	pages := make([]page, len(topics))
	for i, topic := range topics {
		h := l.topics[topic]
		if h == nil {
			continue
		}
		p := page{epoch: h.epoch, first: h.first, last: h.last}
		for offset := max(after[i]+1, h.first); offset <= h.last && len(p.messages) < l.limit; offset++ {
			p.messages = append(p.messages, h.message(offset))
		}
		pages[i] = p
	}
	return pages, nil
}

func newTestHistorian(
	t interface{ Fatal(...any) }, read func(context.Context, []string, []int64) ([]page, error),
) *historian {
	m, err := newMetrics(nil, func() int { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	return newHistorian(read, m)
}

// However wants are shared, each gets the beginning of what is kept after its own offset: one message at least if there is any.
func TestSharedPagesAreExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &logs{topics: map[string]*history{}, limit: rapid.IntRange(1, pageMessages).Draw(t, "limit")}
		for i := range 3 {
			h := history{epoch: fmt.Sprint("epoch", i), last: rapid.Int64Range(0, 300).Draw(t, "last")}
			h.first = rapid.Int64Range(1, h.last+1).Draw(t, "first")
			l.topics[fmt.Sprint(i)] = &h
		}
		h := newTestHistorian(t, l.read)
		var wants []*want
		for range rapid.IntRange(1, 100).Draw(t, "wants") {
			wants = append(wants, &want{
				topic: fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "topic")), after: rapid.Int64Range(0, 400).Draw(t, "after"),
				answer: make(chan recall, 1),
			})
		}
		h.serve(t.Context(), append([]*want(nil), wants...))
		for _, w := range wants {
			got, kept := <-w.answer, l.topics[w.topic]
			if kept == nil {
				if !errors.Is(got.err, ErrUnavailable) {
					t.Fatalf("of a topic that is lost: %+v", got)
				}
				continue
			}
			next := max(w.after+1, kept.first)
			if got.err != nil || got.page.last != kept.last || next <= kept.last && len(got.page.messages) == 0 {
				t.Fatalf("after %d of %+v: %+v", w.after, kept, got)
			}
			for i, m := range got.page.messages {
				if m.Position != (Position{Epoch: kept.epoch, Offset: next + int64(i)}) {
					t.Fatalf("after %d message %d is %+v", w.after, i, m)
				}
			}
		}
	})
}

// Whoever asks while a statement runs may want what that did not see.
func TestNobodyGetsWhatWasReadBeforeItAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &logs{topics: map[string]*history{"t": {epoch: "one", first: 1, last: 1}}, limit: pageMessages}
		release := make(chan struct{})
		h := newTestHistorian(t, func(ctx context.Context, topics []string, after []int64) ([]page, error) {
			pages, err := l.read(ctx, topics, after)
			<-release
			return pages, err
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { h.run(ctx) })
		var answers atomic.Int64
		ask := func(want int64) {
			running.Go(func() {
				got, err := h.page(t.Context(), "t", 0)
				if err != nil || got.last != want {
					t.Errorf("read up to %d: %v, want %d", got.last, err, want)
				}
				answers.Add(1)
			})
		}
		ask(1)
		synctest.Wait()
		l.topics["t"].last = 2
		for range 1000 {
			ask(2)
		}
		synctest.Wait()
		release <- struct{}{}
		release <- struct{}{}
		synctest.Wait()
		if answers.Load() != 1001 || l.reads != 2 {
			t.Errorf("%d answers by %d statements", answers.Load(), l.reads)
		}
		cancel()
		running.Wait()
		if _, err := h.page(t.Context(), "t", 0); !errors.Is(err, ErrClosed) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestHistoryThatCannotBeReadIsAnErrorForAllWhoWait(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	h := newTestHistorian(t, func(context.Context, []string, []int64) ([]page, error) { return nil, away })
	var wants []*want
	for i := range 3 * maxTasks {
		wants = append(wants, &want{topic: fmt.Sprint(i), answer: make(chan recall, 1)})
	}
	h.serve(t.Context(), append([]*want(nil), wants...))
	for _, w := range wants {
		if got := <-w.answer; !errors.Is(got.err, away) {
			t.Fatal(got.err)
		}
	}
}
