package backplane

// maxTasks is how many streams are registered or read by one statement.
const maxTasks = 64

// task is what the reader does for one stream.
type task struct {
	s        *stream
	register bool
	members  int  // that it is registered with
	telling  bool // the database is being told of them
	read     bool
	after    int64
}

// tasks returns the next streams to be registered or read, none while nobody listens.
func (b *streams) tasks() []task {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.listening {
		return nil
	}
	var tasks []task
	var later []*stream
	for len(b.queue) > 0 && len(tasks) < maxTasks {
		s := b.queue[0]
		b.queue = b.queue[1:]
		if s == b.serving {
			later = []*stream{s}
			continue
		}
		s.queued = false
		if s.state == leaving || s.state == gone {
			continue
		}
		tasks = append(tasks, task{
			s: s, register: s.unregistered, telling: s.unregistered, members: s.refs, read: s.state == reading, after: s.at.Offset,
		})
		if s.unregistered {
			s.telling()
		}
		s.unregistered = false
		s.seen = entry{}
	}
	if len(later)+len(b.queue) == 0 {
		b.queue = nil // let go of the array
	}
	if len(later) > 0 {
		b.queue = append(later, b.queue...)
	}
	return tasks
}

// registered gives streams the positions that their registration answered. A new one is ready; another needs no reading if
// it is there already.
func (b *streams) registered(tasks []task, positions map[string]Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range tasks {
		t := &tasks[i]
		at, ok := positions[t.s.name]
		if t.telling && ok {
			t.telling = false
			b.told(t.s, t.members)
		}
		switch {
		case !t.register || !ok:
		case t.s.state == registering:
			t.s.at = at
			t.s.settle(live, nil)
			if t.s.behind() || t.s.unregistered {
				b.enqueue(t.s)
			}
		case t.s.state == reading && at == t.s.at:
			t.read = false
			b.proceed(t.s, false)
		}
	}
}

// returned puts streams back whose registration or reading failed, and refuses those that wait for their first.
func (b *streams) returned(tasks []task, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range tasks {
		if t.telling {
			b.told(t.s, -1)
		}
		b.refuse(t.s, err)
		if t.s.state == reading {
			t.s.unregistered = t.s.unregistered || t.register
			b.enqueue(t.s)
		}
	}
}

// follow moves a stream by what was read, and returns what its subscribers get, and whether there is more to read.
func (b *streams) follow(s *stream, read page) (given []Message, to []*Subscription, behind bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	given, behind = s.at.follow(s.name, read)
	return given, s.subs, behind
}

// vanished says that a topic is not there, nor any interest in it.
func (b *streams) vanished(s *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.state == reading {
		s.unregistered = true
		b.enqueue(s)
	}
}

// served says that subscribers were given what was read: the stream is live unless there is more.
func (b *streams) served(s *stream, behind bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.proceed(s, behind)
}

// proceed makes a stream live that has nothing left to read. The caller holds mu.
func (b *streams) proceed(s *stream, behind bool) {
	if s.state != reading || s.queued {
		return
	}
	s.state = live
	if behind || s.behind() {
		b.enqueue(s)
	}
}
