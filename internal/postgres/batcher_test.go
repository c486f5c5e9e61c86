package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
)

func TestLoneRequestIsABatchAtOnce(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		for n := range 3 {
			asked := time.Now()
			c := r.ask(n)
			f := r.next()
			r.carries(f, n)
			if !f.at.Equal(asked) {
				r.Errorf("it waited %v for company", f.at.Sub(asked))
			}
			f.land()
			r.placed(c)
		}
	})
}

func TestRequestsThatComeMeanwhileAreTheNextBatch(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		first := r.ask(1)
		f := r.next()
		rest := r.askAll(2, 5)
		r.grounded()
		f.land()
		r.placed(first)
		f = r.next()
		r.carries(f, 2, 3, 4, 5)
		r.waits(rest...)
		f.land()
		r.placed(rest...)
		r.grounded()
	})
}

func TestBatchIsBoundedAndFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		callers := []*caller{r.ask(0)}
		f := r.next()
		callers = append(callers, r.askAll(1, berth.MaxBatch+10)...)
		var taken []int
		for _, want := range []int{1, berth.MaxBatch, 10} {
			if len(f.requests) != want {
				r.Errorf("a batch of %d, want %d", len(f.requests), want)
			}
			taken = append(taken, f.requests...)
			f.land()
			if want != 10 {
				f = r.next()
			}
		}
		if !slices.IsSorted(taken) {
			r.Error("they were not taken in the order in which they came")
		}
		r.placed(callers...)
	})
}

func TestContendedRequestIsAskedAgainWithGrowingPauses(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		c := r.ask(1)
		f := r.next()
		pauses := []time.Duration{firstPause}
		for pauses[len(pauses)-1] < longestPause {
			pauses = append(pauses, 2*pauses[len(pauses)-1])
		}
		for _, pause := range append(pauses, longestPause, longestPause) { // it does not grow for ever
			landed := time.Now()
			f.land(1)
			f = r.await()
			r.carries(f, 1)
			if waited := f.at.Sub(landed); waited != pause {
				r.Errorf("asked again after %v, want %v", waited, pause)
			}
		}
		r.waits(c)
		f.land()
		r.placed(c)
	})
}

func TestContendedRequestDoesNotHoldUpOthersAndComesFirstWhenDue(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		contended := r.ask(1)
		r.next().land(1)
		other := r.ask(2)
		f := r.next() // at once, not when the first is due
		r.carries(f, 2)
		third := r.ask(3)
		pass(firstPause)
		f.land()
		f = r.next()
		r.carries(f, 1, 3)
		f.land()
		r.placed(contended, other, third)
	})
}

// A tenant whose row is locked for long may have more requests than a batch holds. Those of others go on.
func TestContendedRequestsDoNotStarveFreshOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const stuck, statement = 4 * berth.MaxBatch, 30 * time.Millisecond
		b := newBatcher(func(_ context.Context, requests []int) ([]verdict[int], error) {
			<-time.After(statement)
			verdicts := make([]verdict[int], len(requests))
			for i, n := range requests {
				verdicts[i] = verdict[int]{result: n, again: n < stuck}
			}
			return verdicts, nil
		}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for n := range stuck {
			callers.Go(func() {
				if _, err := b.do(ctx, n); !errors.Is(err, context.Canceled) {
					t.Errorf("a contended request is answered %v", err)
				}
			})
		}
		pass(time.Second)
		for range 5 {
			asked := time.Now()
			patient, leave := context.WithTimeout(ctx, time.Minute)
			_, err := b.do(patient, stuck)
			if took := time.Since(asked); err != nil || took > 3*statement {
				t.Errorf("a fresh request: %v after %v beside %d contended ones, a statement takes %v", err, took, stuck, statement)
			}
			leave()
		}
		cancel()
		callers.Wait()
		b.close()
	})
}

func TestContendedRequestsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const stuck, statement = 4 * berth.MaxBatch, 30 * time.Millisecond
		tries := make([]int, stuck)
		b := newBatcher(func(_ context.Context, requests []int) ([]verdict[int], error) {
			<-time.After(statement)
			verdicts := make([]verdict[int], len(requests))
			for i, n := range requests {
				if verdicts[i].again = n < stuck; n < stuck {
					tries[n]++
				}
			}
			return verdicts, nil
		}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for n := range stuck {
			callers.Go(func() { _, _ = b.do(ctx, n) }) // it is canceled
		}
		for n := range 500 { // others come all the time
			callers.Go(func() { _, _ = b.do(ctx, stuck+n) })
			pass(10 * time.Millisecond)
		}
		cancel()
		callers.Wait()
		b.close()
		if least, most := slices.Min(tries), slices.Max(tries); most > 2*least {
			t.Errorf("asked again %d to %d times", least, most)
		}
	})
}

func TestSlowBatchLetsOthersStartUpToABound(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		var flights []*flight
		var callers []*caller
		for n := range maxBatches {
			callers = append(callers, r.ask(n))
			if n > 0 {
				pass(batchPatience - time.Nanosecond)
				r.grounded()
				pass(time.Nanosecond)
			}
			flights = append(flights, r.next())
			r.carries(flights[n], n)
		}
		pass(2 * batchPatience)
		late := r.askAll(maxBatches, maxBatches+1)
		pass(2 * batchPatience)
		r.grounded()
		flights[1].land()
		last := r.next()
		r.carries(last, maxBatches, maxBatches+1)
		last.land()
		r.placed(append(late, callers[1])...)
		for _, i := range []int{0, 2, 3} {
			flights[i].land()
			r.placed(callers[i])
		}
		c := r.ask(9) // and they are one at a time again
		f := r.next()
		r.askAll(10, 11)
		r.grounded()
		f.land()
		r.placed(c)
		r.next().land()
	})
}

