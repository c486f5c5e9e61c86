package backplane

import "sync"

// maxHeld and maxHeldBytes bound what a subscription holds of the stream while its history is read.
const (
	maxHeld      = 1024
	maxHeldBytes = 256 << 10
)

// Subscription is one subscriber of a topic. Its methods may be called from any goroutine.
type Subscription struct {
	topic    string
	deliver  func(Message)
	leave    func(*Subscription)
	start    Position
	recovery Recovery

	mu       sync.Mutex // guards the rest; not held while deliver runs
	at       Position   // of what was delivered last
	holding  bool       // history is being read: what the stream brings is held
	held     []Message
	bytes    int  // of held
	overflow bool // more came than may be held: it is in the history
	closed   bool
}

// Topic is what is subscribed to.
func (s *Subscription) Topic() string { return s.topic }

// Position is where the subscription began: the next message was, or will be, the first after it.
func (s *Subscription) Position() Position { return s.start }

// Recovery answers the position that Subscribe was given. It has no outcome if there was none.
func (s *Subscription) Recovery() Recovery { return s.recovery }

// Unsubscribe ends the subscription. A delivery that is under way may still end afterwards; no other begins. It is
// idempotent, waits for nothing, and may be called by deliver.
func (s *Subscription) Unsubscribe() {
	s.mu.Lock()
	left := s.closed
	s.closed = true
	s.drop()
	s.mu.Unlock()
	if !left {
		s.leave(s)
	}
}

// offer gives the subscription what its topic's stream brings next.
func (s *Subscription) offer(m Message) {
	s.mu.Lock()
	if s.holding && !s.closed {
		s.hold(m)
	}
	if s.holding || s.closed {
		s.mu.Unlock()
		return
	}
	m, news := s.at.admit(m)
	s.mu.Unlock()
	if news {
		s.deliver(m)
	}
}

// hold keeps m for when the history was read. The caller holds mu.
func (s *Subscription) hold(m Message) {
	if len(s.held) >= maxHeld || s.bytes+len(m.Data) > maxHeldBytes {
		s.drop()
		s.overflow = true
	}
	if !s.overflow {
		s.held = append(s.held, m)
		s.bytes += len(m.Data)
	}
}

// drop lets go of what is held. The caller holds mu.
func (s *Subscription) drop() { s.held, s.bytes = nil, 0 }

// take returns what was held and is news. When nothing was, the subscription is live from then on. lost says that not all
// was held: the history has it, and must be read again.
func (s *Subscription) take() (news []Message, live, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.overflow {
		s.overflow = false
		return nil, false, true
	}
	if len(s.held) == 0 || s.closed {
		s.holding = false
		return nil, true, false
	}
	for _, m := range s.held {
		if m, ok := s.at.admit(m); ok {
			news = append(news, m)
		}
	}
	s.drop()
	return news, false, false
}

// begin delivers the opening; with a position what follows it, read page by page; and then what the stream brought meanwhile,
// on the caller's goroutine. The subscription is holding. read returns the page after an offset.
func (s *Subscription) begin(from *Position, read func(after int64) (page, error)) error {
	if from == nil {
		s.deliver(Message{Topic: s.topic, Position: s.start, Opening: true})
	} else if err := s.replay(*from, read); err != nil {
		return err
	}
	for !s.catchUp() {
		at := s.position()
		got, err := read(at.Offset)
		if err != nil {
			return err
		}
		if err := s.history(at, got, read); err != nil {
			return err
		}
	}
	return nil
}

// replay delivers the opening of a subscription that goes on from a position, and what is kept after it.
func (s *Subscription) replay(from Position, read func(after int64) (page, error)) error {
	got, err := read(from.Offset)
	if err != nil {
		return err
	}
	opening := from.resume(s.topic, got)
	opening.Opening = true
	s.start, s.recovery = opening.Position, opening.Recovery
	s.deliver(opening)
	return s.history(opening.Position, got, read)
}

func (s *Subscription) position() Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *Subscription) move(at Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = at
}

// history delivers what was read after a position and all that follows it, and moves the subscription there.
func (s *Subscription) history(at Position, got page, read func(after int64) (page, error)) (err error) {
	for {
		given, behind := at.follow(s.topic, got)
		s.replayed(given)
		if !behind {
			s.move(at)
			return nil
		}
		if got, err = read(at.Offset); err != nil {
			return err
		}
	}
}

// catchUp delivers what was held until the subscription is live. It is not, when history must be read again.
func (s *Subscription) catchUp() (live bool) {
	for {
		news, live, lost := s.take()
		if live || lost {
			return live
		}
		s.replayed(news)
	}
}

// replayed delivers on the caller's goroutine.
func (s *Subscription) replayed(messages []Message) {
	for _, m := range messages {
		m.Replayed = !m.Notice()
		s.deliver(m)
	}
}
