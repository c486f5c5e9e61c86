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
	// tenantShare is the part of all streams that one tenant may have open.
	tenantShare = 4
)

// watcher asks, for all streams of the process, whether anything new happened, and wakes them. It also bounds how many
// there are.
type watcher struct {
	events Events
	log    *slog.Logger
	every  time.Duration
	most   int           // streams
	reads  chan struct{} // holds one element for each stream that reads
	wanted chan struct{} // gets an element when the first stream opens

	mu       sync.Mutex
	open     int
	byTenant map[string]int // "" are operators
	end      berth.Position // the newest position that was seen
	news     chan struct{}  // closed when end changes
	failing  bool
}

func newWatcher(events Events, log *slog.Logger, every time.Duration, most int) *watcher {
	return &watcher{
		events: events, log: log, every: every, most: most,
		reads: make(chan struct{}, streamReads), wanted: make(chan struct{}, 1),
		byTenant: make(map[string]int), news: make(chan struct{}),
	}
}

// enter takes a place for a stream of a tenant, or refuses it. Leave gives it back.
func (w *watcher) enter(tenantID string) (leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open >= w.most {
		return nil, unavailable("As many streams are open here as may be; ask again.")
	}
	if w.byTenant[tenantID] >= max(1, w.most/tenantShare) {
		return nil, unavailable("The tenant has as many streams open here as it may; close one, or ask again.")
	}
	w.open++
	w.byTenant[tenantID]++
	select {
	case w.wanted <- struct{}{}:
	default: // it knows
	}
	return func() { w.leave(tenantID) }, nil
}

func (w *watcher) leave(tenantID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open--
	if w.byTenant[tenantID]--; w.byTenant[tenantID] == 0 {
		delete(w.byTenant, tenantID)
	}
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

func (w *watcher) isWanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open > 0
}

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
