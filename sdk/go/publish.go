package berth

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// ErrNotConnected means that there is no link at this moment, so that nothing was sent.
var ErrNotConnected = errors.New("berth: not connected")

type publishFrame struct {
	Type  string `json:"type"`
	ID    string `json:"id"`
	Topic string `json:"topic"`
	Data  any    `json:"data"`
}

// Publish sends data, which is encoded as JSON, to everybody who listens to a topic: at most 64 KiB, and only if the
// placement's peer may publish there. It returns once the message is in the topic. It is tried once: after an error other
// than ErrNotConnected it may have been published.
func (c *Conn) Publish(ctx context.Context, topic string, data any) (*Published, error) {
	if topic == "" {
		return nil, invalid("topic", "name a topic")
	}
	if _, err := encodeBody(data); err != nil {
		return nil, err
	}
	answer := make(chan frame, 1)
	k, id := c.topics.expect(answer)
	if k == nil {
		return nil, ErrNotConnected
	}
	defer c.topics.forget(id)
	k.write(ctx, publishFrame{Type: typePublish, ID: id, Topic: topic, Data: data})
	select {
	case f := <-answer:
		if f.Type == typeError {
			return nil, frameRefusal(&f)
		}
		return &Published{Topic: f.Topic, Epoch: f.Epoch, Offset: f.Offset}, nil
	case <-k.gone:
		return nil, errUnsure
	case <-ctx.Done():
		return nil, fmt.Errorf("berth: publish: %w", context.Cause(ctx))
	}
}

// expect returns the link to publish on, and the id by which answer is found; nil: there is none.
func (s *subscriptions) expect(answer chan<- frame) (*link, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return nil, ""
	}
	s.sent++
	id := typePublish + "-" + strconv.Itoa(s.sent)
	s.waiting[id] = answer
	return s.current, id
}

func (s *subscriptions) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, id)
}

// answered hands the answer to whoever waits for it. It reports whether the frame answers a publish.
func (s *subscriptions) answered(f *frame) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, waits := s.waiting[f.ReplyTo]
	if waits {
		delete(s.waiting, f.ReplyTo)
		answer <- *f // it has room for the one answer
	}
	return waits
}
