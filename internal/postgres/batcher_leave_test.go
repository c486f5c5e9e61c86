package postgres

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

func TestCallerThatLeftIsNotAskedFor(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		gone, leave := context.WithCancel(r.Context())
		leave()
		r.failed(context.Canceled, r.askWithin(gone, 1))
		r.grounded()

		r.ask(2)
		f := r.next()
		left, stays := r.ask(3), r.ask(4)
		left.leave()
		r.failed(context.Canceled, left)
		f.land(2)
		f = r.next()
		r.carries(f, 4)
		f.land()
		r.placed(stays)
		r.abandoned()
	})
}

func TestContendedCallerThatLeftIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		c := r.ask(1)
		r.next().land(1)
		c.leave()
		r.failed(context.Canceled, c)
		pass(time.Minute)
		r.grounded()
	})
}

func TestResultsNobodyWaitsForAreOrphans(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		r.ask(0)
		f := r.next()
		hurried, cancel := context.WithTimeout(r.Context(), batchPatience/2)
		defer cancel()
		late, left, stays := r.askWithin(hurried, 1), r.ask(2), r.ask(3)
		f.land()
		f = r.next()
		left.leave()
		r.failed(context.Canceled, left)
		pass(batchPatience / 2)
		r.failed(berth.ErrUnavailable, late) // its outcome is unknown
		f.land()
		r.placed(stays)
		r.abandoned(10, 20)
	})
}

func TestErrorsNobodyWaitsForAreNoOrphans(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		c := r.ask(1)
		f := r.next()
		c.leave()
		synctest.Wait()
		f.crash(fmt.Errorf("%w: away", berth.ErrUnavailable))
		r.failed(context.Canceled, c)
		r.abandoned()
	})
}

func TestFullQueueRefusesAtOnce(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		r.ask(0)
		f := r.next()
		queued := make([]*caller, maxQueued)
		for i := range queued {
			c := &caller{n: i, answer: make(chan landed, 1)}
			queued[i] = c
			go func() {
				result, err := r.batcher.do(r.Context(), i)
				c.answer <- landed{result, err, time.Now()}
			}()
		}
		synctest.Wait()
		r.failed(berth.ErrUnavailable, r.ask(maxQueued))
		r.waits(queued...)
		f.land()
		for range maxQueued / berth.MaxBatch {
			r.next().land()
		}
		r.placed(queued...)
	})
}

func TestCloseRefusesWhatWaitsAndAwaitsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		contended := r.ask(1)
		r.next().land(1)
		flying := r.ask(2)
		f := r.next()
		waiting := r.ask(3)
		closed := make(chan struct{})
		go func() {
			r.batcher.close()
			close(closed)
		}()
		r.failed(berth.ErrUnavailable, contended, waiting, r.ask(4))
		select {
		case <-closed:
			r.Error("closed with a batch in flight")
		default:
		}
		f.land()
		r.placed(flying)
		<-closed
		r.batcher.close() // again is no harm
	})
}

func TestCloseRefusesWhatIsContendedMeanwhileAndAwaitsOrphans(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		release := make(chan struct{})
		r.batcher.orphan = func(_ context.Context, results []int) {
			<-release
			r.orphans <- results
		}
		r.ask(1)
		f := r.next()
		contended, left := r.ask(2), r.ask(3)
		f.land()
		f = r.next()
		left.leave()
		closed := make(chan struct{})
		go func() {
			r.batcher.close()
			close(closed)
		}()
		synctest.Wait()
		f.land(2)
		r.failed(berth.ErrUnavailable, contended)
		synctest.Wait()
		select {
		case <-closed:
			r.Error("closed before the orphans were seen to")
		default:
		}
		close(release)
		<-closed
		r.abandoned(30)
	})
}
