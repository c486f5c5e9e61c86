package backplane

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// modelKept is how many messages the model's topic keeps: few, so that some are missed.
const modelKept = 6

// model is one topic in the database and in a process, whose parts take their steps in any order.
type model struct {
	// the database
	epochs     int
	last       int64
	exists     bool
	interested bool
	lost       bool             // interest was deleted, and the process does not know yet
	told       []entry          // notifications on their way
	trimmed    map[string]int64 // by epoch: what is no longer kept

	// the process
	streams *streams
	handing []func() // deliveries of the dispatcher
	joins   []*stream
	subs    []*modelSub
	leaving []string
	// the reader, between its steps
	tasks   []task
	phase   int
	page    page
	pending []func()
	healthy bool // no statement fails any more
}

type modelSub struct {
	sub   *Subscription
	s     *stream
	given []Message
}

func newModel() *model {
	m := &model{streams: newStreams(), trimmed: map[string]int64{}}
	m.streams.listen()
	m.streams.members = 1000 // as of other topics: so many that resets are put off
	return m
}

func (m *model) epoch() string { return fmt.Sprintf("epoch-%012d", m.epochs) }

func (m *model) body(offset int64) []byte { return fmt.Append(nil, m.epoch(), offset) }

// touch makes the topic if it is not there.
func (m *model) touch() {
	if !m.exists {
		m.exists, m.last = true, 0
		m.epochs++
	}
}

func (m *model) Publish(t *rapid.T) {
	m.touch()
	m.last++
	m.trimmed[m.epoch()] = max(0, m.last-modelKept)
	if m.interested {
		e := entry{topic: "t", tag: tag(m.epoch()), offset: m.last}
		if rapid.Bool().Draw(t, "inline") {
			e.data = m.body(m.last)
		}
		m.told = append(m.told, e)
	}
}

// Truncate loses the topic and all interest; what was notified still arrives.
func (m *model) Truncate(*rapid.T) {
	m.exists, m.interested, m.lost = false, false, true
}

// Reconnect loses what was notified.
func (m *model) Reconnect(*rapid.T) {
	m.told, m.lost = nil, false
	m.streams.deafen()
	m.streams.listen()
}

// Hear dispatches what was told, or goes on to deliver what was dispatched: one subscriber in each step, as others may take
// theirs meanwhile.
func (m *model) Hear(*rapid.T) {
	if len(m.handing) > 0 {
		m.handing[0]()
		m.handing = m.handing[1:]
		return
	}
	if len(m.told) == 0 {
		return
	}
	e := m.told[0]
	m.told = m.told[1:]
	message, to := m.streams.dispatch(e)
	for _, sub := range to {
		m.handing = append(m.handing, func() { sub.offer(message) })
	}
	m.handing = append(m.handing, m.streams.dispatched)
}

func (m *model) Join(t *rapid.T) {
	if len(m.joins)+len(m.subs) > 5 {
		return
	}
	s, wait, err := m.streams.enter("t")
	if err != nil {
		t.Fatal(err)
	}
	if wait == s.ready {
		m.joins = append(m.joins, s)
	}
}

// Attach subscribes whoever has joined.
func (m *model) Attach(*rapid.T) {
	var waiting []*stream
	for _, s := range m.joins {
		select {
		case <-s.ready:
			if s.err == nil {
				m.subscribe(s)
			}
		default:
			waiting = append(waiting, s)
		}
	}
	m.joins = waiting
}

func (m *model) subscribe(s *stream) {
	ms := &modelSub{s: s}
	ms.sub = &Subscription{
		topic:   "t",
		deliver: func(message Message) { ms.given = append(ms.given, message) },
		leave:   func(sub *Subscription) { m.streams.leave(s, sub) },
	}
	m.streams.attach(s, ms.sub)
	m.subs = append(m.subs, ms)
}

func (m *model) Leave(t *rapid.T) {
	if len(m.subs) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.subs)-1).Draw(t, "who")
	m.subs[i].sub.Unsubscribe()
	m.subs = append(m.subs[:i:i], m.subs[i+1:]...)
}

