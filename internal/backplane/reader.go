package backplane

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// firstPause and longestPause bound the wait after a failure; it doubles.
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
)

// pause waits before the next try. Processes that lost the same database do not come back at the same moment.
func pause(ctx context.Context, tries int) {
	most := min(firstPause<<min(tries, 10), longestPause)
	sleep(ctx, most/2+rand.N(most/2))
}

// read registers and reads streams, those that came meanwhile in the next round.
func (b *Bus) read(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		next := b.streams.ripen(time.Now())
		tasks := b.streams.tasks()
		if len(tasks) == 0 {
			await(ctx, b.streams.work, next)
			continue
		}
		err := b.round(ctx, tasks)
		if err == nil {
			failures = 0
			continue
		}
		b.streams.returned(tasks, err)
		if ctx.Err() == nil {
			b.config.Logger.WarnContext(ctx, "backplane topics not read", "topics", len(tasks), "err", err)
			pause(ctx, failures)
			failures++
		}
	}
}

// round does the tasks by one statement of each kind. Interest is committed before its topic is read.
func (b *Bus) round(ctx context.Context, tasks []task) error {
	var names []string
	var members []int
	for _, t := range tasks {
		if t.register {
			names, members = append(names, t.s.name), append(members, t.members)
		}
	}
	if len(names) > 0 {
		positions, err := b.store.subscribe(ctx, names, members)
		if err != nil {
			return err
		}
		b.streams.registered(tasks, positions)
	}
	return b.readAll(ctx, tasks)
}

// readAll reads the streams of tasks that are to be read, and gives their subscribers what was read.
func (b *Bus) readAll(ctx context.Context, tasks []task) error {
	var streams []*stream
	var names []string
	var after []int64
	for _, t := range tasks {
		if t.read {
			streams, names, after = append(streams, t.s), append(names, t.s.name), append(after, t.after)
		}
	}
	if len(names) == 0 {
		return nil
	}
	pages, err := b.store.read(ctx, names, after)
	if err != nil {
		return err
	}
	for i, s := range streams {
		b.serve(s, pages[i])
	}
	return nil
}

// serve gives the subscribers of a stream what was read.
func (b *Bus) serve(s *stream, read page) {
	if !read.found() {
		b.streams.vanished(s)
		return
	}
	if b.streams.postpone(s, read, b.config.ResetSpread) {
		return
	}
	given, to, behind := b.streams.follow(s, read)
	for _, m := range given {
		b.deliver(m, to)
	}
	b.streams.served(s, behind)
}
