package backplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
)

// want is a subscriber that waits for a page of its topic's history.
type want struct {
	topic  string
	after  int64
	answer chan recall // holds one
}

// recall is the answer to a want.
type recall struct {
	page page
	err  error
}

// historian reads the log for subscribers that resume. Many come at once when a process or the network failed, and most of
// them want the same: what waits while a statement runs is read by the next, and those who want about the same of a topic
// share a page. Nobody is given what was read before it asked.
type historian struct {
	read    func(ctx context.Context, topics []string, after []int64) ([]page, error)
	metrics *metrics
	arrived signal

	mu      sync.Mutex // guards the rest
	waiting []*want
	closed  bool
}

func newHistorian(
	read func(ctx context.Context, topics []string, after []int64) ([]page, error), m *metrics,
) *historian {
	return &historian{read: read, metrics: m, arrived: make(signal, 1)}
}

// page returns what a topic keeps after an offset.
func (h *historian) page(ctx context.Context, topic string, after int64) (page, error) {
	w := &want{topic: topic, after: after, answer: make(chan recall, 1)}
	if !h.add(w) {
		return page{}, ErrClosed
	}
	select {
	case r := <-w.answer:
		return r.page, r.err
	case <-ctx.Done():
		return page{}, fmt.Errorf("read history: %w", context.Cause(ctx))
	}
}

func (h *historian) add(w *want) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.waiting = append(h.waiting, w)
		h.arrived.raise()
	}
	return !h.closed
}

// take returns all that wait.
func (h *historian) take() []*want {
	h.mu.Lock()
	defer h.mu.Unlock()
	wants := h.waiting
	h.waiting = nil
	return wants
}

// run answers until ctx ends.
func (h *historian) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-h.arrived:
			h.serve(ctx, h.take())
		case <-ctx.Done():
		}
	}
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	answer(h.take(), recall{err: ErrClosed})
}

// serve answers wants by as few statements as it takes. Those that come meanwhile wait, so that none waits forever.
func (h *historian) serve(ctx context.Context, wants []*want) {
	slices.SortFunc(wants, func(a, b *want) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.after, b.after))
	})
	for len(wants) > 0 {
		shares, rest := share(wants)
		topics, after := make([]string, len(shares)), make([]int64, len(shares))
		for i, s := range shares {
			topics[i], after[i] = s[0].topic, s[0].after
		}
		h.metrics.recalls.Inc()
		pages, err := h.read(ctx, topics, after)
		if err != nil && ctx.Err() != nil {
			err = ErrClosed
		}
		if err != nil {
			answer(wants, recall{err: err})
			return
		}
		wants = nil
		for i, s := range shares {
			wants = append(wants, h.hand(s, pages[i])...)
		}
		wants = append(wants, rest...)
	}
}

// share splits sorted wants into such as may be served by one page each, for one statement, and the rest.
func share(wants []*want) (shares [][]*want, rest []*want) {
	for len(wants) > 0 && len(shares) < maxTasks {
		first, n := wants[0], 1
		for n < len(wants) && wants[n].topic == first.topic && wants[n].after-first.after < pageMessages {
			n++
		}
		shares = append(shares, wants[:n:n])
		wants = wants[n:]
	}
	return shares, wants
}

// hand gives wants of one topic what was read after the first of them, and returns those that it does not reach.
func (h *historian) hand(wants []*want, read page) (beyond []*want) {
	if !read.found() {
		answer(wants, recall{err: fmt.Errorf("%w: the topic was lost just now; subscribe again", ErrUnavailable)})
		return nil
	}
	for i, w := range wants {
		part, reaches := read.from(w.after)
		if !reaches {
			return wants[i:]
		}
		h.metrics.recalled.Inc()
		w.answer <- recall{page: part}
	}
	return nil
}

func answer(wants []*want, r recall) {
	for _, w := range wants {
		w.answer <- r
	}
}
