package backplane

import (
	"context"
	"slices"
	"time"
)

// Presence says where a topic is and who is there.
type Presence struct {
	// Position is that of the newest message. It is zero if the topic is not there, and has no offset if it has no message.
	Position Position
	// Members is how many subscriptions of the topic there are in all processes. What changed elsewhere in the last second
	// or two may be missing.
	Members int
	// Processes is how many processes have subscribers of the topic, or had until Config.Linger ago. Those do not count that
	// died more than a second ago, nor others that began to listen since.
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
	listening, err := b.roll.call(ctx)
	if err != nil {
		return Presence{}, err
	}
	if b.streams.hears() {
		listening = append(slices.Clip(listening), b.config.Process) // it may be newer; twice is once
	}
	return b.store.presence(ctx, topic, listening)
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
		streams, topics, members := b.streams.recounted()
		if len(topics) == 0 {
			continue
		}
		err := b.store.count(ctx, topics, members)
		if err != nil && ctx.Err() == nil {
			b.config.Logger.WarnContext(ctx, "backplane members not counted", "topics", len(topics), "err", err)
		}
		b.streams.counted(streams, members, err)
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
	if s.refs == s.counted || s.writes > 0 || s.state == registering && s.unregistered {
		return // it is registered with what it has, or looked at when it was told of
	}
	b.uneven[s] = struct{}{}
	b.moves.raise()
}

// telling notes that a statement begins which tells the database of a stream's members. The caller holds mu.
func (s *stream) telling() {
	s.mixed = s.mixed || s.writes > 0
	s.writes++
}

// told notes the end of such a statement, and how many it told of: negative if it may have failed. Where two met, either may
// have been the last, so it is told again. The caller holds mu.
func (b *streams) told(s *stream, members int) {
	s.writes--
	s.counted = members
	if s.mixed {
		s.counted = -1
	}
	if s.writes == 0 {
		s.mixed = false
	}
	b.recount(s)
}

// recounted returns the streams whose members changed in number, and how many they are now. The caller calls counted when the
// database was told. Streams of which it is just being told have their turn after that.
func (b *streams) recounted() (uneven []*stream, topics []string, members []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.uneven {
		interested := s.state == live || s.state == reading
		if interested && s.writes == 0 && s.refs != s.counted {
			s.telling()
			uneven, topics, members = append(uneven, s), append(topics, s.name), append(members, s.refs)
		}
	}
	clear(b.uneven)
	return uneven, topics, members
}

// counted says that the database was told of the members of streams, or that it may not have been.
func (b *streams) counted(streams []*stream, members []int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, s := range streams {
		if err != nil {
			members[i] = -1
		}
		b.told(s, members[i])
	}
}
