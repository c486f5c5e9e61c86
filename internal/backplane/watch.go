package backplane

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	// blockedLooks is how often in a row the listener's backend must be seen to wait for a reader, blockedPause apart. A busy
	// one does so for moments.
	blockedLooks = 4
	blockedPause = time.Second
)

// Why the listener's connection is dropped, though it works.
var (
	errBlocked = errors.New("nobody reads what the listener's backend writes, which holds up the queue of all listeners of the server")
	errQueue   = errors.New("the server's queue of notifications is too full, and this listener may be why")
)

// Reasons of a drop, as the metric says them.
const (
	reasonBlocked = "blocked"
	reasonQueue   = "queue"
)

// watch looks now and then at what the database says of this process's listener, and drops its connection if it may harm
// others: all listeners of a server share one queue, and when that is full nobody can notify. It never touches a listener
// of somebody else's. What is dropped is opened again, and every topic read.
func (b *Bus) watch(ctx context.Context) {
	full := false // the queue is: once was enough
	for ctx.Err() == nil {
		sleep(ctx, b.config.WatchInterval*3/4+rand.N(b.config.WatchInterval/2))
		if !b.streams.hears() || ctx.Err() != nil {
			continue
		}
		seen, err := b.look(ctx)
		if err != nil {
			b.config.Logger.WarnContext(ctx, "backplane listener not looked at", "err", err)
			continue
		}
		switch {
		case seen.blocked && b.staysBlocked(ctx):
			b.drop(ctx, reasonBlocked, errBlocked, seen)
		case seen.usage >= b.config.QueueBound && !full:
			full = true
			b.drop(ctx, reasonQueue, errQueue, seen)
		case seen.usage < b.config.QueueBound/2:
			full = false
		}
	}
}

// look asks the database about the listener.
func (b *Bus) look(ctx context.Context) (health, error) {
	seen, err := b.store.health(ctx)
	if err == nil {
		b.metrics.usage.Set(seen.usage)
	}
	return seen, err
}

// staysBlocked says whether the listener's backend, which was seen to wait for a reader, still does at each of some more looks.
func (b *Bus) staysBlocked(ctx context.Context) bool {
	for range blockedLooks - 1 {
		sleep(ctx, min(blockedPause, b.config.WatchInterval))
		if seen, err := b.look(ctx); err != nil || !seen.blocked {
			return false
		}
	}
	return true
}

func (b *Bus) drop(ctx context.Context, reason string, cause error, seen health) {
	b.config.Logger.WarnContext(ctx, "backplane listener dropped", "reason", reason, "queue_usage", seen.usage, "blocked", seen.blocked)
	b.metrics.drops.WithLabelValues(reason).Inc()
	b.listener.drop(cause)
}

// head is where the tables have a topic.
type head struct {
	topic      string
	at         Position // without an epoch: it is not there
	interested bool     // the process is told of it
	miscounted bool     // it has other members than were told
}

// claims are what the process has of its live streams, in parallel slices.
type claims struct {
	topics, epochs []string
	offsets        []int64
	members        []*int // nil: they are just changing
}

// cut takes the first n claims.
func (c *claims) cut(n int) (first claims) {
	first = claims{c.topics[:n], c.epochs[:n], c.offsets[:n], c.members[:n]}
	*c = claims{c.topics[n:], c.epochs[n:], c.offsets[n:], c.members[n:]}
	return first
}

// compareTopics is how many topics one statement compares.
const compareTopics = 10_000

// compare is the net under notifications: now and then it asks where topics are, and has those read that are further than
// their subscribers were told.
func (b *Bus) compare(ctx context.Context) {
	for ctx.Err() == nil {
		sleep(ctx, b.config.CompareInterval*3/4+rand.N(b.config.CompareInterval/2))
		if ctx.Err() != nil || !b.streams.hears() {
			continue
		}
		if err := b.compareAll(ctx); err != nil && ctx.Err() == nil {
			b.config.Logger.WarnContext(ctx, "backplane topics not compared", "err", err)
		}
	}
}

func (b *Bus) compareAll(ctx context.Context) error {
	all := b.streams.claims()
	for len(all.topics) > 0 {
		heads, err := b.store.ahead(ctx, all.cut(min(len(all.topics), compareTopics)))
		if err != nil {
			return err
		}
		if behind := b.streams.compared(heads); behind > 0 {
			b.metrics.behind.Add(float64(behind))
			b.config.Logger.InfoContext(ctx, "backplane topics behind", "topics", behind)
		}
	}
	return nil
}

// hears says whether there is a listener that hears.
func (b *streams) hears() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.listening
}

// claims returns where the live streams are, and how many members the database was told that they have.
func (b *streams) claims() (c claims) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.byName {
		if s.state != live {
			continue
		}
		var members *int
		if s.writes == 0 && s.counted >= 0 {
			counted := s.counted
			members = &counted
		}
		c.topics, c.epochs, c.offsets = append(c.topics, s.name), append(c.epochs, s.at.Epoch), append(c.offsets, s.at.Offset)
		c.members = append(c.members, members)
	}
	return c
}

// compared leaves those streams to the reader that are still behind their topics, and returns how many they are. What was
// published a moment ago may be among them. Members that the tables have otherwise, as when a statement that seemed to fail
// came to its end later, are counted again.
func (b *streams) compared(heads []head) (behind int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range heads {
		s := b.byName[h.topic]
		if s != nil && h.miscounted && s.writes == 0 {
			s.counted = -1
			b.recount(s)
		}
		if s == nil || s.state != live || h.interested && h.at.Epoch == s.at.Epoch && h.at.Offset <= s.at.Offset {
			continue
		}
		s.unregistered = s.unregistered || !h.interested
		b.enqueue(s)
		behind++
	}
	return behind
}
