package api

import (
	"context"
	"sync"

	"github.com/berthdev/berth/internal/backplane"
)

// fakeBackplane is one that may be away.
type fakeBackplane struct {
	*backplane.Memory

	mu   sync.Mutex
	fail error
}

func (b *fakeBackplane) setFail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

func (b *fakeBackplane) failing() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fail
}

func (b *fakeBackplane) Publish(ctx context.Context, messages ...backplane.Outgoing) ([]backplane.Published, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Memory.Publish(ctx, messages...)
}

func (b *fakeBackplane) Subscribe(
	ctx context.Context, topic string, from *backplane.Position, deliver func(backplane.Message),
) (*backplane.Subscription, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Memory.Subscribe(ctx, topic, from, deliver)
}

func (b *fakeBackplane) Presence(ctx context.Context, topic string) (backplane.Presence, error) {
	if err := b.failing(); err != nil {
		return backplane.Presence{}, err
	}
	return b.Memory.Presence(ctx, topic)
}
