package api

import (
	"sync"

	"github.com/berthdev/berth/internal/backplane"
)

const (
	// queueMessages and queueBytes bound what waits for one client.
	queueMessages = 256
	queueBytes    = 512 << 10
	// messageBytes is what a message takes beside its data, about.
	messageBytes = 200
)

// topicQueue is what waits to be sent to one client. The backplane puts, and never waits for the client, but while the
// client gets its history: that it asked for, so it is not cut for it. The stream takes.
type topicQueue struct {
	ready chan struct{} // holds an element when there is something to take

	mu        sync.Mutex // guards the rest
	room      sync.Cond
	waiting   []backplane.Message
	bytes     int
	recalling bool // history comes: put waits for room
	over      bool // the client is too slow, or nobody takes any more
}

func newTopicQueue() *topicQueue {
	q := &topicQueue{ready: make(chan struct{}, 1), recalling: true}
	q.room.L = &q.mu
	return q
}

// put adds a message, or gives up the queue if there is no room for it.
func (q *topicQueue) put(m backplane.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := len(m.Data) + messageBytes
	full := func() bool {
		return len(q.waiting) >= queueMessages || len(q.waiting) > 0 && q.bytes+size > queueBytes
	}
	for q.recalling && !q.over && full() {
		q.room.Wait()
	}
	if q.over {
		return
	}
	if full() {
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

// live says that the history is over: from now on who does not keep up is cut.
func (q *topicQueue) live() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.recalling = false
	q.room.Broadcast()
}

// end lets go of whoever puts.
func (q *topicQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over, q.waiting = true, nil
	q.room.Broadcast()
}
