package backplane

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxStrays bounds the topics that are remembered as told although nobody wants them. Others are told again.
const maxStrays = 1024

// streams are the books of what this process is interested in. They do no work: the listener, the dispatcher, the reader
// and the janitor do, and are signaled here.
type streams struct {
	wants signal // something to listen for, or no longer
	work  signal // something to register or to read
	idle  signal // something to leave
	moves signal // members to be counted
	done  chan struct{}

	mu        sync.Mutex // guards the rest
	byName    map[string]*stream
	queue     []*stream            // of the reader
	unused    map[*stream]struct{} // streams without refs
	strays    map[string]struct{}
	uneven    map[*stream]struct{}  // streams whose members changed since they were counted
	resets    map[*stream]time.Time // those put off, and until when
	members   int                   // refs of all streams
	serving   *stream               // the dispatcher delivers a message of it; the reader lets it be
	listening bool                  // interest may be registered: somebody hears what it brings
	used      bool                  // somebody joined, ever
	closed    bool
}

// signal holds one wake-up for one goroutine.
type signal chan struct{}

func (s signal) raise() {
	select {
	case s <- struct{}{}:
	default:
	}
}

func newStreams() *streams {
	return &streams{
		wants: make(signal, 1), work: make(signal, 1), idle: make(signal, 1), moves: make(signal, 1), done: make(chan struct{}),
		byName: map[string]*stream{}, unused: map[*stream]struct{}{}, strays: map[string]struct{}{},
		uneven: map[*stream]struct{}{}, resets: map[*stream]time.Time{},
	}
}

// join returns the registered stream of a name, and counts the caller among its refs.
func (b *streams) join(ctx context.Context, name string) (*stream, error) {
	for {
		s, wait, err := b.enter(name)
		if err != nil {
			return nil, err
		}
		select {
		case <-wait:
		case <-b.done:
			return nil, ErrClosed
		case <-ctx.Done():
			b.release(s)
			return nil, fmt.Errorf("subscribe: %w", context.Cause(ctx))
		}
		switch {
		case wait == s.left:
			continue
		case s.err != nil:
			return nil, s.err
		}
		return s, nil
	}
}

// enter returns the stream of a name and what to wait for: its being ready, or its being gone.
func (b *streams) enter(name string) (*stream, chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, ErrClosed
	}
	b.used = true
	s := b.byName[name]
	if s == nil {
		s = newStream(name)
		b.byName[name] = s
		b.enqueue(s)
		b.wants.raise()
	}
	if s.state == leaving {
		return s, s.left, nil
	}
	s.refs++
	b.members++
	b.recount(s)
	delete(b.unused, s)
	return s, s.ready, nil
}

// attach lets a subscription have what the stream brings from now on.
func (b *streams) attach(s *stream, sub *Subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sub.at = s.at
	if _, waits := b.resets[s]; waits {
		sub.at = s.next
	}
	sub.start = sub.at
	s.subs = append(slices.Clip(s.subs), sub)
}

// leave ends a subscription of the stream.
func (b *streams) leave(s *stream, sub *Subscription) {
	b.mu.Lock()
	s.subs = slices.DeleteFunc(slices.Clone(s.subs), func(other *Subscription) bool { return other == sub })
	b.mu.Unlock()
	b.release(s)
}

// release takes the caller off the stream's refs.
func (b *streams) release(s *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.state == leaving || s.state == gone {
		return
	}
	s.refs--
	b.members--
	b.recount(s)
	if s.refs == 0 {
		s.since = time.Now()
		b.unused[s] = struct{}{}
		b.idle.raise()
	}
}

// dispatch returns a told message and those who get it, if it is for now. The caller calls dispatched when they were given it.
func (b *streams) dispatch(e entry) (Message, []*Subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.byName[e.topic]
	if s == nil {
		if len(b.strays) < maxStrays {
			b.strays[e.topic] = struct{}{}
			b.idle.raise()
		}
		return Message{}, nil
	}
	m, next, read := s.take(e)
	if read {
		b.enqueue(s)
	}
	if !next {
		return Message{}, nil
	}
	b.serving = s
	return m, s.subs
}

// dispatched says that a told message was delivered. Somebody may have wanted its stream read meanwhile: what was read then, and
// delivered, would have made the message old before it came.
func (b *streams) dispatched() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.serving != nil && b.serving.queued {
		b.work.raise()
	}
	b.serving = nil
}

// enqueue leaves a stream to the reader. The caller holds mu.
func (b *streams) enqueue(s *stream) {
	if s.state == live {
		s.state = reading
	}
	if !s.queued {
		s.queued = true
		b.queue = append(b.queue, s)
	}
	b.work.raise()
}

// listen says that somebody hears from now on, and that what was there before must be made anew.
func (b *streams) listen() {
	b.mu.Lock()
	b.listening = true
	b.mu.Unlock()
	b.resync(true)
}

// deafen says that nobody hears any more.
func (b *streams) deafen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listening = false
}

// unwanted says whether there is nothing to hear; then nobody does any more.
func (b *streams) unwanted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.byName) > 0 {
		return false
	}
	b.listening = false
	return true
}

// wanted says whether there is something to hear.
func (b *streams) wanted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.byName) > 0
}

// resync has every stream read, and its interest made anew if need be.
func (b *streams) resync(register bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.byName {
		if s.state != leaving {
			s.unregistered = s.unregistered || register
			b.enqueue(s)
		}
	}
}

// fail tells those who wait for their first registration that there is none.
func (b *streams) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.byName {
		b.refuse(s, err)
	}
}

// refuse ends a stream that was never registered. The caller holds mu.
func (b *streams) refuse(s *stream, err error) {
	if s.state == registering {
		delete(b.byName, s.name)
		delete(b.unused, s)
		b.members -= s.refs
		s.settle(gone, err)
	}
}

// abandon returns streams that have been unused for long enough, and topics that nobody wanted, which are now leaving; and
// how long it takes until there are more, negative if that is not known.
func (b *streams) abandon(linger time.Duration) (names []string, next time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next = -1
	now := time.Now()
	for s := range b.unused {
		left := linger - now.Sub(s.since)
		if s.state == registering || s.writes > 0 {
			left = max(linger, 1) // what is being written now may not come after its deletion
		}
		switch {
		case left <= 0:
			s.state = leaving
			delete(b.unused, s)
			names = append(names, s.name)
		case next < 0 || left < next:
			next = left
		}
	}
	for name := range b.strays {
		if b.byName[name] == nil {
			s := newStream(name)
			s.state = leaving
			b.byName[name] = s
			names = append(names, name)
		}
	}
	clear(b.strays)
	return names, next
}

// forget ends streams that were leaving.
func (b *streams) forget(names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		s := b.byName[name]
		s.state = gone
		delete(b.byName, name)
		close(s.left)
	}
	b.wants.raise()
}

// wasUsed says whether there was ever anything to hear.
func (b *streams) wasUsed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// close refuses whatever comes later.
func (b *streams) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.closed = true
	close(b.done)
	for _, s := range b.byName {
		b.refuse(s, ErrClosed)
		s.subs = nil
	}
}