// Tidy deletes interest in one step, and forgets the stream in the next.
func (m *model) Tidy(*rapid.T) {
	if len(m.leaving) > 0 {
		m.streams.forget(m.leaving)
		m.leaving = nil
		return
	}
	if m.leaving, _ = m.streams.abandon(-time.Second); len(m.leaving) > 0 {
		m.interested = false
	}
}

// Ripen says that it is late enough for resets.
func (m *model) Ripen(*rapid.T) { m.streams.ripen(time.Now().Add(time.Hour)) }

// Read takes the reader's next step.
func (m *model) Read(t *rapid.T) {
	if len(m.pending) > 0 {
		m.pending[0]()
		m.pending = m.pending[1:]
		return
	}
	m.phase++
	switch m.phase {
	case 1:
		m.tasks = m.streams.tasks()
	case 2, 4:
		if !m.healthy && len(m.tasks) > 0 && rapid.IntRange(0, 9).Draw(t, "fails") == 0 {
			m.streams.returned(m.tasks, errors.New("away"))
			m.tasks = nil
		}
	case 3:
		m.register()
	case 5:
		m.read(t)
	case 6:
		m.serve()
	default:
		m.phase, m.tasks, m.page = 0, nil, page{}
	}
}

func (m *model) register() {
	positions := map[string]Position{}
	for _, task := range m.tasks {
		if task.register {
			m.touch()
			m.interested = true
			positions["t"] = Position{Epoch: m.epoch(), Offset: m.last}
		}
	}
	m.streams.registered(m.tasks, positions)
}

func (m *model) read(t *rapid.T) {
	m.page = page{}
	if len(m.tasks) == 0 || !m.exists {
		return
	}
	p := page{epoch: m.epoch(), first: max(1, m.last-modelKept+1), last: m.last}
	limit := rapid.IntRange(1, 4).Draw(t, "limit")
	for offset := max(m.tasks[0].after+1, p.first); offset <= m.last && len(p.messages) < limit; offset++ {
		p.messages = append(p.messages, Message{
			Topic: "t", Position: Position{Epoch: p.epoch, Offset: offset}, Data: m.body(offset),
		})
	}
	m.page = p
}

// serve delivers in steps of their own, as the dispatcher may deliver between them.
func (m *model) serve() {
	for _, task := range m.tasks {
		switch {
		case !task.read:
		case !m.page.found():
			m.streams.vanished(task.s)
		default:
			if m.streams.postpone(task.s, m.page, time.Hour) {
				continue
			}
			given, to, behind := m.streams.follow(task.s, m.page)
			for _, message := range given {
				for _, sub := range to {
					m.pending = append(m.pending, func() { sub.offer(message) })
				}
			}
			m.pending = append(m.pending, func() { m.streams.served(task.s, behind) })
		}
	}
}

// check fails unless everybody was given each offset once and in order, and only what is no longer kept is missing.
func (m *model) check(t *rapid.T) {
	for _, ms := range m.subs {
		account(t, ms.sub.start, ms.given)
		for _, message := range ms.given {
			at := message.Position
			switch {
			case message.Recovery.Outcome == Partial && message.Recovery.Missing.To > m.trimmed[at.Epoch]:
				t.Fatalf("%+v is kept from %d", message, m.trimmed[at.Epoch])
			case !message.Notice() && string(message.Data) != fmt.Sprint(at.Epoch, at.Offset):
				t.Fatalf("%+v says %s", at, message.Data)
			}
		}
	}
}

// Rest lets everything happen that is under way. Then everybody is where the topic is.
func (m *model) Rest(t *rapid.T) {
	m.healthy = true
	defer func() { m.healthy = false }()
	if m.lost { // a probe finds that
		m.lost = false
		m.streams.resync(true)
	}
	for rounds := 0; !m.quiet(); rounds++ {
		if rounds == 5000 {
			t.Fatalf("no rest: %d told, phase %d, queue %d", len(m.told), m.phase, len(m.streams.queue))
		}
		m.Read(t)
		m.Ripen(t)
		m.Attach(t)
		if rounds%10 == 0 {
			m.Hear(t)
		}
		if len(m.leaving) > 0 {
			m.Tidy(t)
		}
	}
	for _, ms := range m.subs {
		if at := ms.sub.at; m.exists && at != (Position{Epoch: m.epoch(), Offset: m.last}) {
			t.Fatalf("at rest a subscriber is at %+v of %s/%d", at, m.epoch(), m.last)
		}
		if ms.s.state != live {
			t.Fatalf("at rest the stream is in state %d", ms.s.state)
		}
	}
}

