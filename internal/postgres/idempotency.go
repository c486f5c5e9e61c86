package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// inFlight are the idempotency keys of starts that this process works on. Another process finds out by the key's
// advisory lock, which a claim holds, or by the waiter that has the key.
type inFlight struct {
	mu   sync.Mutex // guards keys
	keys map[[2]string]bool
}

// begin refuses a key that is in flight already. Otherwise the caller calls done once it has its answer.
func (f *inFlight) begin(tenantID, key string) (done func(), err error) {
	name := [2]string{tenantID, key}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keys[name] {
		return nil, errInFlight()
	}
	f.keys[name] = true
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.keys, name)
	}, nil
}

// PurgeIdempotency deletes up to limit keys that are older than age, and returns how many.
func (s *Store) PurgeIdempotency(ctx context.Context, age time.Duration, limit int) (int, error) {
	return value[int](ctx, s, "idempotency_purge", age, limit)
}

func errInFlight() error {
	return &berth.Refusal{
		Code:       berth.CodeConflict,
		Detail:     "A request with this Idempotency-Key is being worked on. Ask again for its answer.",
		RetryAfter: time.Second,
		Retryable:  true,
	}
}
