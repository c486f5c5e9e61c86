package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Caller makes one call after another. One goroutine uses it.
type Caller interface {
	// Call makes one call and returns once it is answered. An error says that the answer was not the expected one; the
	// caller is not used again.
	Call(ctx context.Context) error
}

// Plan says what to measure and for how long.
type Plan struct {
	// Callers run at the same time, each in a closed loop.
	Callers []Caller
	// Warmup comes before the window and is not measured.
	Warmup time.Duration
	// Window is how long calls are measured. A call counts if it was made and answered within.
	Window time.Duration
	// Begin and End run at the edges of the window, while calls go on. Nil: nothing.
	Begin, End func()
}

// Run drives the callers until the window is over and each has its last answer. It returns an error, and no result,
// if any call failed or ctx ended.
func Run(ctx context.Context, plan Plan) (Result, error) {
	began := time.Now()
	from := began.Add(plan.Warmup)
	to := from.Add(plan.Window)
	tracks := make([]track, len(plan.Callers))
	var running sync.WaitGroup
	for i, caller := range plan.Callers {
		running.Go(func() { tracks[i].drive(ctx, caller, from, to) })
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		running.Wait()
	}()
	atEdge(finished, from, plan.Begin)
	atEdge(finished, to, plan.End)
	<-finished
	return join(ctx, tracks, plan.Window)
}

// atEdge runs hook at the time, or earlier if no caller is left.
func atEdge(finished <-chan struct{}, at time.Time, hook func()) {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-finished:
	}
	if hook != nil {
		hook()
	}
}

// track is what one caller did.
type track struct {
	took  []time.Duration // of calls within the window
	calls int             // answered, with those outside the window
	err   error
}

func (t *track) drive(ctx context.Context, caller Caller, from, to time.Time) {
	for now := time.Now(); now.Before(to) && ctx.Err() == nil; {
		if t.err = caller.Call(ctx); t.err != nil {
			return
		}
		t.calls++
		answered := time.Now()
		if !now.Before(from) && !answered.After(to) {
			t.took = append(t.took, answered.Sub(now))
		}
		now = answered
	}
}

// join adds the tracks up. Many callers usually fail for one reason: the first says it, and a number says how many.
func join(ctx context.Context, tracks []track, window time.Duration) (Result, error) {
	var took []time.Duration
	var failed []error
	calls := 0
	for _, t := range tracks {
		took = append(took, t.took...)
		calls += t.calls
		if t.err != nil {
			failed = append(failed, t.err)
		}
	}
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if len(failed) > 0 {
		return Result{}, fmt.Errorf("%d of %d callers failed, the first with: %w", len(failed), len(tracks), failed[0])
	}
	if len(took) == 0 {
		return Result{}, errors.New("no call was answered within the window: make the window longer")
	}
	return newResult(took, calls, window), nil
}
