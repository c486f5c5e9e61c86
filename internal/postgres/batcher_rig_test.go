package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// flight is one batch on its way: the test decides how it lands.
type flight struct {
	requests []int
	at       time.Time
	landing  chan landing
}

type landing struct {
	verdicts []verdict[int]
	err      error
}

// runway is a batcher of numbers, in a bubble of synctest. The answer to n is 10n. Its flights come in the order of
// their starts, and it stops when the test ends.
type runway struct {
	*testing.T

	batcher *batcher[int, int]
	flights chan *flight
	orphans chan []int
}

// onRunway runs test in a bubble. A goroutine that outlives the batcher's close fails it.
func onRunway(t *testing.T, test func(r *runway)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &runway{T: t, flights: make(chan *flight, 64), orphans: make(chan []int, 64)}
		r.batcher = newBatcher(r.run, func(_ context.Context, results []int) { r.orphans <- results })
		test(r)
		r.batcher.close()
	})
}

func (r *runway) run(ctx context.Context, requests []int) ([]verdict[int], error) {
	f := &flight{requests: slices.Clone(requests), at: time.Now(), landing: make(chan landing, 1)}
	r.flights <- f
	select {
	case l := <-f.landing:
		return l.verdicts, l.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", berth.ErrUnavailable, ctx.Err())
	}
}

// caller waits for the answer to one request.
type caller struct {
	n      int
	leave  context.CancelFunc
	answer chan landed
}

type landed struct {
	result int
	err    error
	at     time.Time
}

// ask asks for n, and returns once it is in flight or waits for it.
func (r *runway) ask(n int) *caller { return r.askWithin(r.Context(), n) }

func (r *runway) askWithin(ctx context.Context, n int) *caller {
	ctx, leave := context.WithCancel(ctx)
	c := &caller{n: n, leave: leave, answer: make(chan landed, 1)}
	go func() {
		result, err := r.batcher.do(ctx, n)
		c.answer <- landed{result, err, time.Now()}
	}()
	synctest.Wait()
	return c
}

func (r *runway) askAll(from, to int) []*caller {
	var callers []*caller
	for n := from; n <= to; n++ {
		callers = append(callers, r.ask(n))
	}
	return callers
}

// next is the flight that starts now.
func (r *runway) next() *flight {
	r.Helper()
	synctest.Wait()
	select {
	case f := <-r.flights:
		return f
	default:
		r.Fatal("no batch is in flight")
		return nil
	}
}

// await is the next flight, whenever it starts.
func (r *runway) await() *flight {
	r.Helper()
	select {
	case f := <-r.flights:
		return f
	case <-time.After(time.Hour):
		r.Fatal("no batch within an hour")
		return nil
	}
}

// carries expects a flight of these requests.
func (r *runway) carries(f *flight, want ...int) {
	r.Helper()
	if !slices.Equal(f.requests, want) {
		r.Errorf("a batch of %v, want %v", f.requests, want)
	}
}

// grounded expects that no other batch starts now.
func (r *runway) grounded() {
	r.Helper()
	synctest.Wait()
	select {
	case f := <-r.flights:
		r.Errorf("a batch of %v, want none yet", f.requests)
	default:
	}
}

// pass lets time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// land answers every request of a flight but the contended ones.
func (f *flight) land(contended ...int) {
	verdicts := make([]verdict[int], len(f.requests))
	for i, n := range f.requests {
		verdicts[i] = verdict[int]{result: 10 * n, again: slices.Contains(contended, n)}
	}
	f.landing <- landing{verdicts: verdicts}
}

func (f *flight) crash(err error) { f.landing <- landing{err: err} }

// placed expects that all callers have their own answers by now.
func (r *runway) placed(callers ...*caller) {
	r.Helper()
	for _, c := range callers {
		if a := r.answerOf(c); a.err != nil || a.result != 10*c.n {
			r.Errorf("the answer to %d is %d, %v", c.n, a.result, a.err)
		}
	}
}

// failed expects that all callers have this error by now.
func (r *runway) failed(want error, callers ...*caller) {
	r.Helper()
	for _, c := range callers {
		if a := r.answerOf(c); !errors.Is(a.err, want) {
			r.Errorf("the answer to %d is %d, %v, want %v", c.n, a.result, a.err, want)
		}
	}
}

func (r *runway) answerOf(c *caller) landed {
	r.Helper()
	synctest.Wait()
	select {
	case a := <-c.answer:
		return a
	default:
		r.Fatalf("no answer to %d yet", c.n)
		return landed{}
	}
}

// waits expects that none has an answer.
func (r *runway) waits(callers ...*caller) {
	r.Helper()
	synctest.Wait()
	for _, c := range callers {
		if len(c.answer) > 0 {
			r.Errorf("%d has an answer: %+v", c.n, <-c.answer)
		}
	}
}

// abandoned expects that these results went to orphan.
func (r *runway) abandoned(want ...int) {
	r.Helper()
	synctest.Wait()
	var got []int
	for len(r.orphans) > 0 {
		got = append(got, <-r.orphans...)
	}
	if !slices.Equal(got, want) {
		r.Errorf("orphans %v, want %v", got, want)
	}
}
