package api

import (
	"context"
	"sync"
	"time"
)

const (
	// clockAge is for how long a reading of the database's clock is good enough: hosts' clocks do not drift by much.
	clockAge = time.Minute
	// clockTimeout bounds one reading.
	clockTimeout = 2 * time.Second
)

// databaseClock is the database's time, which tokens are dated by: this host's clock may be wrong. Between readings it runs
// on the monotonic clock.
type databaseClock struct {
	read func(context.Context) (time.Time, error)
	turn chan struct{} // holds an element while somebody reads

	mu        sync.Mutex // guards the rest
	at, local time.Time  // the database's clock showed at when this process's showed local
}

func newDatabaseClock(read func(context.Context) (time.Time, error)) *databaseClock {
	return &databaseClock{read: read, turn: make(chan struct{}, 1)}
}

// now reads the clock anew if the last reading is old. While the database is away an old one has to do; without any, the
// error is that of the reading.
func (c *databaseClock) now(ctx context.Context) (time.Time, error) {
	if now, age := c.known(); age < clockAge && !now.IsZero() {
		return now, nil
	}
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return c.old(ctx.Err())
	}
	if now, age := c.known(); age < clockAge && !now.IsZero() {
		return now, nil // whose turn was before read it
	}
	from := time.Now()
	at, err := c.read(ctx)
	if err != nil {
		return c.old(err)
	}
	c.learn(at, from, time.Now())
	now, _ := c.known()
	return now, nil
}

// old is what is known, however old, or err if nothing is.
func (c *databaseClock) old(err error) (time.Time, error) {
	now, _ := c.known()
	if now.IsZero() {
		return now, err
	}
	return now, nil
}

// known is the database's time by the last reading, and how old that is. It is zero without one.
func (c *databaseClock) known() (now time.Time, age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.Time{}, 0
	}
	age = time.Since(c.local)
	return c.at.Add(age), age
}

// learn sets the clock by an answer: at was true at some time between from and to.
func (c *databaseClock) learn(at, from, to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.local = at, from.Add(to.Sub(from)/2)
}
