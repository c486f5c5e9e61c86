package api

import (
	"maps"
	"slices"
	"sync"
)

// held are the calls that may last: streams, and starts that wait for room. Stop ends them, since they would hold it up
// until its time is over.
type held struct {
	mu    sync.Mutex // guards the rest; nothing is called under it
	ended bool
	next  int
	ends  map[int]func()
}

// add registers a call by what ends it, which runs at most once and must not block. The call is forgotten with forget,
// which waits for an end that is under way: none runs afterwards.
func (h *held) add(end func()) (forget func()) {
	var once sync.Once
	id, ended := h.put(func() { once.Do(end) })
	if ended {
		end()
		return func() {}
	}
	return func() {
		h.remove(id)
		once.Do(func() {}) // either it waits for the end, or there will be none
	}
}

// put keeps what ends a call, unless all calls were ended already.
func (h *held) put(end func()) (id int, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return 0, true
	}
	if h.ends == nil {
		h.ends = make(map[int]func())
	}
	h.next++
	h.ends[h.next] = end
	return h.next, false
}

func (h *held) remove(id int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ends, id)
}

// end ends every call that is held, now and later.
func (h *held) end() {
	for _, end := range h.close() {
		end()
	}
}

// close lets no more calls in, and returns what ends those that are there.
func (h *held) close() []func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	ends := slices.Collect(maps.Values(h.ends))
	clear(h.ends)
	return ends
}
