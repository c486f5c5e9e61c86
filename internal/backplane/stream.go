package backplane

import "time"

// state of a stream; see doc.go.
type state int

const (
	registering state = iota // interest and position are asked for
	live                     // the dispatcher serves it
	reading                  // the reader serves it
	leaving                  // its interest is being deleted
	gone                     // it is no longer one of the process's
)

// stream is a topic that this process is interested in. Streams' mutex guards it.
type stream struct {
	name  string
	state state
	at    Position // up to which its subscribers were served
	seen  entry    // told while the stream was not live: if it is after at, there is more to read
	subs  []*Subscription
	refs  int       // subs, and calls of Subscribe on the way there: the topic's members in this process
	since time.Time // without refs

	next Position // the topic's own, while its reset is put off; see postpone
	ripe bool     // it was put off for long enough

	counted int  // the members that the database was told of last; negative if that is not known
	writes  int  // statements under way that tell it
	mixed   bool // they met: which was the last is not known

	unregistered bool // its interest must be made anew
	queued       bool // it waits for the reader

	ready chan struct{} // closed at the end of state registering
	err   error         // why it failed; written before ready is closed
	left  chan struct{} // closed at the end of state leaving
}

func newStream(name string) *stream {
	return &stream{name: name, state: registering, unregistered: true, ready: make(chan struct{}), left: make(chan struct{})}
}

// take returns what a live stream is told, if it is the next message. Otherwise it is known already, or the stream must be
// read.
func (s *stream) take(e entry) (m Message, next, read bool) {
	same := e.tag == tag(s.at.Epoch)
	switch {
	case s.state == leaving || s.state == live && same && e.offset <= s.at.Offset:
		return Message{}, false, false
	case s.state != live:
		if e.tag != s.seen.tag || e.offset > s.seen.offset {
			s.seen = entry{tag: e.tag, offset: e.offset}
		}
		return Message{}, false, false
	case !same || e.offset > s.at.Offset+1 || e.data == nil:
		return Message{}, false, true
	}
	s.at.Offset = e.offset
	return e.message(s.at.Epoch), true, false
}

// behind says whether something was told that is after the stream's position, or of another epoch.
func (s *stream) behind() bool {
	return s.seen.offset > 0 && (s.seen.tag != tag(s.at.Epoch) || s.seen.offset > s.at.Offset)
}

// settle ends state registering.
func (s *stream) settle(next state, err error) {
	s.state, s.err = next, err
	close(s.ready)
}
