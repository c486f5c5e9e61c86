package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// batchPatience is how long a batch may be in flight before another may start beside it. A connection whose
	// packets vanish must not hold up those that work; more than one in flight is slower, so it is the exception.
	batchPatience = 250 * time.Millisecond
	// maxBatches bounds the batches in flight when some are slow.
	maxBatches = 4
	// batchTimeout bounds one statement. Its outcome is unknown afterwards.
	batchTimeout = 8 * time.Second
	// maxQueued bounds the requests that wait for a batch, and those that were contended. Beyond it they are refused as
	// unavailable.
	maxQueued = 8192
	// firstPause and longestPause bound the wait before a contended request is tried again. It doubles.
	firstPause   = 2 * time.Millisecond
	longestPause = 64 * time.Millisecond
)

// verdict is the answer of a batch to one of its requests.
type verdict[Res any] struct {
	result Res
	err    error
	again  bool // it met a lock: no answer yet, ask again shortly
}

// batcher gathers concurrent requests of one kind into statements. It never waits for company: a request that finds no
// batch in flight is one at once, and those that come meanwhile are the next. One batch is in flight at a time, up to
// berth.MaxBatch requests, since more compete for the same rows; see batchPatience for when there are more.
//
// A goroutine runs while there are requests, and close waits for it.
type batcher[Req, Res any] struct {
	// run answers each request of a batch, in order, or fails for all of them.
	run func(ctx context.Context, requests []Req) ([]verdict[Res], error)
	// orphan is told the results that nobody waits for any more, unless they are errors. It may take its time, and may
	// not use this batcher. Nil: it does not matter.
	orphan func(ctx context.Context, results []Res)

	running sync.WaitGroup
	arrived chan struct{} // holds one signal for a pump that waits for contended requests to become due

	mu     sync.Mutex // guards the rest
	fresh  []*call[Req, Res]
	again  []*call[Req, Res]
	active int // batches in flight that are not slow
	total  int // batches in flight
	closed bool
}

// call is one request and the caller that waits for it.
type call[Req, Res any] struct {
	request Req
	settled atomic.Bool // by the answer, or because the caller left: whichever came first
	answer  chan verdict[Res]
	tries   int
	due     time.Time // of the next try; zero: at once
}

func newBatcher[Req, Res any](
	run func(context.Context, []Req) ([]verdict[Res], error), orphan func(context.Context, []Res),
) *batcher[Req, Res] {
	return &batcher[Req, Res]{run: run, orphan: orphan, arrived: make(chan struct{}, 1)}
}

// do returns the answer to one request. A caller whose context ends leaves: what it would have been told goes to orphan.
func (b *batcher[Req, Res]) do(ctx context.Context, request Req) (Res, error) {
	c := &call[Req, Res]{request: request, answer: make(chan verdict[Res], 1)}
	var none Res
	if err := ctx.Err(); err != nil {
		return none, departed(err)
	}
	if err := b.add(ctx, c); err != nil {
		return none, err
	}
	select {
	case v := <-c.answer:
		return v.result, v.err
	case <-ctx.Done():
		if c.settled.CompareAndSwap(false, true) {
			return none, departed(ctx.Err())
		}
		v := <-c.answer // it came at the same time
		return v.result, v.err
	}
}

// departed is the error of a caller that waited for as long as it could: the outcome is unknown to it.
func departed(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %w", berth.ErrUnavailable, err)
}

func (b *batcher[Req, Res]) add(ctx context.Context, c *call[Req, Res]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed()
	}
	if len(b.fresh) >= maxQueued {
		return errFull()
	}
	b.fresh = append(b.fresh, c)
	b.start(ctx)
	select {
	case b.arrived <- struct{}{}:
	default:
	}
	return nil
}

// start begins another pump unless one is at it. The caller holds mu.
func (b *batcher[Req, Res]) start(ctx context.Context) {
	if b.active > 0 || b.total >= maxBatches || b.closed || len(b.fresh)+len(b.again) == 0 {
		return
	}
	b.active++
	b.total++
	ctx = context.WithoutCancel(ctx) // a batch is of many callers
	b.running.Go(func() { b.pump(ctx) })
}

// pump runs batches until there are no requests, or until another took over because its batch was slow.
func (b *batcher[Req, Res]) pump(ctx context.Context) {
	for {
		batch, pause, ended := b.take()
		if ended {
			return
		}
		if len(batch) == 0 {
			b.pause(pause)
			continue
		}
		if b.flight(ctx, batch) {
			return
		}
	}
}

