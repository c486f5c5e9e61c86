package signaling

import (
	"context"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// wire is one WebSocket connection as the hub sees it. Write, Ping and Close are called one at a time.
type wire interface {
	// Write sends one text frame. It blocks until the kernel has taken it.
	Write(frame []byte) error

	// Await returns when there is something to read, or never will be. It needs little stack, or returns at once.
	Await()

	// Read returns the next message. After an error there is nothing more to read.
	Read() (text bool, message []byte, err error)

	// Ping sends a protocol ping. Nothing follows from a missing pong: the application's decides.
	Ping()

	// Close sends a close frame and waits a few seconds for the client's. The connection is gone when it returns.
	Close(code websocket.StatusCode, reason string)

	// Cut drops the connection at once and unblocks all other methods.
	Cut()
}

// limits bound what a connection may cost.
type limits struct {
	bytes int           // of frames that wait or are being written
	age   time.Duration // of the oldest such frame
	grace time.Duration // from the decision to close until the connection is cut
}

// queued is one frame on its way.
type queued struct {
	data []byte
	at   time.Time
	ping bool // accompanied by a protocol ping

	// history: of what the client missed, and asked for. It does not count as waiting too long: a slow link takes it as it
	// can.
	history bool
}

// closing is the close frame that ends a connection.
type closing struct {
	code   websocket.StatusCode
	reason string
}

// sender is the outgoing half of a connection. Send and close never block. A goroutine runs only while there is
// something to write; the first close wins.
type sender struct {
	wire    wire
	limits  limits
	awake   func() time.Time // since when this process runs without a pause
	spawn   func(func())     // runs in another goroutine, which the hub waits for
	onClose func(websocket.StatusCode)

	mu      sync.Mutex
	queue   []queued
	bytes   int
	writing bool
	closing *closing
	ended   bool          // nothing more is started: the reader is gone
	gone    chan struct{} // closed when the close frame was exchanged, or when writing failed
	late    *time.Timer
	cut     *time.Timer
	room    chan struct{} // closed when most of the queue was written, or nothing more is; nil while nobody waits
}

// newSender returns the outgoing half of wire. onClose hears the close code once, with the sender locked.
func newSender(wire wire, limits limits, awake func() time.Time, spawn func(func()), onClose func(websocket.StatusCode)) *sender {
	return &sender{
		wire: wire, limits: limits, awake: awake, spawn: spawn, onClose: onClose,
		gone: make(chan struct{}),
	}
}

// send queues a frame. A connection that falls too far behind is closed as too slow; one that is closing takes
// nothing more.
func (s *sender) send(frame []byte) { s.put(queued{data: frame}) }

// sendPing queues a frame that is accompanied by a protocol ping, unless a write is stuck already.
func (s *sender) sendPing(frame []byte) { s.put(queued{data: frame, ping: true}) }

func (s *sender) put(q queued) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing != nil || s.ended || len(q.data) == 0 {
		return
	}
	if s.bytes+len(q.data) > s.limits.bytes {
		s.dropAndClose()
		return
	}
	q.at = time.Now()
	s.queue = append(s.queue, q)
	s.bytes += len(q.data)
	s.write()
}

// close ends the connection with a close frame after the frames that are queued.
func (s *sender) close(code websocket.StatusCode, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked(code, reason)
}

// closed reports whether the connection is closing, and with which code.
func (s *sender) closed() (websocket.StatusCode, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing == nil {
		return 0, false
	}
	return s.closing.code, true
}

// historyAge is how long a frame of history may take to be written: 64 KiB at 9 kbit/s.
const historyAge = time.Minute

// roomBytes is how much may wait for a reader that is given its history.
const roomBytes = 16 << 10

// waitForRoom returns when no more than roomBytes wait, or when waiting is of no use.
func (s *sender) waitForRoom(ctx context.Context) {
	for {
		s.mu.Lock()
		if s.bytes <= roomBytes || s.closing != nil || s.ended {
			s.mu.Unlock()
			return
		}
		if s.room == nil {
			s.room = make(chan struct{})
		}
		room := s.room
		s.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return
		}
	}
}

