package backplane

// maxSender bounds the bytes that wait of one sender.
const maxSender = 4 << 20

// sender is what waits to be published of one, as Config.Sender tells them apart.
type sender struct {
	name     string
	posts    []*post
	messages int
	bytes    int
}

// senders are all that waits to be published. They take turns, so that the flood of one delays no other by more than a post
// of its own; every second turn belongs to the nameless one, which is what the program itself has to say. A sender is
// refused when it has as much waiting as there is room left for all others, so there is always some for the next.
type senders struct {
	own      sender // the nameless
	byName   map[string]*sender
	turns    []*sender // those of byName, in their order
	messages int       // of turns
	bytes    int       // of turns
	ownNext  bool
}

func newSenders() *senders { return &senders{byName: map[string]*sender{}} }

// count is how many messages wait.
func (w *senders) count() int { return w.own.messages + w.messages }

// add lets a post wait at the end of its sender's. It returns false if there is no room.
func (w *senders) add(name string, item *post) bool {
	s := &w.own
	if name != "" {
		s = w.byName[name]
	}
	if s == nil {
		s = &sender{name: name}
	}
	if !w.admits(s, item) {
		return false
	}
	if name != "" {
		if len(s.posts) == 0 {
			w.byName[name], w.turns = s, append(w.turns, s)
		}
		w.messages += len(item.messages)
		w.bytes += item.bytes
	}
	s.posts = append(s.posts, item)
	s.messages += len(item.messages)
	s.bytes += item.bytes
	return true
}

// admits says whether there is room for a post. There always is where nothing waits, however large it is.
func (w *senders) admits(s *sender, item *post) bool {
	messages, bytes := s.messages+len(item.messages), s.bytes+item.bytes
	switch {
	case s == &w.own:
		return messages <= maxQueued && (s.messages == 0 || bytes <= maxSender)
	case w.messages == 0:
		return true
	case messages > maxQueued-w.messages || bytes > maxWaiting-w.bytes:
		return false
	default:
		return s.messages == 0 || bytes <= maxSender
	}
}

// next is the sender whose turn it is, nil if nothing waits. Its turn ends with pass.
func (w *senders) next() *sender {
	if len(w.own.posts) > 0 && (w.ownNext || len(w.turns) == 0) {
		return &w.own
	}
	if len(w.turns) > 0 {
		return w.turns[0]
	}
	return nil
}

// pass takes the first post of the sender whose turn it is, and ends the turn.
func (w *senders) pass(s *sender) {
	item := s.posts[0]
	s.posts = s.posts[1:]
	s.messages -= len(item.messages)
	s.bytes -= item.bytes
	w.ownNext = s != &w.own
	if len(s.posts) == 0 {
		s.posts = nil // let go of the array
	}
	if s == &w.own {
		return
	}
	w.messages -= len(item.messages)
	w.bytes -= item.bytes
	w.turns = w.turns[1:]
	switch {
	case len(s.posts) > 0:
		w.turns = append(w.turns, s)
	case len(w.turns) == 0:
		w.turns = nil
		fallthrough
	default:
		delete(w.byName, s.name)
	}
}
