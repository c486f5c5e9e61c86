package backplane

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// roll remembers for a while which processes listen. To ask is a look at all connections of the database's server, so it is
// done once for all who want to know at a time, whatever topics they ask about.
type roll struct {
	read func(ctx context.Context) ([]int64, error)
	life time.Duration

	mu        sync.Mutex // guards the rest; not held while read runs
	processes []int64    // not changed
	at        time.Time  // when that was asked
	asking    *asking    // nil: nobody is
}

// asking is a look under way.
type asking struct {
	done      chan struct{} // closed at its end, when the rest is written
	err       error
	abandoned bool // it failed because who asked has gone
}

// call returns the processes that listened a moment ago.
func (r *roll) call(ctx context.Context) ([]int64, error) {
	for {
		processes, other, own := r.enter()
		switch {
		case own != nil:
			return r.ask(ctx, own)
		case other == nil:
			return processes, nil
		}
		select {
		case <-other.done:
			if other.err != nil && !other.abandoned {
				return nil, other.err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("ask who listens: %w", context.Cause(ctx))
		}
	}
}

// enter returns what is remembered; or else who is asking already; or else lets the caller ask.
func (r *roll) enter() (processes []int64, other, own *asking) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.asking != nil:
		return nil, r.asking, nil
	case !r.at.IsZero() && time.Since(r.at) < r.life:
		return r.processes, nil, nil
	}
	r.asking = &asking{done: make(chan struct{})}
	return nil, nil, r.asking
}

func (r *roll) ask(ctx context.Context, own *asking) ([]int64, error) {
	at := time.Now()
	processes, err := r.read(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.processes, r.at = processes, at
	}
	own.err, own.abandoned = err, err != nil && ctx.Err() != nil
	r.asking = nil
	close(own.done)
	return processes, err
}