func TestBadRequestFailsAlone(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		bad := errors.New("no such thing")
		r.ask(0)
		f := r.next()
		callers := r.askAll(1, 3)
		f.land()
		f = r.next()
		r.carries(f, 1, 2, 3)
		f.crash(bad)
		for n := 1; n <= 3; n++ {
			f = r.next()
			r.carries(f, n)
			if n == 2 {
				f.crash(bad)
			} else {
				f.land()
			}
		}
		r.placed(callers[0], callers[2])
		r.failed(bad, callers[1])
		r.grounded()
	})
}

func TestBatchThatLostToAnotherIsRepeated(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40001", "40P01"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			onRunway(t, func(r *runway) {
				r.ask(0)
				f := r.next()
				callers := r.askAll(1, 3)
				f.land()
				r.next().crash(fmt.Errorf("claim: %w", fault(&pgconn.PgError{Code: code})))
				r.waits(callers...)
				f = r.await()
				r.carries(f, 1, 2, 3)
				f.land()
				r.placed(callers...)
			})
		})
	}
}

// The outcome is unknown, so it is for the caller to ask again.
func TestUnavailableDatabaseIsTheAnswerToAll(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		r.ask(0)
		f := r.next()
		callers := r.askAll(1, 3)
		f.land()
		r.next().crash(fault(&pgconn.PgError{Code: "57P01"}))
		r.failed(berth.ErrUnavailable, callers...)
		r.grounded()
	})
}

func TestStatementThatNeverEndsIsUnavailable(t *testing.T) {
	t.Parallel()
	onRunway(t, func(r *runway) {
		began := time.Now()
		c := r.ask(1)
		a := <-c.answer
		if !errors.Is(a.err, berth.ErrUnavailable) || a.at.Sub(began) != batchTimeout {
			r.Errorf("got %v after %v", a.err, a.at.Sub(began))
		}
	})
}

// TestEveryRequestIsAnsweredOnceWithItsOwnAnswer lets statements be slow, contended, lost and wrong at random, and callers
// leave: whoever stays gets the answer to what it asked or an error that was its own, and each result goes to its caller or
// to orphan.
func TestEveryRequestIsAnsweredOnceWithItsOwnAnswer(t *testing.T) {
	t.Parallel()
	random := testkit.Rand(t)
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the rest
		made, told, orphaned := map[int]int{}, map[int]int{}, map[int]int{}
		draw := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return random.IntN(n)
		}
		chance := func(percent int) bool { return draw(100) < percent }
		count := func(counts map[int]int, n int) {
			mu.Lock()
			defer mu.Unlock()
			counts[n]++
		}
		bad := errors.New("bad request")
		b := newBatcher(func(ctx context.Context, requests []int) ([]verdict[int], error) {
			<-time.After(2 * time.Millisecond)
			if chance(1) {
				<-time.After(2 * batchPatience) // others start beside it
			}
			switch {
			case slices.ContainsFunc(requests, func(n int) bool { return n%1000 == 999 }):
				return nil, bad
			case chance(5):
				return nil, fault(&pgconn.PgError{Code: "40P01"})
			case chance(5):
				return nil, fmt.Errorf("%w: away", berth.ErrUnavailable)
			}
			verdicts := make([]verdict[int], len(requests))
			for i, n := range requests {
				if verdicts[i] = (verdict[int]{result: n, again: chance(20)}); !verdicts[i].again {
					count(made, n)
				}
			}
			return verdicts, nil
		}, func(_ context.Context, results []int) {
			for _, n := range results {
				count(orphaned, n)
			}
		})
		var callers sync.WaitGroup
		for n := range 5000 {
			ctx, cancel := context.WithCancel(t.Context())
			callers.Go(func() {
				defer cancel()
				if chance(20) {
					time.AfterFunc(time.Duration(draw(8000))*time.Microsecond, cancel)
				}
				switch result, err := b.do(ctx, n); {
				case err == nil && result == n:
					count(told, n)
				case errors.Is(err, bad) && n%1000 == 999, errors.Is(err, berth.ErrUnavailable), errors.Is(err, context.Canceled):
				default:
					t.Errorf("the answer to %d is %d, %v", n, result, err)
				}
			})
			if chance(5) {
				<-time.After(20 * time.Millisecond)
			}
		}
		callers.Wait()
		b.close()
		for n, times := range made {
			if times != 1 || told[n]+orphaned[n] != 1 {
				t.Errorf("%d was made %d times, told %d times, and orphaned %d times", n, times, told[n], orphaned[n])
			}
		}
		if len(told)+len(orphaned) != len(made) {
			t.Errorf("%d told and %d orphaned of %d", len(told), len(orphaned), len(made))
		}
		if len(told) < 1000 || len(orphaned) < 10 {
			t.Errorf("%d told and %d orphaned: the test has lost its point", len(told), len(orphaned))
		}
	})
}
