package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// turnoverAge is how long an estimate of turnover is good for.
	turnoverAge = time.Second
	// turnoverWait bounds the read of an estimate, for which a refusal waits.
	turnoverWait = 500 * time.Millisecond
	// idleHint is the wait suggested when no slot was freed within the last minute.
	idleHint = 5 * time.Second
	// seatHint is the wait suggested when no worker takes the connections of a call, which take no slot that could be awaited.
	// What is usual ends within it: a worker that starts, or is late once.
	seatHint = 3 * time.Second
	// longestHint is the longest wait that is suggested.
	longestHint = 300 * time.Second
)

// turnover estimates when a refused start is worth another try: each refusal of this process takes a place in an
// imagined line, which moves by as many places a second as slots were freed lately. Callers who were refused together
// are thus told to come back one after another, at the pace at which there will be room, behind those who wait.
type turnover struct {
	store *Store

	mu      sync.Mutex // guards the rest
	readAt  time.Time
	rates   map[string]float64   // slots freed per second by region; "" is all of them
	waiting map[string]int       // starts in the queue by first region; "" is all of them
	lines   map[string]imaginary // by region asked for; "" is any
}

// imaginary is a line that moves by itself.
type imaginary struct {
	length float64
	at     time.Time
}

// refusal is at_capacity with the wait that is worth it for this start.
func (t *turnover) refusal(ctx context.Context, start berth.Start) *berth.Refusal {
	refusal := errAtCapacity()
	if start.Kind == berth.KindCall { // which takes no slot, and so no place in the line for one
		refusal.Detail = "No worker that this call may use takes connections now."
		refusal.RetryAfter = seatHint
		return refusal
	}
	t.refresh(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	region := start.Region
	if start.Spill {
		region = "" // any of several may free the slot
	}
	refusal.RetryAfter = t.hint(region, time.Now())
	return refusal
}

// hint takes a place in the line of a region.
func (t *turnover) hint(region string, now time.Time) time.Duration {
	rate := t.rates[region]
	if rate <= 0 {
		delete(t.lines, region) // it would grow with each repeated try, and not move
		return idleHint
	}
	line := t.lines[region]
	line.length = max(0, line.length-rate*now.Sub(line.at).Seconds()) + 1
	line.at = now
	t.lines[region] = line
	ahead := line.length + float64(t.waiting[region])
	return min(longestHint, max(time.Second, seconds(ahead/rate)))
}

type turnoverRow struct {
	Region    string
	PerSecond float64
	Waiting   int
}

// refresh reads the database at most once a second, for one caller; the others take the last estimate meanwhile. Without
// an answer it stands.
func (t *turnover) refresh(ctx context.Context) {
	if !t.due() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, turnoverWait)
	defer cancel()
	rows, err := collect[turnoverRow](ctx, t.store, "turnover_read")
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rates, t.waiting = map[string]float64{}, map[string]int{}
	for _, row := range rows {
		t.rates[row.Region] += row.PerSecond
		t.waiting[row.Region] += row.Waiting
		if row.Region != "" {
			t.rates[""] += row.PerSecond
			t.waiting[""] += row.Waiting
		}
	}
}

// due says whether the caller is the one to read.
func (t *turnover) due() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.readAt) < turnoverAge {
		return false
	}
	t.readAt = time.Now()
	return true
}
