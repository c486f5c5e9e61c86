package signaling

import (
	"maps"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// absence is a session that nobody is connected to and that runs no media here, but whose clients were told to come
// back: a renewal that left it out would have it ended as forgotten before they do.
type absence struct {
	since time.Time
	limit time.Duration
}

// Held lists the sessions that the worker serves, for its renewal: also those whose first join or whose end is under
// way, and those whose clients were told to come back.
func (h *Hub) Held() []berth.Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.admission.open() {
		maps.DeleteFunc(h.absent, func(_ berth.Held, a absence) bool {
			return remaining(a.since, a.limit, h.config.Awake()) <= 0
		})
	}
	set := make(map[berth.Held]struct{}, len(h.sessions)+len(h.joining)+len(h.ending)+len(h.absent))
	for _, s := range h.sessions {
		set[s.held] = struct{}{}
	}
	addKeys(set, h.joining)
	addKeys(set, h.ending)
	addKeys(set, h.absent)
	list := make([]berth.Held, 0, len(set))
	for held := range set {
		list = append(list, held)
	}
	return list
}

func addKeys[V any](set map[berth.Held]struct{}, from map[berth.Held]V) {
	for held := range from {
		set[held] = struct{}{}
	}
}

// Admit sets whom the hub lets in from now on. Connections that stand are not touched. Absences count from here if
// nobody could come back before.
func (h *Hub) Admit(a Admission) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.open() && !h.admission.open() {
		for held, one := range h.absent {
			h.absent[held] = absence{since: time.Now(), limit: one.limit}
		}
	}
	h.admission = a
}

// await counts a session as held for as long as its clients may take to come back. It is called with mu held.
func (h *Hub) await(held berth.Held, limit time.Duration) {
	h.absent[held] = absence{since: time.Now(), limit: limit}
}

// hold counts the joins of a placement that may have been written to the database.
func (h *Hub) hold(held berth.Held, by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.joining[held] += by; h.joining[held] == 0 {
		delete(h.joining, held)
	}
}
