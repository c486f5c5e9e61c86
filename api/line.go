package api

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// line lets rejoins through at a rate, one after the other. A worker's end brings all its clients at once, and what they
// cost the database must leave room for everybody else.
type line struct {
	limit   *rate.Limiter
	longest time.Duration // that anybody waits
	waiting atomic.Int64
}

// newLine lets so many through per second, and a tenth of that at once.
func newLine(perSecond float64, longest time.Duration) *line {
	return &line{limit: rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond/10))), longest: longest}
}

// await returns when it is the caller's turn. Who would wait for too long is refused at once, and told how long the line is.
func (l *line) await(ctx context.Context) error {
	turn := l.limit.Reserve()
	wait := turn.Delay()
	if wait == 0 {
		return nil
	}
	if wait > l.longest {
		turn.Cancel()
		refusal := unavailable("Too many sessions are rejoined at once; ask again.")
		refusal.RetryAfter = wait
		return refusal
	}
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		turn.Cancel()
		return ctx.Err()
	}
}

// waits is how many wait.
func (l *line) waits() int { return int(l.waiting.Load()) }
