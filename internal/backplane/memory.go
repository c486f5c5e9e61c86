package backplane

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
)

// maxQueued bounds the messages that wait to be published or, in Memory, delivered. Beyond it Publish is refused.
const maxQueued = 8192

// Memory is a backplane of one process, without a database: for `go test` of what uses one, and for tools. It keeps what a
// Bus keeps, but by number only, not by age.
//
// It has no goroutines: what is published is delivered by whoever publishes, one at a time.
type Memory struct {
	mu         sync.Mutex // guards the rest; not held while deliver runs
	topics     map[string]*memoryTopic
	queue      []delivery
	delivering bool
	closed     bool
}

type memoryTopic struct {
	at   Position // of the newest message
	log  []Message
	subs []*Subscription // replaced, never changed
}

// delivery is a message and who gets it.
type delivery struct {
	to []*Subscription
	m  Message
}

// NewMemory makes a backplane that is ready for use.
func NewMemory() *Memory { return &Memory{topics: map[string]*memoryTopic{}} }

// Start does nothing, since NewMemory's result is ready.
func (m *Memory) Start(context.Context) error { return nil }

// Close refuses whatever comes later. Subscribers are given no more.
func (m *Memory) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.queue, m.topics = nil, map[string]*memoryTopic{}
}

// topic returns the topic of a name, a new one if need be. The caller holds mu.
func (m *Memory) topic(name string) *memoryTopic {
	t := m.topics[name]
	if t == nil {
		t = &memoryTopic{at: Position{Epoch: rand.Text()}}
		m.topics[name] = t
	}
	return t
}

// Publish is that of Bus. Subscribers have been given the messages when it returns, unless another call is delivering.
func (m *Memory) Publish(_ context.Context, messages ...Outgoing) ([]Published, error) {
	if err := checkAll(messages); err != nil {
		return nil, err
	}
	published, err := m.enqueue(messages)
	if err == nil {
		m.deliver()
	}
	return published, err
}

// enqueue appends messages to their topics, and to what is to be delivered.
func (m *Memory) enqueue(messages []Outgoing) (published []Published, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if len(m.queue)+len(messages) > maxQueued {
		return nil, fmt.Errorf("%w: %d messages wait already", ErrUnavailable, maxQueued)
	}
	for _, out := range messages {
		t := m.topic(out.Topic)
		t.at.Offset++
		message := Message{Topic: out.Topic, Position: t.at, Data: body(out.Data)}
		t.log = append(t.log[max(0, len(t.log)-Kept+1):], message)
		m.queue = append(m.queue, delivery{to: t.subs, m: message})
		published = append(published, Published{Position: t.at, Processes: min(1, len(t.subs))})
	}
	return published, nil
}

// body is data that is not nil, which would be a notice.
func body(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// deliver empties the queue, unless somebody is at it.
func (m *Memory) deliver() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.delivering {
		return
	}
	m.delivering = true
	for len(m.queue) > 0 {
		queue := m.queue
		m.queue = nil
		m.mu.Unlock()
		for _, d := range queue {
			for _, sub := range d.to {
				sub.offer(d.m)
			}
		}
		m.mu.Lock()
	}
	m.delivering = false
}

// Subscribe is that of Bus.
func (m *Memory) Subscribe(
	_ context.Context, topic string, from *Position, deliver func(Message),
) (*Subscription, error) {
	if err := checkStart(topic, from); err != nil {
		return nil, err
	}
	sub := &Subscription{topic: topic, deliver: deliver, leave: m.remove, holding: true}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, ErrClosed
	}
	t := m.topic(topic)
	sub.at, sub.start = t.at, t.at
	t.subs = append(slices.Clip(t.subs), sub)
	m.mu.Unlock()
	err := sub.begin(from, func(after int64) (page, error) { return m.read(topic, after), nil })
	return sub, err
}

// Presence is that of Bus. Its own is the only process.
func (m *Memory) Presence(_ context.Context, topic string) (Presence, error) {
	if err := checkTopic(topic); err != nil {
		return Presence{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return Presence{}, ErrClosed
	}
	t := m.topics[topic]
	if t == nil {
		return Presence{}, nil
	}
	return Presence{Position: t.at, Members: len(t.subs), Processes: min(1, len(t.subs))}, nil
}

// read returns all that a topic keeps after an offset.
func (m *Memory) read(topic string, after int64) page {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.topic(topic)
	read := page{epoch: t.at.Epoch, first: t.at.Offset - int64(len(t.log)) + 1, last: t.at.Offset}
	for _, message := range t.log {
		if message.Position.Offset > after {
			read.messages = append(read.messages, message)
		}
	}
	return read
}

func (m *Memory) remove(sub *Subscription) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.topics[sub.topic]; t != nil {
		t.subs = slices.DeleteFunc(slices.Clone(t.subs), func(other *Subscription) bool { return other == sub })
	}
}

// Forget empties every topic, as a crash of the database does: each begins a new epoch, and subscribers get a reset.
func (m *Memory) Forget() {
	m.mu.Lock()
	for name, t := range m.topics {
		t.log, t.at = nil, Position{Epoch: rand.Text()}
		m.queue = append(m.queue, delivery{to: t.subs, m: Message{
			Topic: name, Position: t.at, Recovery: Recovery{Outcome: Reset},
		}})
	}
	m.mu.Unlock()
	m.deliver()
}
