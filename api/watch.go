package api

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

const (
	watchTimeout = 5 * time.Second // of one question to the database
	// streamReads is how many streams may read at once: when something happens all of them want to, and starts need the
	// connections too.
	streamReads = 4
)

// watcher asks, for all streams of the process, whether anything new happened, and wakes them.
type watcher struct {
	events Events
	log    *slog.Logger
	every  time.Duration
	places *places
	reads  chan struct{} // holds one element for each stream that reads
	wanted chan struct{} // gets an element when the first stream opens

	mu      sync.Mutex     // guards the rest
	end     berth.Position // the newest position that was seen
	news    chan struct{}  // closed when end changes
	failing bool
}

func newWatcher(events Events, log *slog.Logger, every time.Duration, most int) *watcher {
	return &watcher{
		events: events, log: log, every: every, places: newPlaces(most),
		reads: make(chan struct{}, streamReads), wanted: make(chan struct{}, 1), news: make(chan struct{}),
	}
}

// enter takes a place for a stream of a tenant, or refuses it. Leave gives it back.
func (w *watcher) enter(tenantID string) (leave func(), err error) {
	leave, err = w.places.enter(tenantID)
	if err != nil {
		return nil, err
	}
	select {
	case w.wanted <- struct{}{}:
	default: // it knows
	}
	return leave, nil
}

// state returns the newest position that was seen, and what is closed once there is a newer one. A reader that takes it
// before it reads misses nothing: what the read does not show comes after the position.
func (w *watcher) state() (end berth.Position, news <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.end, w.news
}

// read returns a page of events.
func (w *watcher) read(ctx context.Context, filter berth.EventFilter) ([]berth.Event, error) {
	select {
	case w.reads <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-w.reads }()
	return w.events.Events(ctx, filter)
}

// run asks while there are streams, until the context ends.
func (w *watcher) run(ctx context.Context) {
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for {
		select {
		case <-w.wanted:
		case <-ctx.Done():
			return
		}
		for w.isWanted() {
			w.look(ctx)
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (w *watcher) isWanted() bool { return w.places.taken() > 0 }

// look asks once. While the database is away streams stay open and get what they missed later.
func (w *watcher) look(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	end, err := w.events.EventsEnd(asking)
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if failing := err != nil; failing != w.failing {
		w.failing = failing
		if failing {
			w.log.WarnContext(ctx, "events not watched", slog.Any("err", err))
		} else {
			w.log.InfoContext(ctx, "events watched again")
		}
	}
	if err == nil && end != w.end {
		w.end = end
		close(w.news)
		w.news = make(chan struct{})
	}
}
