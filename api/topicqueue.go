package api

import (
	"sync"

	"github.com/berthdev/berth/internal/backplane"
)

const (
	// queueMessages and queueBytes bound what waits for one client.
	queueMessages = 256
	queueBytes    = 512 << 10
	// roomMessages and roomBytes are what may wait already when more of a client's history is put: little, so that what is
	// live meanwhile, and right after it, has room.
	roomMessages = queueMessages / 8
	roomBytes    = queueBytes / 32
	// messageBytes is what a message takes beside its data, about.
	messageBytes = 200
)

// topicQueue is what waits to be sent to one client. The backplane puts, and never waits for the client, but with messages
// of its history: those it asked for, so it is not cut for them. The stream takes.
type topicQueue struct {
	ready chan struct{} // holds an element when there is something to take

	mu      sync.Mutex // guards the rest
	room    sync.Cond
	waiting []backplane.Message
	bytes   int
	over    bool // the client is too slow, or nobody takes any more
}

func newTopicQueue() *topicQueue {
	q := &topicQueue{ready: make(chan struct{}, 1)}
	q.room.L = &q.mu
	return q
}

// put adds a message, or gives up the queue if there is no room for it. A message of the history waits until hardly
// anything does.
func (q *topicQueue) put(m backplane.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for m.Replayed && !q.over && (len(q.waiting) > roomMessages || q.bytes > roomBytes) {
		q.room.Wait()
	}
	if q.over {
		return
	}
	size := len(m.Data) + messageBytes
	if len(q.waiting) >= queueMessages || len(q.waiting) > 0 && q.bytes+size > queueBytes {
		q.over = true
	} else {
		q.waiting = append(q.waiting, m)
		q.bytes += size
	}
	q.tell()
}

// tell wakes who takes.
func (q *topicQueue) tell() {
	select {
	case q.ready <- struct{}{}:
	default: // it is there
	}
}

// take removes all that waits. over says that there is no more to come.
func (q *topicQueue) take() (messages []backplane.Message, over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	messages, q.waiting, q.bytes = q.waiting, nil, 0
	q.room.Broadcast()
	return messages, q.over
}

// end lets go of whoever puts.
func (q *topicQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over, q.waiting = true, nil
	q.room.Broadcast()
}