// tellRoom wakes who waits for room. It is called with mu held.
func (s *sender) tellRoom() {
	if s.room != nil && (s.bytes <= roomBytes || s.closing != nil || s.ended) {
		close(s.room)
		s.room = nil
	}
}

// release is called by the reader once it reads no more. It waits until a close frame that was decided on has been
// exchanged, which the grace bounds, and stops the timers. No goroutine starts after it.
func (s *sender) release() {
	if _, closing := s.closed(); closing {
		<-s.gone
	}
	s.wire.Cut()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.queue, s.bytes = nil, 0
	s.tellRoom()
	for _, t := range []*time.Timer{s.late, s.cut} {
		if t != nil {
			t.Stop()
		}
	}
}

// dropAndClose makes the close frame the next frame that a slow reader sees. It is called with mu held.
func (s *sender) dropAndClose() {
	s.queue = nil
	s.closeLocked(CloseTryLater, reasonSlow)
}

func (s *sender) closeLocked(code websocket.StatusCode, reason string) {
	if s.closing != nil || s.ended {
		return
	}
	s.closing = &closing{code: code, reason: reason}
	s.cut = time.AfterFunc(s.limits.grace, s.wire.Cut)
	s.onClose(code)
	s.tellRoom()
	s.write()
}

// write makes sure that a goroutine writes. It is called with mu held.
func (s *sender) write() {
	if s.writing || s.ended {
		return
	}
	s.writing = true
	s.watchAge(s.limits.age)
	s.spawn(s.flush)
}

// flush writes until nothing is left, and the close frame last. After that, or after a failure, writing stays true,
// so that no other writer starts.
func (s *sender) flush() {
	for {
		next, last, ok := s.next()
		switch {
		case last != nil:
			s.wire.Close(last.code, last.reason)
			close(s.gone)
			return
		case !ok:
			return
		}
		if next.ping {
			s.wire.Ping() // first, so that its pong is not the last that the reader waits for
		}
		if s.wire.Write(next.data) != nil {
			s.wire.Cut() // the reader notices, and cleans up
			close(s.gone)
			return
		}
		s.wrote(next)
	}
}

// next is the frame to write, or the close frame once no other is left, or nothing: then the goroutine ends.
func (s *sender) next() (next queued, last *closing, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		s.writing = false
		return queued{}, nil, false
	}
	if len(s.queue) > 0 {
		return s.queue[0], nil, true
	}
	if s.closing != nil {
		return queued{}, s.closing, false
	}
	s.queue = nil
	s.writing = false
	s.late.Stop()
	return queued{}, nil, false
}

// wrote takes a written frame off the queue, unless the queue was dropped meanwhile.
func (s *sender) wrote(q queued) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= len(q.data)
	s.tellRoom()
	if len(s.queue) > 0 {
		s.queue[0] = queued{}
		s.queue = s.queue[1:]
	}
}

// watchAge looks again after wait whether the oldest frame is too old. It is called with mu held.
func (s *sender) watchAge(wait time.Duration) {
	if s.late == nil {
		s.late = time.AfterFunc(wait, s.checkAge)
		return
	}
	s.late.Reset(wait)
}

func (s *sender) checkAge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.closing != nil || len(s.queue) == 0 {
		return
	}
	limit := s.limits.age
	if s.queue[0].history {
		limit = historyAge
	}
	if wait := remaining(s.queue[0].at, limit, s.awake()); wait > 0 {
		s.watchAge(wait)
		return
	}
	s.dropAndClose()
}

// remaining is how long a limit that began at start still runs: it counts from the later of start and the process's
// last waking, so that a pause uses up nobody's deadline.
func remaining(start time.Time, limit time.Duration, awake time.Time) time.Duration {
	if awake.After(start) {
		start = awake
	}
	return limit - time.Since(start)
}
