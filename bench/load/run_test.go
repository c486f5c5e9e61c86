package load_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthdev/berth/bench/load"
)

// caller answers each call after a while, and may fail at one of them.
type caller struct {
	takes  time.Duration
	failAt int // counted from 1; zero: never
	calls  int
}

var errAnswer = errors.New("wrong answer")

func (c *caller) Call(ctx context.Context) error {
	c.calls++
	if c.calls == c.failAt {
		return errAnswer
	}
	select {
	case <-time.After(c.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestOnlyCallsWithinTheWindowAreMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fast, slow := &caller{takes: 10 * time.Millisecond}, &caller{takes: 300 * time.Millisecond}
		result, err := load.Run(t.Context(), load.Plan{
			Callers: []load.Caller{fast, slow}, Warmup: 500 * time.Millisecond, Window: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		// The slow one is called at 0, 300, 600, 900 and 1200 ms: two of these calls are within 500 to 1500 ms, and one
		// ends right there.
		if want := 100 + 3; result.Calls != want || result.Rate != float64(want) {
			t.Errorf("%d calls, %v a second, want %d", result.Calls, result.Rate, want)
		}
		if result.Total != fast.calls+slow.calls {
			t.Errorf("total %d, want %d: the store holds those outside the window too", result.Total, fast.calls+slow.calls)
		}
		if result.P50 != fast.takes || result.P99 != slow.takes {
			t.Errorf("percentiles %v and %v, want %v and %v", result.P50, result.P99, fast.takes, slow.takes)
		}
	})
}

func TestHooksRunAtTheEdgesOfTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var begin, end time.Duration
		_, err := load.Run(t.Context(), load.Plan{
			Callers: []load.Caller{&caller{takes: 7 * time.Millisecond}}, Warmup: time.Second, Window: 2 * time.Second,
			Begin: func() { begin = time.Since(began) }, End: func() { end = time.Since(began) },
		})
		if err != nil || begin != time.Second || end != 3*time.Second {
			t.Errorf("hooks at %v and %v, %v", begin, end, err)
		}
	})
}

func TestRunWithAWrongAnswerHasNoResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, bad := &caller{takes: time.Millisecond}, &caller{takes: time.Millisecond, failAt: 3}
		result, err := load.Run(t.Context(), load.Plan{Callers: []load.Caller{good, bad}, Window: time.Second})
		if !errors.Is(err, errAnswer) || result != (load.Result{}) {
			t.Errorf("%+v, %v", result, err)
		}
		if bad.calls != bad.failAt {
			t.Errorf("called %d times, want no more after the failure at %d", bad.calls, bad.failAt)
		}
	})
}

func TestRunEndsWhenNoCallerIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := load.Run(t.Context(), load.Plan{Callers: []load.Caller{&caller{failAt: 1}}, Window: time.Hour})
		if !errors.Is(err, errAnswer) || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := load.Run(ctx, load.Plan{Callers: []load.Caller{&caller{takes: time.Minute}}, Window: time.Hour})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestWindowWithoutAnswersIsNoResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, err := load.Run(t.Context(), load.Plan{Callers: []load.Caller{&caller{takes: time.Minute}}, Window: time.Second})
		if err == nil {
			t.Error("a rate of nothing was reported")
		}
	})
}
