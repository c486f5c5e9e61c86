package worker

import (
	"context"
	"sync"
	"time"
)

const (
	awakeTick = 250 * time.Millisecond
	awakeHole = 2 * time.Second
)

// Awake knows since when this process runs without a pause (SIGSTOP, a frozen machine). The monotonic clock runs on
// during a pause, so a hole between two looks shows it.
type Awake struct {
	now func() time.Time

	mu    sync.Mutex
	last  time.Time // of the looks
	since time.Time
}

// NewAwake returns an Awake that begins now. A nil clock is time.Now.
func NewAwake(now func() time.Time) *Awake {
	if now == nil {
		now = time.Now
	}
	begin := now()
	return &Awake{now: now, last: begin, since: begin}
}

// Run looks at the clock until ctx is done. Without it every quiet spell looks like a pause.
func (a *Awake) Run(ctx context.Context) {
	tick := time.NewTicker(awakeTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.Since()
		}
	}
}

// Since returns when the process began or last woke. It looks at the clock itself, because after a pause an overdue
// deadline may ask before the ticker did.
func (a *Awake) Since() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if now.Sub(a.last) > awakeHole {
		a.since = now
	}
	a.last = now
	return a.since
}
