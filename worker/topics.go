package worker

import (
	"context"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/signaling"
)

// Backplane carries messages of topics between processes; package backplane provides it.
type Backplane interface {
	Publish(ctx context.Context, messages ...backplane.Outgoing) ([]backplane.Published, error)
	Subscribe(
		ctx context.Context, topic string, from *backplane.Position, deliver func(backplane.Message),
	) (*backplane.Subscription, error)
}

// topics is a backplane as signaling needs it: from now on, without offsets.
type topics struct {
	bus Backplane
}

// NewTopics lets signaling relay calls over a backplane. The caller closes the backplane after the worker has stopped.
func NewTopics(bus Backplane) signaling.Topics { return topics{bus} }

// Subscribe implements signaling.Topics. A notice that messages are missing is dropped: what a call lacks then, its peers
// offer again.
func (t topics) Subscribe(ctx context.Context, topic string, deliver func([]byte)) (func(), error) {
	subscription, err := t.bus.Subscribe(ctx, topic, nil, func(m backplane.Message) {
		if !m.Notice() {
			deliver(m.Data)
		}
	})
	if err != nil {
		return nil, err
	}
	return subscription.Unsubscribe, nil
}

// Publish implements signaling.Topics.
func (t topics) Publish(ctx context.Context, topic string, data []byte) error {
	_, err := t.bus.Publish(ctx, backplane.Outgoing{Topic: topic, Data: data})
	return err
}
