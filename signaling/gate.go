package signaling

import (
	"context"
	"sync"

	"github.com/berthdev/berth/internal/berth"
)

// gates let one join of a session through at a time. The zero value is ready.
type gates struct {
	mu   sync.Mutex
	gate map[berth.SessionKey]*gate
}

type gate struct {
	turn chan struct{} // holds one value while somebody is inside
	refs int           // inside or waiting; guarded by gates.mu
}

// enter waits for the session's turn. On success the caller must call leave.
func (g *gates) enter(ctx context.Context, key berth.SessionKey) (leave func(), err error) {
	g.mu.Lock()
	if g.gate == nil {
		g.gate = map[berth.SessionKey]*gate{}
	}
	one := g.gate[key]
	if one == nil {
		one = &gate{turn: make(chan struct{}, 1)}
		g.gate[key] = one
	}
	one.refs++
	g.mu.Unlock()

	select {
	case one.turn <- struct{}{}:
		leave = func() { <-one.turn; g.forget(key, one) }
		if err := ctx.Err(); err != nil { // both were ready
			leave()
			return nil, err
		}
		return leave, nil
	case <-ctx.Done():
		g.forget(key, one)
		return nil, ctx.Err()
	}
}

func (g *gates) forget(key berth.SessionKey, one *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if one.refs--; one.refs == 0 {
		delete(g.gate, key)
	}
}
