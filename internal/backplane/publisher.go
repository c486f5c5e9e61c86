package backplane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

const (
	// batchMessages and batchBytes bound a batch, unless a single post is larger.
	batchMessages = 256
	batchBytes    = 1 << 20
	// maxWaiting bounds the bytes that wait to be published of all senders, as maxQueued does the messages; see also maxSender.
	maxWaiting = 16 << 20
)

// post is one call of Publish.
type post struct {
	messages []Outgoing
	bytes    int
	answer   chan outcome // holds one
	left     atomic.Bool  // whoever called has gone: not to be published if it is not in flight yet
}

// outcome is what became of a post.
type outcome struct {
	published []Published
	err       error
}

// publisher gathers what is to be published into batches. It waits for no company: what comes while a batch is in flight
// is the next. One is in flight, so the messages of a sender keep their order.
type publisher struct {
	publish func(context.Context, []Outgoing) ([]Published, error)
	sender  func(topic string) string // as Config has it
	metrics *metrics
	arrived signal

	mu      sync.Mutex // guards the rest
	waiting *senders
	open    bool
}

func newPublisher(
	publish func(context.Context, []Outgoing) ([]Published, error), sender func(string) string, m *metrics,
) *publisher {
	return &publisher{publish: publish, sender: sender, metrics: m, arrived: make(signal, 1), waiting: newSenders()}
}

// do publishes messages with the next batch, and waits until that is done or ctx is.
func (p *publisher) do(ctx context.Context, messages []Outgoing) ([]Published, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	item := &post{messages: messages, answer: make(chan outcome, 1)}
	for _, m := range messages {
		item.bytes += len(m.Data)
	}
	if err := p.add(item); err != nil {
		return nil, err
	}
	select {
	case done := <-item.answer:
		return done.published, done.err
	case <-ctx.Done():
		item.left.Store(true)
		return nil, fmt.Errorf("publish: outcome unknown: %w", context.Cause(ctx))
	}
}

func (p *publisher) add(item *post) error {
	name := p.from(item.messages)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open {
		return ErrClosed
	}
	if !p.waiting.add(name, item) {
		p.metrics.refused.Inc()
		return fmt.Errorf("%w: too much waits already of this sender, or of all; %d messages", ErrUnavailable, p.waiting.count())
	}
	p.metrics.queued.Set(float64(p.waiting.count()))
	p.arrived.raise()
	return nil
}

// from is who sends messages: if it is several, the nameless.
func (p *publisher) from(messages []Outgoing) string {
	name := p.sender(messages[0].Topic)
	for _, m := range messages[1:] {
		if p.sender(m.Topic) != name {
			return ""
		}
	}
	return name
}

// start lets posts be added, which run publishes.
func (p *publisher) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = true
}

// close refuses what waits. A batch in flight is finished.
func (p *publisher) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = false
	for s := p.waiting.next(); s != nil; s = p.waiting.next() {
		s.posts[0].answer <- outcome{err: ErrClosed}
		p.waiting.pass(s)
	}
	p.metrics.queued.Set(0)
}

// run publishes batches until ctx ends, and finishes the last.
func (p *publisher) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.arrived:
		}
		for batch := p.take(); len(batch) > 0; batch = p.take() {
			p.flight(context.WithoutCancel(ctx), batch)
		}
	}
}

// take removes the next batch, and before it what nobody waits for any more: published late, it would come as news.
func (p *publisher) take() (batch []*post) {
	p.mu.Lock()
	defer p.mu.Unlock()
	messages, bytes := 0, 0
	for s := p.waiting.next(); s != nil; s = p.waiting.next() {
		item := s.posts[0]
		if !item.left.Load() {
			messages += len(item.messages)
			bytes += item.bytes
			if len(batch) > 0 && (messages > batchMessages || bytes > batchBytes) {
				break
			}
			batch = append(batch, item)
		}
		p.waiting.pass(s)
	}
	p.metrics.queued.Set(float64(p.waiting.count()))
	return batch
}

// flight publishes a batch. One that fails because of its data is published again post by post, so that a bad one fails alone.
func (p *publisher) flight(ctx context.Context, batch []*post) {
	var messages []Outgoing
	for _, item := range batch {
		messages = append(messages, item.messages...)
	}
	published, err := p.publish(ctx, messages)
	if err != nil && len(batch) > 1 && !errors.Is(err, ErrUnavailable) {
		for _, item := range batch {
			p.flight(ctx, []*post{item})
		}
		return
	}
	p.metrics.count(published)
	for _, item := range batch {
		if err != nil {
			item.answer <- outcome{err: err}
			continue
		}
		n := len(item.messages)
		item.answer <- outcome{published: published[:n:n]}
		published = published[n:]
	}
}