// take removes the next batch: contended requests that are due, then others, first come first served. Contended ones are
// half of it at most while there are others, so that many of a locked tenant do not keep those out. Without any, it says
// how long to wait for one to become due, or that the pump has ended.
func (b *batcher[Req, Res]) take() (batch []*call[Req, Res], pause time.Duration, ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	var later []*call[Req, Res]
	pause = longestPause
	most := berth.MaxBatch
	if len(b.fresh) > 0 {
		most /= 2
	}
	for _, c := range b.again {
		switch {
		case c.settled.Load(): // the caller left
		case c.due.After(now) || len(batch) == most:
			later = append(later, c)
			pause = min(pause, max(0, c.due.Sub(now)))
		default:
			batch = append(batch, c)
		}
	}
	b.again = later
	taken := 0
	for _, c := range b.fresh {
		if len(batch) == berth.MaxBatch {
			break
		}
		taken++
		if !c.settled.Load() {
			batch = append(batch, c)
		}
	}
	b.fresh = b.fresh[taken:]
	if len(b.fresh) == 0 {
		b.fresh = nil // let go of the array
	}
	if len(batch) == 0 && len(later) == 0 {
		b.active--
		b.total--
		return nil, 0, true
	}
	return batch, pause, false
}

func (b *batcher[Req, Res]) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.arrived:
	}
}

// flight runs one batch, and reports whether another pump took over meanwhile.
func (b *batcher[Req, Res]) flight(ctx context.Context, batch []*call[Req, Res]) (overtaken bool) {
	slow := time.AfterFunc(batchPatience, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.active--
		b.start(ctx)
	})
	b.execute(ctx, batch)
	if slow.Stop() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total--
	b.start(ctx)
	return true
}

// execute runs a batch and answers its callers. A batch that fails for a reason of its own is run again one by one, so
// that a bad request fails alone.
func (b *batcher[Req, Res]) execute(ctx context.Context, batch []*call[Req, Res]) {
	requests := make([]Req, len(batch))
	for i, c := range batch {
		requests[i] = c.request
	}
	limited, cancel := context.WithTimeout(ctx, batchTimeout)
	verdicts, err := b.run(limited, requests)
	cancel()
	switch {
	case err == nil:
	case rolledBack(err):
		verdicts = make([]verdict[Res], len(batch))
		for i := range verdicts {
			verdicts[i].again = true
		}
	case len(batch) > 1 && !errors.Is(err, berth.ErrUnavailable):
		for _, c := range batch {
			b.execute(ctx, []*call[Req, Res]{c})
		}
		return
	default:
		verdicts = make([]verdict[Res], len(batch))
		for i := range verdicts {
			verdicts[i].err = err
		}
	}
	b.settle(ctx, batch, verdicts)
}

// settle answers those that have an answer, and queues the others again, at the front.
func (b *batcher[Req, Res]) settle(ctx context.Context, batch []*call[Req, Res], verdicts []verdict[Res]) {
	var contended []*call[Req, Res]
	var orphans []Res
	for i, c := range batch {
		v := verdicts[i]
		if v.again {
			c.due = time.Now().Add(min(firstPause<<min(c.tries, 10), longestPause))
			c.tries++
			contended = append(contended, c)
			continue
		}
		if c.settled.CompareAndSwap(false, true) {
			c.answer <- v
		} else if v.err == nil {
			orphans = append(orphans, v.result)
		}
	}
	if len(orphans) > 0 && b.orphan != nil {
		b.running.Go(func() { b.orphan(ctx, orphans) })
	}
	if len(contended) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		refuse(contended, errClosed())
		return
	}
	b.again = append(b.again, contended...) // behind those that have waited for longer
	if len(b.again) > maxQueued {
		refuse(b.again[maxQueued:], errFull())
		b.again = b.again[:maxQueued]
	}
	b.start(ctx)
}

// close refuses what waits and returns once the batches in flight are answered.
func (b *batcher[Req, Res]) close() {
	b.mu.Lock()
	b.closed = true
	waiting := append(b.fresh, b.again...)
	b.fresh, b.again = nil, nil
	b.mu.Unlock()
	refuse(waiting, errClosed())
	b.running.Wait()
}

// refuse answers callers that get no batch.
func refuse[Req, Res any](calls []*call[Req, Res], err error) {
	for _, c := range calls {
		if c.settled.CompareAndSwap(false, true) {
			c.answer <- verdict[Res]{err: err}
		}
	}
}

func errFull() error {
	return fmt.Errorf("%w: %d requests wait already", berth.ErrUnavailable, maxQueued)
}

func errClosed() error { return fmt.Errorf("%w: the store is closed", berth.ErrUnavailable) }
