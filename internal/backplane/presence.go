package backplane

import (
	"context"
	"time"
)

// Presence says where a topic is and who is there.
type Presence struct {
	// Position is that of the newest message. It is zero if the topic is not there, and has no offset if it has no message.
	Position Position
	// Members is how many subscriptions of the topic there are in all processes. What changed elsewhere in the last second
	// or so may be missing.
	Members int
	// Processes is how many processes have subscribers of the topic, or had until Config.Linger ago. Dead ones do not count.
	Processes int
}

// Presence counts who subscribes to a topic, in all processes that live. Its errors are ErrInvalid, ErrUnavailable, ErrClosed
// and ctx's.
func (b *Bus) Presence(ctx context.Context, topic string) (Presence, error) {
	if err := checkTopic(topic); err != nil {
		return Presence{}, err
	}
	if !b.started() {
		return Presence{}, ErrClosed
	}
	return b.store.presence(ctx, topic)
}

// count tells the database of topics whose members changed in number, now and then and of all at once.
func (b *Bus) count(ctx context.Context) {
	for {
		select {
		case <-b.streams.moves:
		case <-ctx.Done():
			return
		}
		sleep(ctx, b.config.CountInterval)
		topics, members := b.streams.recounted()
		if len(topics) == 0 || ctx.Err() != nil {
			continue
		}
		if err := b.store.count(ctx, topics, members); err != nil {
			b.config.Logger.WarnContext(ctx, "backplane members not counted", "topics", len(topics), "err", err)
			b.streams.uncounted(topics)
		}
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// recount notes that the members of a stream may be other than the database knows. The caller holds mu.
func (b *streams) recount(s *stream) {
	if s.refs == s.counted || s.state == registering && s.unregistered {
		return // it is registered with what it has
	}
	b.uneven[s] = struct{}{}
	b.moves.raise()
}

// recounted returns the topics whose members changed in number, and how many they are. They count as told.
func (b *streams) recounted() (topics []string, members []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.uneven {
		interested := s.state == live || s.state == reading
		if interested && s.refs != s.counted {
			s.counted = s.refs
			topics, members = append(topics, s.name), append(members, s.refs)
		}
	}
	clear(b.uneven)
	return topics, members
}

// uncounted says that the database may not know the members of topics.
func (b *streams) uncounted(topics []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, topic := range topics {
		if s := b.byName[topic]; s != nil {
			s.counted = -1
			b.recount(s)
		}
	}
}