// quiet says that nothing is under way.
func (m *model) quiet() bool {
	return len(m.told)+len(m.handing)+len(m.pending)+len(m.tasks)+len(m.joins)+len(m.leaving)+len(m.streams.queue)+len(m.streams.resets)+m.phase == 0
}

// What is told about an epoch that is over may have the offset that is next in the new one.
func TestOnlyTheNextMessageOfTheSameEpochIsTaken(t *testing.T) {
	t.Parallel()
	at := Position{Epoch: "0e0e0e0e-0000-0000-0000-bbbbbbbbbbbb", Offset: 5}
	for name, tc := range map[string]struct {
		told       entry
		next, read bool
	}{
		"next":                  {entry{tag: "bbbbbbbbbbbb", offset: 6, data: []byte("x")}, true, false},
		"next, empty":           {entry{tag: "bbbbbbbbbbbb", offset: 6, data: []byte{}}, true, false},
		"next, by table":        {entry{tag: "bbbbbbbbbbbb", offset: 6}, false, true},
		"known":                 {entry{tag: "bbbbbbbbbbbb", offset: 5, data: []byte("x")}, false, false},
		"behind a gap":          {entry{tag: "bbbbbbbbbbbb", offset: 7, data: []byte("x")}, false, true},
		"next of another epoch": {entry{tag: "aaaaaaaaaaaa", offset: 6, data: []byte("x")}, false, true},
		"old of another epoch":  {entry{tag: "aaaaaaaaaaaa", offset: 1, data: []byte("x")}, false, true},
	} {
		s := newStream("t")
		s.at, s.state = at, live
		m, next, read := s.take(tc.told)
		if next != tc.next || read != tc.read {
			t.Errorf("%s: next %v, read %v", name, next, read)
		}
		if next && (m.Position != Position{Epoch: at.Epoch, Offset: 6} || s.at.Offset != 6 || m.Notice()) {
			t.Errorf("%s: %+v, stream at %+v", name, m, s.at)
		}
	}
}

// A message is being delivered when everything is to be read again. What comes after it waits: read and delivered before,
// it would have made this one old.
func TestResyncWaitsForADeliveryUnderWay(t *testing.T) {
	t.Parallel()
	b := newStreams()
	b.listen()
	s, _, err := b.enter("t")
	if err != nil {
		t.Fatal(err)
	}
	at := Position{Epoch: "epoch-000000000001"}
	b.registered(b.tasks(), map[string]Position{"t": at})
	var given []Message
	b.attach(s, &Subscription{topic: "t", deliver: func(m Message) { given = append(given, m) }})
	message, to := b.dispatch(entry{topic: "t", tag: tag(at.Epoch), offset: 1, data: []byte("1")})
	b.resync(true)
	if tasks := b.tasks(); len(tasks) > 0 {
		t.Fatalf("read amid a delivery: %+v", tasks)
	}
	to[0].offer(message)
	b.dispatched()
	select {
	case <-b.work:
	default:
		t.Error("the reader was not woken")
	}
	if tasks := b.tasks(); len(tasks) != 1 || tasks[0].after != 1 || !tasks[0].register || len(given) != 1 {
		t.Errorf("read %+v, and %d given", tasks, len(given))
	}
}

// Whatever the order in which publishers, notifications, the reader, subscribers and failures take their steps: nobody
// misses a message that is kept, gets one twice or out of order.
func TestStreamsMissNothingInAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		t.Repeat(map[string]func(*rapid.T){
			"": m.check, "publish": m.Publish, "publish more": m.Publish, "truncate": m.Truncate, "reconnect": m.Reconnect,
			"hear": m.Hear, "hear more": m.Hear, "join": m.Join, "attach": m.Attach, "leave": m.Leave, "tidy": m.Tidy,
			"read": m.Read, "read more": m.Read, "read most": m.Read, "read on": m.Read, "ripen": m.Ripen, "rest": m.Rest,
		})
		m.Rest(t)
		m.check(t)
	})
}
