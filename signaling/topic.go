package signaling

import (
	"context"
	"sync"

	"github.com/berthdev/berth/internal/backplane"
)

// Topics carry messages between workers; package backplane provides them. Data of the tenants' topics is JSON text:
// whoever publishes to them has checked it.
type Topics interface {
	// Publish appends messages to their topics and returns once they are certain to be delivered, in the order of its
	// calls.
	Publish(ctx context.Context, messages ...backplane.Outgoing) ([]backplane.Published, error)

	// Subscribe has deliver called with an opening and then with each message of the topic, in order. deliver does not
	// block, but for what comes with Replayed.
	Subscribe(
		ctx context.Context, topic string, from *backplane.Position, deliver func(backplane.Message),
	) (*backplane.Subscription, error)

	// Presence counts who listens to a topic.
	Presence(ctx context.Context, topic string) (backplane.Presence, error)
}

// recent remembers the frame that was rendered last: a message goes to all subscribers of this worker one after the
// other, and is the same for each.
type recent struct {
	mu    sync.Mutex
	topic string
	at    backplane.Position
	last  []byte
}

func (r *recent) frame(topic string, m backplane.Message) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.topic != m.Topic || r.at != m.Position {
		r.topic, r.at, r.last = m.Topic, m.Position, messageFrame(topic, m.Position.Offset, m.Data)
	}
	return r.last
}
