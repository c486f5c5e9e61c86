package api

import "sync"

// held are the calls that may last: streams, and starts that wait for room. Stop ends them, since they would hold it up
// until its time is over.
type held struct {
	mu    sync.Mutex
	ended bool
	next  int
	ends  map[int]func()
}

// add registers a call by what ends it, which must not block. The call is forgotten with forget; end does not run
// afterwards.
func (h *held) add(end func()) (forget func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		end()
		return func() {}
	}
	if h.ends == nil {
		h.ends = make(map[int]func())
	}
	h.next++
	id := h.next
	h.ends[id] = end
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.ends, id)
	}
}

// end ends every call that is held, now and later.
func (h *held) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for _, end := range h.ends {
		end()
	}
	clear(h.ends)
}
